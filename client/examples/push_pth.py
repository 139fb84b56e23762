"""Pushes the tensors of a .pth file to a daemon and reads batches of them.

    python3 push_pth.py FILE [--name pth] [--fields image,label] [--epochs 1]

FILE was written by torch.save and holds a dict, tuple or list of tensors [N,
...]; images are [N, C, H, W] or [N, H, W, C]. The daemon is at --address, else
at $DATASETD_ADDRESS, else the system's.
"""

import argparse
import time

import datasetd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", help="the .pth file")
    parser.add_argument("--address", default=None)
    parser.add_argument("--name", default="pth")
    parser.add_argument("--fields", default=None, help="a,b")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    arguments = parser.parse_args()

    client = datasetd.connect(arguments.address)
    dataset = client.push_dataset(
        arguments.name,
        datasetd.sources.torch_file(
            arguments.path, arguments.fields and arguments.fields.split(",")
        ),
        progress=True,
        if_exists="keep",
    )
    print(f"push_pth.py {dataset!r}")
    with datasetd.DataLoader(
        dataset, batch_size=arguments.batch_size, shuffle=True, seed=0
    ) as loader:
        for epoch in range(arguments.epochs):
            begin = time.perf_counter()
            count = sum(len(batch[0]) for batch in loader)
            seconds = time.perf_counter() - begin
            print(f"epoch {epoch}: {count} samples, {seconds:.2f} s")


if __name__ == "__main__":
    main()
