"""progress=True: a bar of tqdm, or a line on stderr where there is no tqdm."""

import builtins

import datasetd
import pytest
from conftest import load
from datasetd._client import progress

COUNT = 103


def _load(client, data_root, **options):
    return load(client, data_root, progress=True, **options)


@pytest.fixture(autouse=True)
def _nothing_stays(client):
    yield
    for dataset in client.list_datasets():
        client.unload_dataset(dataset["name"])


@pytest.fixture
def without_tqdm(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments):
        if name.split(".")[0] == "tqdm":
            raise ImportError(f"No module named {name!r}")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.fixture
def bars(monkeypatch):
    """The bars of the installed tqdm that are made."""
    import tqdm.auto

    made = []

    class Kept(tqdm.auto.tqdm):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(tqdm.auto, "tqdm", Kept)
    return made


def test_a_bar_of_tqdm_ends_with_all_samples(client, data_root, bars, capsys):
    dataset = _load(client, data_root)
    assert len(dataset) == COUNT
    (bar,) = bars
    assert (bar.n, bar.total, bar.unit) == (COUNT, COUNT, "sample")
    assert bar.disable  # closed
    out, err = capsys.readouterr()
    assert out == ""
    assert "loading hundred: 100%" in err and f"{COUNT}/{COUNT}" in err
    # 103 images of 240 bytes and labels of 8.
    assert "0.0 MB" in err and err.endswith("\n")
    dataset.close()


def test_a_push_and_a_dry_run_have_bars_too(client, data_root, bars):
    client.push_dataset("pushed", [1, 2, 3], progress=True).close()
    _load(client, data_root, dry_run=True)
    assert [(bar.n, bar.total) for bar in bars] == [(3, 3), (COUNT, COUNT)]
    assert all(bar.disable for bar in bars)


def test_the_bar_is_closed_when_the_load_fails(client, data_root, bars):
    with pytest.raises(datasetd.NotFound):
        client.load_dataset("none", format="npy", path=data_root / "none",
                            progress=True)
    (bar,) = bars
    assert bar.n == 0 and bar.disable


def test_without_tqdm_a_line_on_stderr(client, data_root, capsys,
                                       without_tqdm):
    dataset = _load(client, data_root)
    out, err = capsys.readouterr()
    assert out == ""
    last = err.split("\r")[-1]
    assert last.startswith(f"loading hundred: 100 %, {COUNT}/{COUNT} samples")
    assert "samples/s" in last and last.endswith("\n")
    dataset.close()


def test_no_progress_says_nothing(client, dataset, capsys):
    assert capsys.readouterr() == ("", "")
    dataset.close()


_SCANNING = {"progress": {"is_scanning": True, "num_entries_scanned": "70"}}
_HALF = {"progress": {
    "num_samples_loaded": "50", "num_samples": "100",
    "loaded_bytes": "2500000", "samples_per_second": 25.0,
    "eta_seconds": 2.0}}


def test_what_a_bar_shows_of_a_scan_and_then(capsys):
    import tqdm.auto

    bar = progress.TqdmProgress(tqdm.auto.tqdm, "x")
    bar({})
    bar(_SCANNING)
    bar({})
    bar(_HALF)
    bar.close()
    err = capsys.readouterr().err
    assert err.index("scanning, 70 entries") < err.index("50/100")
    assert "2.5 MB" in err
    assert "scanning" not in err.split("\r")[-1]


def test_what_a_line_shows_of_a_scan_and_then(capsys):
    line = progress.LineProgress("x")
    line({})
    line(_SCANNING)
    line({"num_samples_scanned": "0", "num_samples": "0",
          "num_entries_scanned": "0"})
    line({"num_samples_scanned": "0", "num_samples": "0",
          "num_entries_scanned": "71"})
    line(_HALF)
    line(_HALF)
    line.close()
    texts = [text.rstrip() for text in capsys.readouterr().err.split("\r")]
    assert texts == [
        "",
        "loading x: scanning, 70 entries",
        "loading x: scanning, 71 entries",
        "loading x:  50 %, 50/100 samples, 2.5 MB, 25 samples/s, 2 s left",
    ]
