"""The shape of a CIFAR-10 script with torchvision's transforms, a checkpoint of
the best accuracy, and a progress line from running totals."""

import json
import os
import sys

import datasetd
import torch
from torch import nn
from torchvision import transforms

MEAN_STD = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def run(model, loader, criterion, optimizer=None):
    model.train(optimizer is not None)
    total = correct = 0
    with torch.set_grad_enabled(optimizer is not None):
        for _, (inputs, targets) in enumerate(loader):
            outputs = model(inputs)
            loss = criterion(outputs, targets)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
    return correct, total


def main(path):
    torch.manual_seed(1)
    transform_train = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(*MEAN_STD),
        ]
    )
    transform_test = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize(*MEAN_STD)]
    )
    trainset = datasetd.load("cifar10", path, split="train")
    testset = datasetd.load("cifar10", path, split="test")
    trainloader = datasetd.DataLoader(
        trainset, batch_size=128, shuffle=True, transforms=transform_train
    )
    testloader = datasetd.DataLoader(
        testset, batch_size=100, shuffle=False, transforms=transform_test
    )
    model = nn.Sequential(
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 10)
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    best_acc = 0.0
    for epoch in range(2):
        _, num_trained = run(model, trainloader, criterion, optimizer)
        correct, total = run(model, testloader, criterion)
        if 100.0 * correct / total > best_acc:
            best_acc = 100.0 * correct / total
            os.makedirs("checkpoint", exist_ok=True)
            torch.save(
                {"net": model.state_dict(), "acc": best_acc, "epoch": epoch},
                "checkpoint/ckpt.pth",
            )
        scheduler.step()
    print(
        json.dumps(
            {
                "trained": num_trained,
                "tested": total,
                "accuracy": torch.load("checkpoint/ckpt.pth")["acc"],
                "classes": list(trainset.classes),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
