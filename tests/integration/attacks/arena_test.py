"""The arena itself: it sees a stall, a refusal and memory that grows."""

import signal

import pytest

from tests.testing import arena
from tests.testing import daemon_harness as harness

_STOP_SECONDS = 1.5
_NUM_SAMPLES = 40_000

_PUSHER = """
client = datasetd.connect(ADDRESS)
rows = np.zeros((ARGUMENTS["num_samples"], 3072), np.uint8)
client.push_dataset("mine", ({"x": row} for row in rows))
say(uid=os.getuid(), gid=os.getgid(), groups=os.getgroups())
hear()
"""


def test_an_attack_is_measured():
    with arena.Arena() as a:
        with a.attack() as quiet:
            a.expect_well()
        assert not quiet.prober_errors
        assert quiet.victim_stall_seconds < _STOP_SECONDS
        assert quiet.prober_wait_seconds < _STOP_SECONDS


def test_a_stopped_daemon_is_a_stall():
    with arena.Arena() as a:
        with a.attack() as measure:
            a.daemon.stop()
            harness.pause(_STOP_SECONDS)
            a.daemon.terminate(signal.SIGCONT)
        assert measure.victim_stall_seconds > _STOP_SECONDS / 2
        with pytest.raises(AssertionError, match="victim_stall_seconds"):
            a.expect_unhurt(measure, max_stall_seconds=_STOP_SECONDS / 2)
        a.expect_well()


@arena.needs_users
def test_attackers_are_another_user():
    with arena.Arena() as a:
        with a.attack() as measure, a.attacker(
                _PUSHER, num_samples=_NUM_SAMPLES) as pusher:
            said = pusher.hear()
            assert said["uid"] == arena.ATTACKER_UID
            assert said["groups"] in ([], [said["gid"]])
        size_bytes = _NUM_SAMPLES * 3072
        assert measure.peak_bytes > size_bytes
        # The dataset is still there.
        with pytest.raises(AssertionError, match="memory is back"):
            a.expect_unhurt(measure, max_left_bytes=size_bytes // 2,
                            timeout=1.0)
        with a.daemon.connect() as client:
            client.unload_dataset("mine")
        a.expect_unhurt(measure, max_left_bytes=size_bytes // 2)


if __name__ == "__main__":
    harness.main(__file__)
