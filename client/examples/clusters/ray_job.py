"""A task of Ray on each node draws batches of its share from its node's daemon.

    python ray_job.py DATA

DATA is a directory of CIFAR-10's binary version with test_batch.bin, on every
node. The first task on a node starts its daemon, which is no child of the
worker: it outlives it, and ends when no task has used it for
$DATASETD_IDLE_SECONDS.
"""

import os
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


# Ray shows a task only the GPUs that it asked for, and processes that see other
# GPUs get another daemon. With RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1
# all see all of them; ray.get_runtime_context().get_accelerator_ids() names
# the task's.
@ray.remote(num_cpus=1)
def draw(data, rank, world_size):
    import datasetd

    dataset = datasetd.load("cifar10", data, "test")
    loader = datasetd.DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        seed=1,
        rank=rank,
        world_size=world_size,
        framework="numpy",
        reconnect=True,
    )
    with loader:
        rows = [
            row
            for batch in loader
            for row in batch.indices[
                : len(batch.indices) - batch.num_padding
            ].tolist()
        ]
    return {
        "rows": rows,
        "daemon": dataset.client.status()["pid"],
        "address": dataset.client.address,
        "worker": os.getpid(),
    }


def run(data, tasks_per_node=1):
    """Returns what the task of each rank did."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    size = len(nodes) * tasks_per_node
    return ray.get(
        [
            draw.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    nodes[rank % len(nodes)], soft=False
                )
            ).remote(data, rank, size)
            for rank in range(size)
        ]
    )


if __name__ == "__main__":
    ray.init()
    for result in run(*sys.argv[1:]):
        print(result["address"], len(result["rows"]))
