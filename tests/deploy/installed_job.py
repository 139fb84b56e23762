"""A job of installed.sh: writes a line for each batch, and what it held.

    installed_job.py FILE [NUM_BATCHES]

Ends after NUM_BATCHES, or, without them, when FILE.stop is there.
"""

import hashlib
import os
import sys

import datasetd
from datasetd import transforms as T


def main(path, num_batches=None):
    client = datasetd.connect()
    dataset = client.load_dataset("cifar", format="cifar10", split="test",
                                  path="/srv/data")
    loader = datasetd.DataLoader(
        dataset, batch_size=50, shuffle=True, seed=3, framework="numpy",
        transforms=[T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()],
        reconnect=True)
    num = 0
    with open(path, "w", encoding="ascii", buffering=1) as lines:
        while True:
            for batch in loader:
                digest = hashlib.sha256(batch[0].tobytes()).hexdigest()[:16]
                lines.write(f"{batch.epoch} {batch.index} {batch[1].sum()} "
                            f"{digest}\n")
                num += 1
                if num_batches == num or (
                        num_batches is None and os.path.exists(path + ".stop")):
                    return


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:]))
    except datasetd.Error as error:
        sys.exit(f"{type(error).__name__}: {error}")
