"""Cache entries that another user's content could take the place of."""

import os

from tests.testing import arena
from tests.testing import daemon_harness as harness

_NUM = 50

_PUSH = """
client = datasetd.connect(ADDRESS)
value = ARGUMENTS["value"]
dataset = client.push_dataset(
    ARGUMENTS["name"], [{"x": np.full(100, value, np.uint8)}
                        for _ in range(ARGUMENTS["num"])])
say(hash=dataset.content_hash, spec_id=dataset.spec_id)
hear()
"""

_GET = """
client = datasetd.connect(ADDRESS)
while True:
    found = {d["name"]: d for d in client.list_datasets()}
    state = found[ARGUMENTS["name"]]["state"].replace("DATASET_STATE_", "")
    if state != "LOADING":
        break
    time.sleep(0.02)
error = found[ARGUMENTS["name"]]["error"]
values = []
if state == "READY":
    dataset = client.get_dataset(ARGUMENTS["name"])
    with datasetd.DataLoader(dataset, batch_size=10,
                             framework="numpy") as loader:
        values = sorted({int(v) for batch in loader for v in batch[0].ravel()})
say(state=state, error=error, values=values)
hear()
"""


@arena.needs_users
def test_a_push_comes_back_as_its_owners_or_not_at_all():
    with arena.Arena() as a:
        cache = a.path("cache")

        def push(name, uid, value):
            with a.attacker(_PUSH, uid=uid, name=name, value=value,
                            num=_NUM) as worker:
                said = worker.hear()
            path = os.path.join(cache, said["spec_id"] + ".cache")
            harness.poll_until(lambda: os.path.exists(path), "it is stored")
            return said

        # Equal samples of two users are two entries.
        own = push("own", arena.VICTIM_UID, 7)
        with a.attack() as measure:
            copy = push("copy", arena.ATTACKER_UID, 7)
        a.expect_unhurt(measure)
        assert own["hash"] == copy["hash"]
        assert own["spec_id"] != copy["spec_id"]
        assert len(own["hash"]) == len(own["spec_id"]) == 64

        a.pause_victims()
        a.daemon.kill()
        # The only entry left with the content that the victim's list names is
        # the attacker's.
        os.unlink(os.path.join(cache, own["spec_id"] + ".cache"))
        a.daemon.start()
        with a.attacker(_GET, uid=arena.VICTIM_UID, name="own") as worker:
            said = worker.hear()
        assert said["state"] == "FAILED", said
        assert "push them again" in said["error"]
        # The attacker's own is there, and right.
        with a.attacker(_GET, name="copy") as worker:
            said = worker.hear()
        assert (said["state"], said["values"]) == ("READY", [7]), said
        a.resume_victims()
        a.expect_well()


if __name__ == "__main__":
    harness.main(__file__)
