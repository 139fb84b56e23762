"""A daemon in hostile hands: a job whose every pixel is checked, and beside it
a client that says what no client library would."""

import time

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness
from tests.testing import metrics_page

harness.use_python_package()

import datasetd  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402


class World:
    """A context manager, at whose end the job has to be served, and the daemon
    to run.

    `client` and `loader`, called "good", are the job's; `options` add to the
    loader's. `session` is the other's; `footprint` is what the daemon uses
    before the other has a feed.
    """

    def __init__(self, daemon, num_samples=2000, **options):
        self.daemon = daemon
        self.num_samples = num_samples
        daemon.write_dataset(num_samples)
        self.planes = daemon.planes
        self.client = daemon.connect()
        self.dataset = daemon.load(self.client)
        self.loader = datasetd.DataLoader(self.dataset, **{
            "batch_size": num_samples // 20, "shuffle": True, "seed": 1,
            "prefetch": 4, "framework": "numpy", "timeout": 30,
            "name": "good", **options})
        self.session = harness.Session(daemon.socket_path)
        self.session.call("FeedService.ListFeeds")
        self.footprint = harness.Footprint(daemon, self.client)

    def try_open(self, **options):
        """The answer to an OpenFeed, of a feed that is called "bad"."""
        return self.session.call(
            "FeedService.OpenFeed",
            options={"dataset": "d", "batch_size": 10, "prefetch": 2,
                     "name": "bad", **options})

    def open(self, **options):
        """The response to an OpenFeed that is granted."""
        answer = self.try_open(**options)
        assert answer["code"] == 0, answer
        return answer["responses"][0]

    def attach(self, feed_id, arrays=()):
        return wire.RawFeed(
            self.daemon.socket_path, self.session.token, int(feed_id), arrays)

    def open_and_attach(self, **options):
        """A feed, once all of its slots have a batch."""
        feed = self.attach(self.open(**options)["feed_id"])
        harness.poll_until(lambda: len(feed.published()) == feed.num_slots(),
                           "the first batches")
        return feed

    def info(self, name="bad"):
        """What the daemon tells of a feed; None if there is none."""
        for feed in self.client.list_feeds():
            if feed["name"] == name:
                return feed
        return None

    def metric(self, name, **labels):
        page = metrics_page.MetricsPage(self.daemon.config["metrics_port"])
        return page.sum(name, **labels)

    def run_good_job(self, num_epochs=1):
        """Checks every pixel; returns the seconds of the slowest epoch."""
        slowest = 0.0
        for _ in range(num_epochs):
            began = time.monotonic()
            rows = []
            for batch in self.loader:
                indices = loaders.array(batch.indices)
                rows += indices.tolist()
                assert (loaders.array(batch[0]) == self.planes[indices]).all()
            slowest = max(slowest, time.monotonic() - began)
            self.check_epoch(rows)
        return slowest

    def check_epoch(self, rows):
        assert sorted(rows) == list(range(self.num_samples))

    def close(self):
        self.session.close()
        self.loader.close()
        self.client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.run_good_job()
        finally:
            self.close()
        assert self.daemon.is_running()
