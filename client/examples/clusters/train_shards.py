"""Trains on shards that are divided over the nodes, anew for each epoch.

    python train_shards.py SHARDS CHECKPOINT [EPOCHS]

SHARDS is a pattern of WebDataset shards with an image and a class in each
sample, on a file system that all nodes see. A node loads its part of the next
epoch while it trains on that of the current one, so that its daemon needs
memory for two. A job that is started again continues after its last checkpoint;
within an epoch it needs as many nodes, and ranks on each, as before.
"""

import concurrent.futures
import os
import sys

import datasetd
import torch
import torch.distributed as dist
from datasetd import transforms as T

_CHECKPOINT_BATCHES = 4


def main(shards, path, epochs=2):
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    client = datasetd.connect()

    # All ranks of a node ask for the same: a copy on each GPU of the daemon, or
    # one in host memory. A loader takes that of its own GPU.
    def load(epoch):
        return client.load_dataset(
            "train",
            "webdataset",
            shards,
            device="each",
            part="node",
            part_epoch=epoch,
        )

    state = None
    epoch = 0
    if os.path.exists(path):
        state = torch.load(path, map_location=device)
        epoch = state["loader"]["epoch"]
    model = optimizer = None
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        part = executor.submit(load, epoch)
        while epoch < epochs:
            dataset = part.result()
            if epoch + 1 < epochs:
                part = executor.submit(load, epoch + 1)
            if model is None:
                model = new_model(dataset, device)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                if state is not None:
                    model.load_state_dict(state["model"])
            loader = datasetd.DataLoader(
                dataset,
                batch_size=8,
                shuffle=True,
                seed=1,
                partition="node",
                reconnect=True,
                transforms=[
                    T.RandomHorizontalFlip(),
                    T.ToDtype("float32", scale=True),
                ],
            )
            # The daemon drops a part that nobody has when it needs memory.
            with dataset, loader:
                if state is None:
                    loader.set_epoch(epoch)
                else:
                    loader.load_state_dict(state["loader"])
                    state = None
                for batch in loader:
                    # A daemon without GPUs hands out host memory.
                    loss = torch.nn.functional.cross_entropy(
                        model(batch.image.to(device)), batch.label.to(device)
                    )
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    trained(batch)
                    if (batch.index + 1) % _CHECKPOINT_BATCHES == 0:
                        save(path, model, loader)
                epoch += 1
                save(path, model, loader)
    dist.destroy_process_group()


def new_model(dataset, device):
    height, width, channels = dataset.fields[0].shape
    return torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(height * width * channels, 10),
        ).to(device)
    )


def trained(batch):
    """Notes the batch's samples, by their field `id`, where $TRAINED names a
    file."""
    path = os.environ.get("TRAINED")
    if path:
        rows = batch.id[: len(batch.id) - batch.num_padding]
        with open(f"{path}.{dist.get_rank()}", "a") as file:
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
