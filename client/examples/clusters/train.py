"""Trains on all ranks of a job, and continues from its last checkpoint.

    python train.py DATA CHECKPOINT [EPOCHS]

DATA is a directory of CIFAR-10's binary version with test_batch.bin. Each
node's ranks share the daemon at $DATASETD_ADDRESS. A job that is started again,
by torchrun, Slurm or by hand, continues after its last checkpoint, also with
another number of ranks.
"""

import os
import sys

import datasetd
import torch
import torch.distributed as dist
from datasetd import transforms as T

_CHECKPOINT_BATCHES = 4


def main(data, path, epochs=2):
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    dataset = load(datasetd.connect(), data)
    loader = datasetd.DataLoader(
        dataset,
        batch_size=8,
        shuffle=True,
        seed=1,
        reconnect=True,
        transforms=[
            T.RandomHorizontalFlip(),
            T.ToDtype("float32", scale=True),
        ],
    )
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10)
    ).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    epoch = 0
    if os.path.exists(path):
        state = torch.load(path, map_location=device)
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["loader"])
        epoch = state["loader"]["epoch"]
    while epoch < epochs:
        for batch in loader:
            # A daemon without GPUs hands out host memory.
            images, labels = (tensor.to(device) for tensor in batch)
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained(batch)
            if (batch.index + 1) % _CHECKPOINT_BATCHES == 0:
                save(path, model, loader)
        epoch += 1
        save(path, model, loader)
    loader.close()
    dist.destroy_process_group()


def load(client, data):
    """All ranks of a node ask for the same: a copy on each GPU of the daemon,
    or one in host memory. A loader takes that of its own GPU."""
    return client.load_dataset("train", "cifar10", data, "test", device="each")


def trained(batch):
    """Notes the batch's samples where $TRAINED names a file."""
    path = os.environ.get("TRAINED")
    if path:
        rows = batch.indices[: len(batch.indices) - batch.num_padding]
        rank = dist.get_rank()
        with open(f"{path}.{rank}", "a") as file:
            file.write(f"{batch.epoch} {batch.index} {rows.tolist()}\n")


def save(path, model, loader):
    """Replaces the checkpoint, which is of all ranks."""
    dist.barrier()  # every rank has trained what the state says
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "loader": loader.state_dict()}
        torch.save(state, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
