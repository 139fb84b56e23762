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
from ._batches.batch import Batch
from ._batches.dlpack import Tensor
from ._client.client import Client
from ._daemon.local import LocalDaemon, start_local
from ._daemon.shared import connect, connect_or_start, load, push
from ._datasets.dataset import Dataset
from ._datasets.mixture import Mixture, concat, mixture
from ._datasets.subset import Subset
from ._descriptions import (
    BadSample,
    DrawnOp,
    Field,
    LoadEstimate,
    Placement,
)
from ._loader.benchmark import BenchmarkResult, benchmark
from ._loader.loader import DataLoader
from ._order.crops import crops
from ._order.windows import blocks, documents, random_windows
from ._version import __version__ as __version__
from .errors import *  # noqa: F401,F403

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
    "Mixture",
    "Placement",
    "Subset",
    "Tensor",
    "benchmark",
    "blocks",
    "concat",
    "connect",
    "connect_or_start",
    "crops",
    "documents",
    "load",
    "mixture",
    "push",
    "random_windows",
    "sources",
    "start_local",
    "transforms",
]
__all__ += errors.__all__
