"""The shape of the DistributedDataParallel tutorial: DistributedSampler, the
batch size from a first batch, a snapshot, and a job that goes on from it."""

import json
import os
import sys

import datasetd
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

SNAPSHOT = "snapshot.pt"


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every):
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.losses = []
        if os.path.exists(SNAPSHOT):
            snapshot = torch.load(SNAPSHOT)
            model.load_state_dict(snapshot["model"])
            self.epochs_run = snapshot["epoch"] + 1
        self.model = DistributedDataParallel(model)

    def run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(f"Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(source), targets)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self.run_epoch(epoch)
            if dist.get_rank() == 0 and epoch % self.save_every == 0:
                torch.save(
                    {"model": self.model.module.state_dict(), "epoch": epoch},
                    SNAPSHOT,
                )


def main(max_epochs):
    dist.init_process_group("gloo")
    random = np.random.default_rng(1)
    train_set = datasetd.push(
        "ddp-tutorial",
        {
            "x": random.random((512, 20), np.float32),
            "y": random.random((512, 1), np.float32),
        },
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    train_data = datasetd.DataLoader(
        train_set,
        batch_size=32,
        pin_memory=True,
        shuffle=False,
        sampler=DistributedSampler(train_set),
    )
    trainer = Trainer(model, train_data, optimizer, save_every=1)
    trainer.train(max_epochs)
    if dist.get_rank() == 0:
        print(json.dumps({"losses": trainer.losses}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
