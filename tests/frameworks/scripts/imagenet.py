"""The shape of the ImageNet script under two processes: samplers for training
and validation, and a loader of the samples that the validation sampler leaves
over, so that the accuracy counts each image once."""

import json
import sys

import datasetd
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Subset
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms

NORMALIZE = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64)
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()


def accuracy(output, target):
    correct = output.argmax(1).eq(target).float().sum()
    return (correct * 100.0 / target.size(0)).item()


def train(loader, model, criterion, optimizer):
    model.train()
    for images, target in loader:
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(val_loader, aux_loader, model):
    top1 = AverageMeter()

    def run(loader):
        with torch.no_grad():
            for images, target in loader:
                top1.update(accuracy(model(images), target), images.size(0))

    model.eval()
    run(val_loader)
    top1.all_reduce()
    sampled = len(val_loader.sampler) * dist.get_world_size()
    if sampled < len(val_loader.dataset):
        run(aux_loader)
    return top1.sum / top1.count, top1.count


def main(path):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train_dataset = datasetd.load("image_folder", path, split="train")
    val_dataset = datasetd.load("image_folder", path, split="val")
    eval_transforms = transforms.Compose(
        [
            transforms.Resize(36),
            transforms.CenterCrop(32),
            transforms.ToTensor(),
            NORMALIZE,
        ]
    )
    train_sampler = DistributedSampler(train_dataset)
    val_sampler = DistributedSampler(
        val_dataset, shuffle=False, drop_last=True
    )
    train_loader = datasetd.DataLoader(
        train_dataset,
        batch_size=16,
        shuffle=(train_sampler is None),
        sampler=train_sampler,
        transforms=transforms.Compose(
            [
                transforms.RandomResizedCrop(32, scale=(0.5, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                NORMALIZE,
            ]
        ),
    )
    val_loader = datasetd.DataLoader(
        val_dataset,
        batch_size=16,
        shuffle=False,
        sampler=val_sampler,
        transforms=eval_transforms,
    )
    leftover = range(
        len(val_sampler) * dist.get_world_size(), len(val_dataset)
    )
    aux_loader = datasetd.DataLoader(
        Subset(val_dataset, leftover),
        batch_size=16,
        world_size=1,
        transforms=eval_transforms,
    )
    model = DistributedDataParallel(
        nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer)
        acc1, count = validate(val_loader, aux_loader, model)
    print(json.dumps({"rank": dist.get_rank(), "acc1": acc1, "count": count}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
