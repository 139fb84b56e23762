"""Reads batches of a dataset, in any framework, and says how fast they came.

    read_batches.py NAME [--seed 1] [--batch_size 512] [--batches 500]

NAME is resident at the daemon of $DATASETD_ADDRESS. Looks at no pixel, so that
it needs no framework that knows the daemon's device.
"""

import argparse
import time

import datasetd
from datasetd import transforms as T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--batches", type=int, default=500)
    arguments = parser.parse_args()
    dataset = datasetd.connect().get_dataset(arguments.name)
    with datasetd.DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        shuffle=True,
        seed=arguments.seed,
        drop_last=True,
        transforms=[
            T.RandomCrop(32, padding=2, padding_mode="reflect"),
            T.AlternatingFlip(),
            T.ToDtype("float16", scale=True),
        ],
        framework="dlpack",
        name="read_batches.py",
    ) as loader:
        num_batches = num_samples = 0
        start = time.monotonic()
        while num_batches < arguments.batches:
            for batch in loader:
                num_batches += 1
                num_samples += batch.num_samples
                if num_batches == arguments.batches:
                    break
        seconds = time.monotonic() - start
        print(
            f"read_batches.py seed={arguments.seed}: "
            f"{num_samples / seconds:.0f} samples/s, {num_batches} batches, "
            f"waited {loader.waited_seconds:.3f} s of {seconds:.3f} s"
        )


if __name__ == "__main__":
    main()
