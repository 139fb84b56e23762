"""The shape of an evaluation in a script that trains under two processes: the
loader of the test set as it stands, with all samples, and divided exactly."""

import json
import sys

import datasetd
import torch
import torch.distributed as dist


def count(loader):
    return sum(len(labels) for _, labels in loader)


def main(path):
    dist.init_process_group("gloo")
    test_set = datasetd.load("mnist", path, split="test")
    whole = datasetd.DataLoader(test_set, batch_size=32, world_size=1)
    exact = torch.tensor(
        count(datasetd.DataLoader(test_set, batch_size=32, pad=False))
    )
    dist.all_reduce(exact)
    share = datasetd.DataLoader(test_set, batch_size=32)
    print(
        json.dumps(
            {
                "whole": count(whole),
                "exact": exact.item(),
                "share": count(share),
            }
        )
    )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
