"""The parts of a row of the parity table."""

import dataclasses
from typing import Callable, Iterable, List, Optional, Tuple, Union

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


class Drawn(list):
    """A sample's draws of a case's ops, as explain tells (apply_ops.cc)."""

    def __init__(self, ops, seed, epoch, sample):
        super().__init__(ops)
        self.seed, self.epoch, self.sample = seed, epoch, sample


@dataclasses.dataclass
class Case:
    """Ops as JSON has them, and what the judge makes of an image [C, H, W]."""

    transforms: List[dict]
    expect: Callable[[np.ndarray, Drawn], np.ndarray]
    # The difference allowed after these draws, in units of the bound; else
    # the row's.
    allow: Optional[Callable[[Drawn], float]] = None
    # Where a difference is allowed: a mask [H, W] of the output. No more than
    # one pixel in a thousand may then differ, unless the ops put whole lines
    # of source points onto edges.
    is_edge: Optional[Callable[[Shape, Drawn], np.ndarray]] = None
    has_lines_on_edges: bool = False
    is_mask: bool = False


@dataclasses.dataclass
class Mix:
    """The draws of a row of a mixed batch, from apply_ops."""

    weight: float  # of the own image: lambda
    top: int
    left: int
    bottom: int
    right: int


@dataclasses.dataclass
class BatchCase:
    """Ops that end with a mix, and what the judge makes of a batch.

    `expect` gets images [N, C, H, W], classes [N] and a Mix for each; it
    returns images and labels [N, num_classes].
    """

    transforms: List[dict]
    expect: Callable[
        [np.ndarray, np.ndarray, List[Mix]], Tuple[np.ndarray, np.ndarray]
    ]
    num_classes: int
    per_sample: bool


@dataclasses.dataclass
class Row:
    """One row: every case of every shape is within the bound."""

    op: str
    parameters: str
    cases: Callable[[Shape], Iterable[Union[Case, BatchCase]]]
    # The largest difference allowed: of uint8 in levels, of float32 as it is.
    # None where each case allows by its draws.
    uint8_levels: Optional[float]
    float32_bound: Optional[float]
    bound_text: str = ""  # instead of the two
    judge: str = TORCHVISION
    remark: str = ""
    dtypes: Tuple[str, ...] = ("uint8", "float32")
    channels: Tuple[int, ...] = (1, 3)
    is_drawn: bool = False  # its ops draw: several samples are run
    num_draws: int = 3  # how many

    def bound(self, shape):
        """In units of the shape's bound."""
        if shape.dtype == "uint8":
            return self.uint8_levels / 255
        return self.float32_bound
