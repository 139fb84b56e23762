"""Sources: read files with other libraries, for Client.push_dataset.

    digits = datasetd.sources.hdf5("digits.h5", {"image": "x", "label": "y"})
    client.push_dataset("digits", digits)

Each function imports the usual library of its format when it is called; if the
library is missing, the error names it. `fields` maps fields to names in the
file. By default every array of the file is a field with the same name.
"""

from ._audio import audio_folder
from ._cifar_python import cifar_python
from ._csv import csv
from ._csv_pixels import csv_pixels
from ._hdf5 import hdf5
from ._images import decode_image, image_folder
from ._lmdb import lmdb
from ._npz import npz
from ._recordio import recordio
from ._safetensors import safetensors
from ._tables import arrow, parquet
from ._tfrecord import tfrecord
from ._torch_file import torch_file
from ._zarr import n5, zarr

__all__ = [
    "arrow",
    "audio_folder",
    "cifar_python",
    "csv",
    "csv_pixels",
    "decode_image",
    "hdf5",
    "image_folder",
    "lmdb",
    "n5",
    "npz",
    "parquet",
    "recordio",
    "safetensors",
    "tfrecord",
    "torch_file",
    "zarr",
]
