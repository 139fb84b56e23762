"""A user whose pushes begin and do not go on."""

from tests.testing import arena
from tests.testing import daemon_harness as harness

_NUM_PUSHES = 24
_MAX_PUSHES_PER_USER = 4

_FLOOD = """
import queue
never = threading.Event()
class Slow:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        if index == 2:
            never.wait()
        return {"x": np.full(1 << 20, index, np.uint8)}
refusals = queue.Queue()
def push(i):
    client = datasetd.connect(ADDRESS)
    try:
        client.push_dataset(f"flood{i}", Slow())
    except datasetd.Error as error:
        refusals.put(f"{type(error).__name__}: {error}")
threads = [threading.Thread(target=push, args=(i,), daemon=True)
           for i in range(ARGUMENTS["num"])]
for thread in threads:
    thread.start()
say(refusals=[refusals.get() for _ in range(ARGUMENTS["num_refused"])])
hear()
say(num_left=sum(thread.is_alive() for thread in threads))
hear()
"""

_PUSH = """
client = datasetd.connect(ADDRESS)
for i in range(8):
    dataset = client.push_dataset(f"mine{i}",
                                  {"x": np.full((10, 5), i, np.uint8)})
    say(num_samples=dataset.num_samples)
"""


def test_stalled_pushes_leave_places_to_others():
    with arena.Arena() as a:
        with a.attack() as measure, a.attacker(
                _FLOOD, num=_NUM_PUSHES,
                num_refused=_NUM_PUSHES - _MAX_PUSHES_PER_USER) as worker:
            refusals = worker.hear()["refusals"]
            for text in refusals:
                assert text.startswith("ResourceExhausted: pushes: "), text
                assert "4 of one user" in text
            # Another user's pushes come through, while the first ones stand.
            if arena.IS_ROOT:
                with a.attacker(_PUSH, uid=arena.VICTIM_UID) as victim:
                    for _ in range(8):
                        assert victim.hear()["num_samples"] == 10
            worker.tell()
            assert worker.hear()["num_left"] == _MAX_PUSHES_PER_USER
        assert measure.victim_batches > 0
        assert measure.prober_rounds > 0
        assert not measure.prober_errors, measure.prober_errors
        a.expect_unhurt(measure)


if __name__ == "__main__":
    harness.main(__file__)
