"""The shape of the Hogwild script: the parent loads the dataset and hands it to
processes that train one shared model."""

import json
import sys

import datasetd
import torch
import torch.multiprocessing as mp
from datasetd import transforms as T
from torch import nn
from torch.nn import functional as F

TRANSFORMS = [T.ToDtype("float32", scale=True), T.Normalize(0.1307, 0.3081)]


def train(rank, model, dataset, losses):
    torch.manual_seed(1 + rank)
    loader = datasetd.DataLoader(
        dataset, batch_size=64, shuffle=True, transforms=TRANSFORMS
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    for _ in range(2):
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
    losses.put(loss.item())


def test(model, dataset):
    loader = datasetd.DataLoader(dataset, batch_size=100, transforms=TRANSFORMS)
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            correct += model(data).argmax(1).eq(target).sum().item()
    return correct / len(loader.dataset)


def main(path):
    mp.set_start_method("spawn")
    train_set = datasetd.load("mnist", path, split="train")
    test_set = datasetd.load("mnist", path, split="test")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(1))
    model.share_memory()
    losses = mp.Queue()
    processes = [
        mp.Process(target=train, args=(rank, model, train_set, losses))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    num_losses = len([losses.get(timeout=120) for _ in processes])
    for process in processes:
        process.join()
    print(
        json.dumps(
            {
                "codes": [process.exitcode for process in processes],
                "losses": num_losses,
                "accuracy": test(model, test_set),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
