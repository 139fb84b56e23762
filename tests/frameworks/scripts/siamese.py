"""The shape of the Siamese script: the dataset gives pairs, the same digit or
another one, which are made by a batch sampler of sample indices here."""

import json
import sys

import datasetd
import torch
from datasetd import transforms as T
from torch import nn


class PairSampler:
    """Batches of `num_pairs` pairs: indices of both samples, side by side."""

    def __init__(self, labels, num_pairs):
        self.labels = labels
        self.batch_size = num_pairs

    def __len__(self):
        return len(self.labels) // self.batch_size

    def __iter__(self):
        for _ in range(len(self)):
            first = torch.randint(len(self.labels), (self.batch_size,))
            batch = []
            for i in first.tolist():
                same = self.labels == self.labels[i]
                wanted = same if torch.rand(()) < 0.5 else ~same
                others = wanted.nonzero().flatten()
                j = others[torch.randint(len(others), ())].item()
                batch += [i, j]
            yield batch


def pairs(batch):
    images, labels = batch
    return (
        images[0::2],
        images[1::2],
        (labels[0::2] == labels[1::2]).float(),
    )


def main(path):
    torch.manual_seed(1)
    train_set = datasetd.load("mnist", path, split="train")
    labels = torch.as_tensor(train_set.column("label"))
    loader = datasetd.DataLoader(
        train_set,
        batch_size=64,
        batch_sampler=PairSampler(labels, num_pairs=32),
        transforms=[T.ToDtype("float32", scale=True)],
    )
    embed = nn.Sequential(nn.Flatten(), nn.Linear(784, 32))
    judge = nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*embed.parameters(), *judge.parameters()], 0.01)
    criterion = nn.BCEWithLogitsLoss()
    right = total = num_pairs = 0
    for epoch in range(4):
        right = total = 0
        for batch in loader:
            images_1, images_2, targets = pairs(batch)
            outputs = judge((embed(images_1) - embed(images_2)).abs()).squeeze(1)
            loss = criterion(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += ((outputs > 0).float() == targets).sum().item()
            total += len(targets)
        num_pairs += total
    print(
        json.dumps(
            {"steps": len(loader), "pairs": num_pairs, "accuracy": right / total}
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
