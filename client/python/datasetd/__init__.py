"""Batches of resident datasets, from the datasetd daemon.

    import datasetd
    from datasetd import transforms as T

    train = datasetd.load("cifar10", "cifar-10-batches-bin", split="train")
    loader = datasetd.DataLoader(train, batch_size=512, shuffle=True,
                                 transforms=[T.RandomCrop(32, padding=4),
                                             T.RandomHorizontalFlip(),
                                             T.ToDtype("float16", scale=True)])
    for images, labels in loader:
        ...
"""

from . import errors, sources, transforms
from ._batch import Batch
from ._benchmark import BenchmarkResult, benchmark
from ._client import Client, connect
from ._concat import concat
from ._dataset import Dataset
from ._descriptions import BadSample, DrawnOp, Field, LoadEstimate
from ._dlpack import Tensor
from ._loader import DataLoader
from ._local import LocalDaemon, start_local
from ._shared import connect_or_start, load
from ._subset import Subset
from .errors import *  # noqa: F401,F403

__version__ = "0.1.0"  # the daemon's, too; a test compares

__all__ = [
    "BadSample",
    "Batch",
    "BenchmarkResult",
    "Client",
    "DataLoader",
    "Dataset",
    "DrawnOp",
    "Field",
    "LoadEstimate",
    "LocalDaemon",
    "Subset",
    "Tensor",
    "benchmark",
    "concat",
    "connect",
    "connect_or_start",
    "load",
    "sources",
    "start_local",
    "transforms",
]
__all__ += errors.__all__
