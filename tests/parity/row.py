"""What a row of the parity table is made of."""

import dataclasses
from typing import Callable, Iterable, List, Optional, Tuple

import numpy as np

TORCHVISION = "torchvision"
REFERENCE = "reference"


@dataclasses.dataclass(frozen=True)
class Shape:
    """An image's."""

    dtype: str  # "uint8" or "float32"
    channels: int
    height: int
    width: int

    @property
    def bound(self):
        return 255 if self.dtype == "uint8" else 1

    def __str__(self):
        return f"{self.dtype} {self.channels}x{self.height}x{self.width}"


# What the ops of a case drew, op by op: lists of numbers by name.
Drawn = List[dict]


@dataclasses.dataclass
class Case:
    """Ops as JSON has them, and what the judge makes of an image [C, H, W]."""

    transforms: List[dict]
    expect: Callable[[np.ndarray, Drawn], np.ndarray]
    # The difference allowed after these draws, in units of the bound; else
    # the row's.
    allow: Optional[Callable[[Drawn], float]] = None
    # Where a difference is allowed: a mask [H, W] of the output. No more than
    # one pixel in a thousand may then differ at all.
    is_edge: Optional[Callable[[Shape, Drawn], np.ndarray]] = None


@dataclasses.dataclass
class Row:
    """One row: every case of every shape is within the bound."""

    op: str
    parameters: str
    cases: Callable[[Shape], Iterable[Case]]
    # The largest difference allowed: of uint8 in levels, of float32 as it is.
    uint8_levels: float
    float32_bound: float
    judge: str = TORCHVISION
    remark: str = ""
    dtypes: Tuple[str, ...] = ("uint8", "float32")
    channels: Tuple[int, ...] = (1, 3)
    is_drawn: bool = False  # its ops draw: several samples are run

    def bound(self, shape):
        """In units of the shape's bound."""
        if shape.dtype == "uint8":
            return self.uint8_levels / 255
        return self.float32_bound
