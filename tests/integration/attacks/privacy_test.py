"""One user learns nothing of another's private datasets."""

import urllib.request

from tests.testing import arena, ports
from tests.testing import daemon_harness as harness

_OWNER = """
client = datasetd.connect(ADDRESS)
spec = {"name": "secret", "format": "cifar10", "split": "test",
        "path": ARGUMENTS["path"], "private": True}
client._session.call_text("load_dataset", json.dumps(spec).encode(),
                          datasetd._connection.library.ProgressFunction(0), None)
dataset = client.get_dataset("secret")
loader = datasetd.DataLoader(dataset, batch_size=10, framework="numpy",
                             seed=4711, name="plan-of-secret")
next(iter(loader))
say(opened=True)
hear()
"""

_SPY = """
import types
from datasetd._datasets.reading import read
client = datasetd.connect(ADDRESS)
def ask(function, *arguments, **options):
    try:
        function(*arguments, **options)
        return "done"
    except datasetd.Error as error:
        return f"{type(error).__name__}: {error}"
answers = {}
for name in ("secret", "absent"):
    answers[name] = [text.replace(name, "NAME") for text in (
        ask(client.get_dataset, name),
        ask(client.unload_dataset, name),
        ask(client.unload_dataset, name, force=True),
        ask(client._session.call, "ReleaseDataset", name=name),
        ask(client._session.call, "ExplainTransforms", dataset=name),
        ask(read, types.SimpleNamespace(
            name=name, content_hash="", _session=client._session),
            np.zeros(1, np.int64), "numpy"),
    )]
def big(i):
    return ask(client.push_dataset, f"big{i}",
               [{"x": np.zeros(ARGUMENTS["bytes"], np.uint8)}] * 4096)
say(answers=answers, exhausted=big(0), feeds=client.list_feeds(),
    datasets=[d["name"] for d in client.list_datasets()], uid=os.getuid())
hear()
"""


@arena.needs_users
def test_private_names_are_not_told():
    port = ports.free_port()
    with arena.Arena(metrics_port=port, memory_budget_mib=256,
                     user_limits={"max_dataset_mib": 0}) as a:
        with a.attacker(_OWNER, uid=arena.VICTIM_UID,
                        path=a.path("data/victim")) as owner:
            owner.hear()
            with a.attack() as measure, a.attacker(
                    _SPY, bytes=100_000) as spy:
                said = spy.hear()
            page = urllib.request.urlopen(
                f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        assert said["answers"]["secret"] == said["answers"]["absent"]
        assert all(text.startswith("NotFound")
                   for text in said["answers"]["secret"]), said["answers"]
        assert said["exhausted"].startswith("ResourceExhausted")
        assert "secret" not in str(said["exhausted"])
        assert "secret" not in said["datasets"]
        assert said["feeds"], "the victim's are there"
        for feed in said["feeds"]:
            assert "secret" not in feed["dataset"] + feed["name"]
            if int(feed["uid"]) != said["uid"]:
                assert int(feed["pid"]) == 0 and int(feed["seed"]) == 0
        assert "secret" not in page
        assert 'datasetd_private_datasets{device="cpu"} 1' in page
        assert 'datasetd_private_dataset_feeds{device="cpu"} 1' in page
        assert not measure.prober_errors
        a.expect_unhurt(measure)


if __name__ == "__main__":
    harness.main(__file__)
