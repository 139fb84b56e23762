"""Batches that a job keeps, and copies instead of more of them."""

from __future__ import annotations

from .._warnings import warn
from ..errors import InvalidArgument

_CHOICES = ("copy", "error")


class Held:
    """Decides which batches of a loader are handed out as copies.

    A batch is a copy if less than a quarter of the slots (at least one) would
    be left for the daemon otherwise. Its small fields, such as labels, are
    always copies, or on a GPU while more slots are held than most_lent(). All
    feeds of a loader share one.
    """

    def __init__(self, on_held: str, loader: str) -> None:
        """`loader` names it in the warning."""
        if on_held not in _CHOICES:
            raise InvalidArgument(
                f"on_held={on_held!r}; expected one of {_CHOICES}"
            )
        self._copies = on_held == "copy"
        self._loader = loader
        self._has_warned = False

    def most(self, num_slots: int) -> int:
        """Returns how many of a feed's slots may be held before its batches
        are copies."""
        if not self._copies:
            return num_slots
        return num_slots - max(1, num_slots // 4)

    def most_lent(self, num_slots: int) -> int:
        """Returns how many of a feed's slots may be held before small fields
        are copies, where they are not always. Kept labels alone never make
        whole batches copies: beside them three batches have room."""
        most = num_slots - max(1, num_slots // 4)
        return max(0, min(most // 2, most - 3))

    def warn(self, num_held: int, num_slots: int) -> None:
        """Says the first time that batches are copies, where `num_held` of
        `num_slots` are held."""
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"{num_held} batches of {self._loader} are kept; it has room "
                f"for {num_slots} (prefetch + 2). As long as so many are kept, "
                "further batches are copies, which take time and memory. "
                "Keep a .clone() of what you need, such as "
                "output.detach().clone(), or drop batches; on_held='error' "
                "raises AllSlotsHeld instead"
            )
