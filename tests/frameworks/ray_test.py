"""docs/frameworks.md: Ray Train and Tune, on a cluster of two nodes."""

import contextlib
import os
import re

from examples import losses
from ray.cluster_utils import Cluster


@contextlib.contextmanager
def _cluster(environment):
    """Two nodes of one CPU each, whose workers have `environment`."""
    before = dict(os.environ)
    environment = {**environment, "RAY_DEDUP_LOGS": "0"}
    os.environ.update(environment)
    node = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**node, "include_dashboard": False},
    )
    try:
        cluster.add_node(**node)
        cluster.wait_for_nodes()
        yield {**environment, "RAY_ADDRESS": cluster.address}
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def test_train_goes_on_after_its_workers_died(page):
    ddp, expected = page.run("DistributedDataParallel", ranks=2, folder="ddp")
    printed, batches = page.run("Ray Train", kill=(1, 4), around=_cluster)
    places = set()
    for rank in range(2):
        whole, got = expected.of(rank), batches.of(rank)
        # All workers died in place of batch 4 of epoch 1.
        killed = 7 + 4
        assert got[:killed] == whole[:killed]
        # They went on at the last checkpoint that Ray had heard of.
        places.add(got[killed][:2])
        assert got[killed:] == whole[whole.index(got[killed]) :]
    assert len(places) == 1 and places <= {(0, 2), (0, 5), (1, 2)}
    printed = re.findall(r"loss \d\.\d+$", printed, re.MULTILINE)
    assert set(printed) == set(losses(ddp))


def test_prepare_data_loader_leaves_shares_as_they_are(page):
    _, batches = page.run(
        "Ray Train",
        around=_cluster,
        changes=[
            (
                "for batch in loader:",
                "for batch in ray.train.torch.prepare_data_loader("
                "loader.as_torch(), move_to_device=False):",
            )
        ],
    )
    batches.expect_each_sample_once(num_epochs=2, world_size=2)


def test_trials_of_tune_share_a_dataset(page, daemon):
    printed, batches = page.run("Ray Tune", around=_cluster)
    assert "best {'lr':" in printed
    trials = batches.by_loader()
    assert len(trials) == 3
    for trial in trials:
        trial.expect_each_sample_once(num_epochs=2, world_size=1)
    with daemon.connect() as client:
        assert [d["name"] for d in client.list_datasets()] == ["cifar10"]
