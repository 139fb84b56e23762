"""Room for others: limits as shipped, and evictions for nothing."""

import pytest

from tests.testing import arena
from tests.testing import daemon_harness as harness

_LIMITS_MAX = 40

_TAKE = """
refusals = []
sessions = []
try:
    for _ in range(ARGUMENTS["num"]):
        sessions.append(datasetd.connect(ADDRESS))
except datasetd.Error as error:
    refusals.append(str(error))
client = sessions[0]
dataset = client.get_dataset("victim")
feeds = []
try:
    for _ in range(ARGUMENTS["num"]):
        loader = datasetd.DataLoader(dataset, batch_size=1, prefetch=1,
                                     framework="numpy")
        next(iter(loader))
        feeds.append(loader)
except datasetd.Error as error:
    refusals.append(str(error))
datasets = 0
try:
    for i in range(ARGUMENTS["num"]):
        client.push_dataset(f"mine{i}", [{"x": np.zeros(1, np.uint8)}])
        datasets += 1
except datasetd.Error as error:
    refusals.append(str(error))
say(sessions=len(sessions), feeds=len(feeds), datasets=datasets,
    refusals=refusals)
hear()
"""

_FILL = """
client = datasetd.connect(ADDRESS)
try:
    client.push_dataset(
        "big", [{"x": np.zeros(1 << 20, np.uint8)}] * ARGUMENTS["mib"])
    say(refusal=None)
except datasetd.Error as error:
    say(refusal=str(error))
hear()
"""

_WISH = """
client = datasetd.connect(ADDRESS)
dataset = client.get_dataset("victim")
answers = []
for wish in (
    lambda: next(iter(datasetd.DataLoader(
        dataset, batch_size=ARGUMENTS["batch_size"], prefetch=62,
        framework="numpy"))),
    lambda: client.push_dataset(
        "wish", [{"x": np.zeros(1 << 20, np.uint8)}] * 4096),
):
    try:
        wish()
        answers.append("done")
    except datasetd.Error as error:
        answers.append(type(error).__name__)
say(answers=answers)
hear()
"""

# Feeds whose orders need more memory than their slabs.
_ORDERS = """
client = datasetd.connect(ADDRESS)
dataset = client.push_dataset("one", [{"x": np.zeros(1, np.uint8)}])
loaders = []
try:
    while True:
        loader = datasetd.DataLoader(dataset, sampler=[0], batch_size=1 << 18,
                                     prefetch=14, framework="numpy")
        next(iter(loader))
        loaders.append(loader)
except datasetd.Error as error:
    say(num=len(loaders), refusal=str(error))
hear()
"""

_IDLE = """
client = datasetd.connect(ADDRESS)
client.push_dataset("idle", [{"x": np.zeros(1 << 20, np.uint8)}] * 64)
client.close()
say(pushed=True)
hear()
"""


@arena.needs_users
def test_the_shares_as_shipped_leave_room_for_others():
    with arena.Arena(max_sessions=_LIMITS_MAX, max_feeds=_LIMITS_MAX,
                     max_datasets=_LIMITS_MAX, memory_budget_mib=512) as a:
        with a.attack() as measure, a.attacker(
                _TAKE, num=_LIMITS_MAX) as worker:
            said = worker.hear()
        half = _LIMITS_MAX // 2
        assert said["sessions"] <= half
        assert said["feeds"] == half
        assert said["datasets"] == half
        assert [key in text for key, text in zip(
            ("user_limits.max_sessions", "user_limits.max_feeds",
             "user_limits.max_datasets"), said["refusals"])] == [True] * 3
        assert not measure.prober_errors, measure.prober_errors
        a.expect_unhurt(measure)
        # A user who has nothing yet is refused, too.
        with a.attacker(_FILL, uid=arena.ATTACKER_UID + 1,
                        mib=300) as worker:
            assert "user_limits.max_dataset_mib" in worker.hear()["refusal"]
        a.expect_well()


def test_the_daemons_own_user_has_everything():
    # As a daemon that a user starts for itself.
    with arena.Arena(max_sessions=_LIMITS_MAX, memory_budget_mib=512) as a:
        with a.attacker(_FILL, uid=arena.DAEMON_UID, mib=300) as worker:
            assert worker.hear()["refusal"] is None
        a.expect_well()


@pytest.mark.parametrize("is_limited", [False, True])
def test_nobody_evicts_for_a_wish_that_cannot_be_granted(is_limited):
    limit = 256 if is_limited else 0
    with arena.Arena(memory_budget_mib=512, user_limits={
            "max_dataset_mib": limit, "max_slab_mib": limit}) as a:
        with a.attacker(_IDLE, uid=arena.VICTIM_UID) as worker:
            worker.hear()
        with a.attack() as measure, a.attacker(
                _WISH, batch_size=1_000_000) as worker:
            assert worker.hear()["answers"] == ["ResourceExhausted"] * 2
        with a.daemon.connect() as client:
            assert "idle" in {d["name"] for d in client.list_datasets()}
        assert not measure.prober_errors
        a.expect_unhurt(measure)


@arena.needs_users
def test_a_user_has_a_share_of_the_memory_beside_slabs():
    with arena.Arena(memory_budget_mib=512) as a:
        with a.attacker(_IDLE, uid=arena.VICTIM_UID) as worker:
            worker.hear()
        with a.attack() as measure, a.attacker(_ORDERS) as worker:
            said = worker.hear()
            assert "user_limits.max_scratch_mib" in said["refusal"], said
            assert said["num"] == 3
            with a.daemon.connect() as client:
                assert "idle" in {d["name"] for d in client.list_datasets()}
        assert not measure.prober_errors, measure.prober_errors
        a.expect_unhurt(measure)


if __name__ == "__main__":
    harness.main(__file__)
