"""A scrape of a daemon's metrics."""

import urllib.request


class MetricsPage:
    def __init__(self, port):
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
        self._values = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                self._values[series] = float(value)

    def sum(self, name, **labels):
        """Over all series that have these labels; 0 if there is none."""
        return sum(
            value
            for series, value in self._values.items()
            if series.split("{")[0] == name
            and all(f'{key}="{text}"' in series for key, text in labels.items())
        )
