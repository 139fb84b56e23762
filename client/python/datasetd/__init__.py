"""Batches of resident datasets, from the datasetd daemon.

    import datasetd
    from datasetd import transforms as T

    client = datasetd.connect()
    dataset = client.load_dataset("cifar10-train", format="cifar10",
                                  path="cifar-10-batches-bin", split="train")
    loader = datasetd.DataLoader(dataset, batch_size=512, shuffle=True,
                                 transforms=[T.RandomCrop(32, padding=4),
                                             T.RandomHorizontalFlip(),
                                             T.ToDtype("float16", scale=True)])
    for images, labels in loader:
        ...
"""

from . import transforms
from ._client import BadSample, Client, Dataset, Field, LoadEstimate, connect
from ._frameworks import Tensor
from ._loader import Batch, DataLoader
from ._local import LocalDaemon, start_local
from .errors import *  # noqa: F401,F403
from .errors import __all__ as _error_names

__all__ = [
    "BadSample",
    "Batch",
    "Client",
    "DataLoader",
    "Dataset",
    "Field",
    "LoadEstimate",
    "LocalDaemon",
    "Tensor",
    "connect",
    "start_local",
    "transforms",
] + _error_names
