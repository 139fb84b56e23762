"""group_by=: the classes that a loader sends to the daemon."""

from __future__ import annotations

import hashlib
import importlib.util
from typing import Any, Iterable, Union

from .._warnings import warn_once
from ..errors import InvalidArgument

# The name of a field, or a class for each sample.
GroupBy = Union[str, Iterable[int]]


class ClassGroups:
    """Groups of samples of one class, which the daemon draws.

    Attributes: size, of each group; classes, int32 [samples], below 0 for
    samples without class; num_classes; num_groups, in an epoch of all ranks;
    hash.
    """

    def __init__(self, size: int, classes: Any, num_samples: int) -> None:
        """`classes` are integers, one for each of `num_samples`; below 0: a
        sample that is never drawn."""
        if importlib.util.find_spec("numpy") is None:
            raise InvalidArgument("group_by= needs NumPy, which is missing")
        import numpy

        self.size = size
        if hasattr(classes, "cpu"):  # torch
            classes = classes.detach().cpu().numpy()
        if not hasattr(classes, "__array__"):
            classes = list(classes)
        values = numpy.array(classes)
        if values.shape != (num_samples,) or not numpy.issubdtype(
            values.dtype, numpy.integer
        ):
            raise InvalidArgument(
                f"group_by: the classes are {values.dtype} {values.shape}; "
                f"expected integers, one for each of {num_samples} samples, or "
                "the name of a field of such"
            )
        has_class = values >= 0
        _, numbers, counts = numpy.unique(
            values[has_class], return_inverse=True, return_counts=True
        )
        self.num_classes = len(counts)
        if not self.num_classes:
            raise InvalidArgument(
                f"group_by: all {num_samples} classes are below 0, which is "
                "no class"
            )
        self.classes = numpy.full(num_samples, -1, numpy.int32)
        self.classes[has_class] = numbers
        # As many as one pass over the samples of each class gives.
        self.num_groups = int(numpy.maximum(1, counts // size).sum())
        self.hash = hashlib.blake2b(
            self.classes.astype("<i4").tobytes(), digest_size=16
        ).hexdigest()

    def warn_of_repeats(self, name: str, num_groups: int, ranks: int) -> None:
        """Warns once if some batches of `num_groups` on each of `ranks` have a
        class twice. `name` is the dataset's."""
        # Consecutive groups of which no two are of one class.
        most = self.num_classes - -(-self.num_classes // 4) + 1
        together = num_groups * ranks
        if together > most and self.num_classes % together:
            warn_once(
                f"groups of {name}",
                f"dataset '{name}': some batches of {num_groups} groups on "
                f"{ranks} rank(s) have a class twice, as there are "
                f"{self.num_classes} classes with samples: up to {most} groups "
                f"over all ranks, or {self.num_classes}, never do",
            )
