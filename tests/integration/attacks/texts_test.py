"""Texts that the daemon keeps, lists that it gives, and the list on its disk."""

import os

from tests.testing import arena
from tests.testing import daemon_harness as harness

_MIB = 1 << 20

# A dataset of one byte each, which says much of itself.
_TALK = """
client = datasetd.connect(ADDRESS)
refused, kept = [], 0
for i in range(ARGUMENTS["num"]):
    try:
        client.push_dataset(
            f"talk{i}", [{"x": np.zeros(1, np.uint8)}],
            class_names=[f"{j:0{ARGUMENTS['length']}d}"
                         for j in range(ARGUMENTS["num_names"])])
        kept += 1
    except datasetd.Error as error:
        refused.append([type(error).__name__, str(error)])
say(refused=refused, kept=kept)
hear()
"""

_MANY = """
client = datasetd.connect(ADDRESS)
for i in range(ARGUMENTS["num"]):
    client.push_dataset(f"many{i:04}", [{"x": np.zeros(1, np.uint8)}],
                        class_names=["cat", "dog"])
datasets = client.list_datasets()
names = [d["name"] for d in datasets]
say(num=len([n for n in names if n.startswith("many")]),
    is_sorted=names == sorted(set(names)),
    class_names=[d["class_names"] for d in datasets if d["class_names"]],
    described=client.get_dataset("many0000").class_names)
hear()
"""

def test_names_of_classes_are_limited_and_counted():
    # uncounted_memory of the review: 2.2 GiB for 60 bytes of data.
    with arena.Arena(text_budget_mib=16) as a:
        with a.attack() as measure:
            with a.attacker(_TALK, num=2, num_names=60_000,
                            length=60) as worker:
                said = worker.hear()
            assert said["kept"] == 0
            assert all(name == "InvalidArgument" and "class_names" in text
                       for name, text in said["refused"]), said["refused"]
            with a.attacker(_TALK, num=20, num_names=60_000,
                            length=10) as worker:
                said = worker.hear()
        assert 0 < said["kept"] <= 6
        assert all(name == "ResourceExhausted" and "of dataset 'talk" in text
                   for name, text in said["refused"]), said["refused"][:2]
        if arena.IS_ROOT:
            # Half of the budget, which is for all.
            assert "max_text_mib" in said["refused"][0][1]
        assert measure.peak_bytes < 120 * _MIB
        assert not measure.prober_errors
        a.expect_unhurt(measure)


def test_lists_come_in_pages_and_without_the_texts():
    with arena.Arena(user_limits={"max_datasets": 0}) as a:
        with a.attack() as measure:
            with a.attacker(_MANY, num=600) as worker:
                said = worker.hear()
        assert said["num"] == 600
        assert said["is_sorted"]
        assert said["class_names"] == []
        assert said["described"] == ["cat", "dog"]
        assert not measure.prober_errors
        a.expect_unhurt(measure)


def test_one_user_cannot_have_others_datasets_forgotten():
    # full_manifest of the review: specs of 1 MB, 64 of them.
    with arena.Arena(user_limits={"max_datasets": 0}) as a:
        root, name = os.path.split(a.path("data/victim"))
        manifest = os.path.join(a.path("state"), "datasets.manifest")
        with a.session() as session:

            def load(dataset, **spec):
                return session.call("DatasetService.LoadDataset", spec={
                    "name": dataset, "format": "cifar10", "split": "test",
                    "path": f"{root}/{name}", **spec})

            # The way there is forgotten, the file is not.
            for i in range(70):
                answer = load(f"path{i}", path=root + "/." * 500_000 + "/" +
                              name)
                assert answer["code"] == 0, answer["message"]
                assert answer["responses"][-1]["dataset"]["path"] == (
                    f"{root}/{name}")
            assert os.path.getsize(manifest) < _MIB
            for spec in ({"path": "/" + "x" * 5000}, {"split": "x" * 300},
                         {"options": {"key": "x" * 70_000}},
                         {"pretransforms": {"x" * 70_000: {}}}):
                answer = load("long", **spec)
                assert answer["code"] == 3, spec
                assert "expected at most" in answer["message"]
        a.pause_victims()
        a.daemon.kill()
        a.daemon.start()
        with a.daemon.connect() as client:
            names = {d["name"] for d in client.list_datasets()}
            assert {"victim", "path0", "path69"} <= names
        a.resume_victims()
        a.expect_well()


if __name__ == "__main__":
    harness.main(__file__)
