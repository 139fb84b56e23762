"""A dataset whose restore ends the daemon, every time."""

import contextlib
import os
import signal
import tempfile

from tests.testing import arena
from tests.testing import daemon_harness as harness

# In a row; see server/service/restore_plan.h.
_NUM_ENDS = 3

_LOAD = """
client = datasetd.connect(ADDRESS)
dataset = client.load_dataset("slow", format="image_folder",
                              path=ARGUMENTS["path"])
say(num_samples=dataset.num_samples)
hear()
"""

_STATES = """
client = datasetd.connect(ADDRESS)
while True:
    say(**{d["name"]: [d["state"].replace("DATASET_STATE_", ""), d["error"]]
           for d in client.list_datasets()})
    hear()
"""


def _reading(a):
    """Returns the lines of the journal of datasets being read for a restore."""
    try:
        with open(os.path.join(a.path("state"), "restoring")) as file:
            return file.read().split("\n")[1:]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _arena():
    """Its cache is too small, so that every restore reads the source."""
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        os.chown(parent, arena.DAEMON_UID, -1)
        cache = {"directory": os.path.join(parent, "cache"), "limit_mib": 1}
        with arena.Arena(cache=cache, memory_budget_mib=1024,
                         drain_timeout="1s") as a:
            yield a


def _end_while_it_is_restored(a, name):
    """Starts the daemon, and ends it by a crash in the load of `name`, which it
    reads alone. Before that it looks at what is there to load."""
    line = f"dataset={name} loading again"
    num_loads = a.daemon.log().count(line)
    a.daemon.start()
    harness.poll_until(
        lambda: a.daemon.log().count(line) > num_loads
        and [n for n in _reading(a) if n] == [name],
        "the restore is under way")
    a.daemon.terminate(signal.SIGSEGV)
    a.daemon.wait()


def test_a_dataset_that_ends_the_daemon_is_failed_and_can_be_tried_again():
    with _arena() as a:
        path = a.path("data/slow")
        harness.write_slow_images(path)
        with a.attacker(_LOAD, path=path) as worker:
            num_samples = worker.hear()["num_samples"]
        a.pause_victims()
        for _ in range(_NUM_ENDS):
            a.daemon.kill()
            _end_while_it_is_restored(a, "slow")
        a.daemon.kill()
        a.daemon.start()
        with a.attacker(_STATES) as worker:
            states = worker.hear()
            assert states["slow"][0] == "FAILED", states
            assert f"{_NUM_ENDS} times in a row" in states["slow"][1]
            assert "load it with the same arguments" in states["slow"][1]

            def is_victim_ready():
                worker.tell()
                return worker.hear()["victim"][0] == "READY"

            harness.poll_until(is_victim_ready, "what was no suspect is back")
        # It stays so, however often the daemon is restarted.
        a.daemon.terminate()
        a.daemon.wait()
        a.daemon.start()
        with a.attacker(_STATES) as worker:
            assert worker.hear()["slow"][0] == "FAILED"
        with a.attacker(_LOAD, path=path) as worker:
            assert worker.hear()["num_samples"] == num_samples
        # Loaded again, it is a dataset like any other.
        a.daemon.terminate()
        a.daemon.wait()
        a.daemon.start()
        with a.attacker(_STATES) as worker:
            assert worker.hear()["slow"][0] in ("LOADING", "READY")
        a.resume_victims()
        a.expect_well()


def test_neither_one_power_cut_nor_clean_stops_lose_a_dataset():
    with _arena() as a:
        path = a.path("data/slow")
        harness.write_slow_images(path)
        with a.attacker(_LOAD, path=path) as worker:
            worker.hear()
        a.pause_victims()
        for number in [signal.SIGKILL] + [signal.SIGTERM] * (_NUM_ENDS + 1):
            a.daemon.kill()
            a.daemon.start()
            harness.poll_until(lambda: "slow" in _reading(a),
                               "the restore is under way")
            a.daemon.terminate(number)
            a.daemon.wait()
        a.daemon.kill()
        a.daemon.start()
        with a.attacker(_STATES) as worker:

            def state():
                worker.tell()
                return worker.hear()["slow"]

            worker.hear()
            harness.poll_until(lambda: state()[0] != "LOADING", "it settles")
            assert state() == ["READY", ""]
        a.resume_victims()
        a.expect_well()


if __name__ == "__main__":
    harness.main(__file__)
