"""The shape of a first MNIST script: one function trains, one tests."""

import json
import sys

import datasetd
import torch
from datasetd import transforms as T
from torch import nn
from torch.nn import functional as F


def train(model, loader, optimizer, epoch):
    model.train()
    seen = 0
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        seen += len(data)
        if batch_idx % 10 == 0:
            print(
                f"Train Epoch: {epoch} [{batch_idx * len(data)}/"
                f"{len(loader.dataset)} ({100.0 * batch_idx / len(loader):.0f}%)]"
            )
    return seen


def test(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            pred = model(data).argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    return correct / len(loader.dataset)


def main(path):
    torch.manual_seed(1)
    transforms = [T.ToDtype("float32", scale=True), T.Normalize(0.1307, 0.3081)]
    train_loader = datasetd.DataLoader(
        datasetd.load("mnist", path, split="train"),
        batch_size=64,
        shuffle=True,
        transforms=transforms,
    )
    test_loader = datasetd.DataLoader(
        datasetd.load("mnist", path, split="test"),
        batch_size=100,
        transforms=transforms,
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(1))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    for epoch in range(1, 4):
        seen = train(model, train_loader, optimizer, epoch)
        accuracy = test(model, test_loader)
        scheduler.step()
    print(json.dumps({"seen": seen, "accuracy": accuracy}))


if __name__ == "__main__":
    main(sys.argv[1])
