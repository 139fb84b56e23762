"""A user who pushes more than the cache on disk takes."""

import os
import tempfile

from tests.testing import arena
from tests.testing import daemon_harness as harness

_CACHE_MIB = 64
_MIB = 8
_NUM_PUSHES = 24

# Stores `num` datasets one after the other; each is there before the next.
_PUSH = """
client = datasetd.connect(ADDRESS)
for i in range(ARGUMENTS["num"]):
    sample = np.random.default_rng(i).integers(0, 256, 1 << 20, np.uint8)
    dataset = client.push_dataset(f"{ARGUMENTS['name']}{i}",
                                  [{"x": sample}] * ARGUMENTS["mib"])
    say(spec_id=dataset.spec_id, hash=dataset.content_hash)
    hear()
    client.unload_dataset(f"{ARGUMENTS['name']}{i}")
"""

_GET = """
client = datasetd.connect(ADDRESS)
while True:
    found = {d["name"]: d for d in client.list_datasets()}["mine0"]
    if "LOADING" not in found["state"]:
        break
    time.sleep(0.02)
dataset = client.get_dataset("mine0")
say(state=found["state"], hash=dataset.content_hash)
hear()
"""


def _stored(cache, spec_id):
    return os.path.exists(os.path.join(cache, spec_id + ".cache"))


@arena.needs_users
def test_a_users_pushes_evict_that_users_entries_alone():
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        os.chown(parent, arena.DAEMON_UID, -1)
        cache = os.path.join(parent, "cache")
        with arena.Arena(
                memory_budget_mib=1024,
                cache={"directory": cache, "limit_mib": _CACHE_MIB}) as a:
            with a.attacker(_PUSH, uid=arena.VICTIM_UID, name="mine", num=1,
                            mib=_MIB) as worker:
                mine = worker.hear()
            harness.poll_until(lambda: _stored(cache, mine["spec_id"]),
                               "the victim's entry")
            theirs = []
            with a.attack() as measure, a.attacker(
                    _PUSH, name="theirs", num=_NUM_PUSHES,
                    mib=_MIB) as worker:
                for _ in range(_NUM_PUSHES):
                    theirs.append(worker.hear()["spec_id"])
                    harness.poll_until(lambda: _stored(cache, theirs[-1]),
                                       "the attacker's entry")
                    worker.tell()
            assert not measure.prober_errors, measure.prober_errors
            a.expect_unhurt(measure)
            # The attacker has half of the cache, and the victim all it had.
            kept = [id for id in theirs if _stored(cache, id)]
            assert kept == theirs[-(_CACHE_MIB // 2 // _MIB - 1):]
            assert _stored(cache, mine["spec_id"])
            a.pause_victims()
            a.daemon.kill()
            a.daemon.start()
            with a.attacker(_GET, uid=arena.VICTIM_UID) as worker:
                said = worker.hear()
            assert said == {"state": "DATASET_STATE_READY",
                            "hash": mine["hash"]}
            assert f"{mine['spec_id']}.cache: evicted" not in a.daemon.log()
            a.resume_victims()
            a.expect_well()


if __name__ == "__main__":
    harness.main(__file__)
