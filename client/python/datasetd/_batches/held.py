"""Batches that a job keeps, and copies instead of more of them.

A batch is a copy if less than a quarter of the slots (at least one) would be
left for the daemon otherwise. Its small fields, such as labels, are always
copies, or on a GPU while more slots are held than most_lent().
"""

from __future__ import annotations

from .. import _warnings
from ..errors import InvalidArgument

_CHOICES = ("copy", "error")


def makes_copies(on_held: str) -> bool:
    """Returns whether batches become copies; with "error" they do not."""
    if on_held not in _CHOICES:
        raise InvalidArgument(
            f"on_held={on_held!r}; expected one of {_CHOICES}"
        )
    return on_held == "copy"


def most(num_slots: int) -> int:
    """Returns how many of a feed's slots may be held before its batches are
    copies."""
    return num_slots - max(1, num_slots // 4)


def most_lent(num_slots: int) -> int:
    """Returns how many of a feed's slots may be held before small fields are
    copies, where they are not always. Kept labels alone never make whole
    batches copies: beside them three batches have room."""
    return max(0, min(most(num_slots) // 2, most(num_slots) - 3))


def warn(dataset: str, num_held: int, num_slots: int) -> None:
    """Says that batches of a loader are copies, where `num_held` of `num_slots`
    are held."""
    _warnings.warn(
        f"{num_held} batches of a loader of dataset '{dataset}' are kept; it "
        f"has room for {num_slots} (prefetch + 2). As long as so many are "
        "kept, further batches are copies, which take time and memory. Keep a "
        ".clone() of what you need, such as output.detach().clone(), or drop "
        "batches; on_held='error' raises AllSlotsHeld instead"
    )
