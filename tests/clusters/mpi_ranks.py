"""Ranks that have MPI alone: mpi_ranks.py ADDRESS CASE. Prints, for each rank,
what came of the case as a line of JSON."""

import json
import sys
import time

import datasetd
import numpy as np
from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()


def loader(dataset, seed=1, **arguments):
    return datasetd.DataLoader(
        dataset, batch_size=4, seed=seed, rank=RANK, world_size=SIZE,
        framework="numpy", **{"shuffle": True, **arguments})


def rows(epoch):
    return [int(i) for batch in epoch for i in batch.indices]


def tell_when_this_waits(rank):
    """Sends `rank` a message when this rank waits for others first."""
    sleep = time.sleep

    def tell_and_sleep(seconds):
        time.sleep = sleep
        COMM.send(RANK, dest=rank)
        sleep(seconds)

    # The package pauses by it between two looks at what has come.
    time.sleep = tell_and_sleep


def equal(dataset):
    """Two epochs and a second loader; one rank comes when all others wait."""
    found = []
    with loader(dataset) as one, loader(dataset, 2) as two:
        if RANK == 1:
            waiting = {COMM.recv() for _ in range(SIZE - 1)}
            assert len(waiting) == SIZE - 1
        else:
            tell_when_this_waits(1)
        found += [rows(one), rows(one), rows(two)]
    return found


def differ(dataset):
    with loader(dataset, 1 if RANK == 0 else 7) as one:
        next(iter(one))


def weights(dataset):
    """All ranks change them, and then all but one."""
    with loader(dataset, shuffle=False, weights=range(40)) as one:
        found = [len(rows(one))]
        one.set_weights(range(1, 41))
        found.append(len(rows(one)))
        if RANK != 2:
            one.set_weights(range(2, 42))
        try:
            found.append(len(rows(one)))
        except datasetd.FailedPrecondition as error:
            found.append(str(error))
    return found


def barrier(dataset):
    """Not every rank comes to its first iter() before the others go on."""
    with loader(dataset) as one:
        if RANK == 0:
            first = next(iter(one)).indices.tolist()
            COMM.Barrier()
        else:
            COMM.Barrier()
            first = next(iter(one)).indices.tolist()
        again = rows(one)
    return len(first), len(again)


def partition(dataset):
    number = RANK * 2 // SIZE
    with loader(dataset, partition=(number, 2)) as one:
        return one.num_samples, len(one), rows(one)


def one_without_partition(dataset):
    with loader(dataset, **({"partition": (1, 2)} if RANK else {})) as one:
        rows(one)


def main(address, case):
    with datasetd.connect(address) as client:
        name = "whole"
        number = 0
        if "partition" in case:
            number = RANK * 2 // SIZE
            name = f"whole.{number}of2"
        # Parts of 40 and 30 samples.
        data = np.arange(40 - 10 * number, dtype=np.float32)[:, None]
        data = data + 1000 * number
        dataset = client.push_dataset(name, {"x": data}, if_exists="same")
        try:
            result = globals()[case](dataset)
        except datasetd.Error as error:
            result = f"{type(error).__name__}: {error}"
    print(json.dumps([RANK, result]), flush=True)


main(*sys.argv[1:])
