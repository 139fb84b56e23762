"""The ops that the daemon runs for every batch, and for images at load.

Names, parameters, defaults and meaning are those of torchvision.transforms.v2;
differences are documented in the op's docstring and in docs/transforms.md. The
classes only describe ops: the daemon executes them and draws random parameters
per sample.

    from datasetd import transforms as T
    [T.RandomCrop(32, padding=4, padding_mode="reflect"),
     T.RandomHorizontalFlip(),
     T.ToDtype("float16", scale=True),
     T.Normalize(mean, std)]

An op applies to the field `image`, or to the fields that `fields` names, with
the same random numbers for all of them:

    [T.RandomResizedCrop(224, fields=["image", "mask"]),
     T.RandomRotation(10, fill={"mask": 255}, fields=["image", "mask"]),
     T.ColorJitter(0.4, 0.4, 0.4, 0.1)]

Ops on sequences, such as Vol and MelSpectrogram, are those of torchaudio and
torch-audiomentations; they are for fields of numbers:

    {"audio": [T.MelSpectrogram(16000, n_mels=64), T.AmplitudeToDB(top_db=80)]}

Masks are sampled by nearest neighbour and filled with their value in a `fill`
dict, else with 0. Colour ops on masks are errors.
"""

# ruff: noqa: F403
from . import (
    colour,
    dtypes,
    erasing,
    groups,
    moves,
    policies,
    resampling,
    sequences,
)
from ._base import Transform
from ._checks import InterpolationMode
from ._importer import from_torchvision
from .colour import *
from .dtypes import *
from .erasing import *
from .groups import *
from .moves import *
from .policies import *
from .resampling import *
from .sequences import *

__all__ = [
    "InterpolationMode",
    "Transform",
    "from_torchvision",
]
__all__ += colour.__all__
__all__ += dtypes.__all__
__all__ += erasing.__all__
__all__ += groups.__all__
__all__ += moves.__all__
__all__ += policies.__all__
__all__ += resampling.__all__
__all__ += sequences.__all__
