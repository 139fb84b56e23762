"""The ops that the daemon runs for every batch, and for images at load.

Names, parameters, defaults and meaning are those of torchvision.transforms.v2;
differences are documented at the op and in docs/transforms.md. The classes
only describe ops: the daemon executes them and draws random parameters per
sample.

    from datasetd import transforms as T
    [T.RandomCrop(32, padding=4, padding_mode="reflect"),
     T.RandomHorizontalFlip(),
     T.ToDtype("float16", scale=True),
     T.Normalize(mean, std)]

An op applies to the field `image`, or to those that `fields` names, with the
same random numbers for all of them:

    [T.RandomResizedCrop(224, fields=["image", "mask"]),
     T.RandomRotation(10, fill={"mask": 255}, fields=["image", "mask"]),
     T.ColorJitter(0.4, 0.4, 0.4, 0.1)]

Masks are sampled by nearest neighbour and filled as a `fill` dict says, else
with 0. Colour ops on masks are errors.
"""

from ._base import Transform
from ._checks import InterpolationMode
from ._importer import from_torchvision
from .colour import (
    AdjustBrightness,
    AdjustContrast,
    AdjustHue,
    AdjustSaturation,
    AdjustSharpness,
    Autocontrast,
    ColorJitter,
    Equalize,
    GaussianBlur,
    Grayscale,
    Invert,
    Posterize,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    Solarize,
)
from .dtypes import Normalize, ToDtype
from .erasing import Cutout, Erase, RandomErasing
from .groups import CutMix, MixUp, RandomApply
from .moves import (
    AlternatingFlip,
    CenterCrop,
    Crop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    VerticalFlip,
)
from .resampling import (
    Affine,
    RandomAffine,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    ResizedCrop,
    Rotate,
)

__all__ = [
    "AdjustBrightness",
    "AdjustContrast",
    "AdjustHue",
    "AdjustSaturation",
    "AdjustSharpness",
    "Affine",
    "AlternatingFlip",
    "Autocontrast",
    "CenterCrop",
    "ColorJitter",
    "Crop",
    "CutMix",
    "Cutout",
    "Equalize",
    "Erase",
    "GaussianBlur",
    "Grayscale",
    "HorizontalFlip",
    "InterpolationMode",
    "Invert",
    "MixUp",
    "Normalize",
    "Pad",
    "Posterize",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "ResizedCrop",
    "Rotate",
    "Solarize",
    "ToDtype",
    "Transform",
    "VerticalFlip",
    "from_torchvision",
]
