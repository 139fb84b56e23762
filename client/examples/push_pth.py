"""Serves the tensors of a .pth file, which the daemon need not read itself.

    python3 push_pth.py FILE [--name pth] [--fields image,label] [--epochs 1]

FILE holds what torch.save wrote: a dict of tensors of equal length, or a tuple or
list of them, [N, ...] each; images are [N, C, H, W] or [N, H, W, C]. The daemon is
the one at --address, else $DATASETD_ADDRESS, else the system's.
"""

import argparse
import inspect
import time

import torch

import datasetd


def load_tensors(path: str) -> dict:
    # Tensors only: an unpickler that knows no other classes, where torch has it.
    restricted = "weights_only" in inspect.signature(torch.load).parameters
    arguments = {"weights_only": True} if restricted else {}
    content = torch.load(path, map_location="cpu", **arguments)
    if isinstance(content, torch.Tensor):
        content = (content,)
    if isinstance(content, (tuple, list)):
        names = ["image", "label"] + [f"field_{i}" for i in range(2, 64)]
        content = dict(zip(names, content))
    tensors = {
        name: value
        for name, value in content.items()
        if isinstance(value, torch.Tensor) and value.dim() > 0
    }
    if not tensors or len({len(value) for value in tensors.values()}) != 1:
        raise SystemExit(
            f"{path}: expected tensors of equal length, found "
            + ", ".join(f"{k} {tuple(v.shape)}" for k, v in tensors.items())
        )
    return tensors


class Rows(torch.utils.data.Dataset):
    """Sample i is row i of every tensor."""

    def __init__(self, tensors: dict) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, i: int) -> dict:
        return {name: value[i] for name, value in self.tensors.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", help="the .pth file")
    parser.add_argument("--address", default=None)
    parser.add_argument("--name", default="pth")
    parser.add_argument("--fields", default=None, help="of a dict: a,b")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    arguments = parser.parse_args()

    client = datasetd.connect(arguments.address)
    try:
        dataset = client.get_dataset(arguments.name)
    except datasetd.NotFound:
        dataset = client.push_dataset(
            arguments.name,
            Rows(load_tensors(arguments.path)),
            fields=arguments.fields and arguments.fields.split(","),
            progress=True,
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
