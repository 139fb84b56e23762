"""Finds calls of torch's record_stream on the tensors of a batch.

Such a call has no effect, because torch did not allocate their memory: the
batch could be given back while the stream still reads it. With
DATASETD_CHECK_STREAMS=1 in the environment the call raises FailedPrecondition.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Iterable, Optional, Set

from ..errors import FailedPrecondition

_VARIABLE = "DATASETD_CHECK_STREAMS"


class StreamCheck:
    """Knows the memory of one loader's batches."""

    def __init__(self) -> None:
        # Addresses of storages, which views share. Slots are reused, so there
        # are few.
        self.addresses: Set[int] = set()
        _checks.add(self)

    def add(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            self.addresses.add(_address(tensor))


def _address(tensor: Any) -> int:
    # torch before 2.0 has storage() only, which later ones warn of.
    storage = getattr(tensor, "untyped_storage", None) or tensor.storage
    address: int = storage().data_ptr()
    return address


_checks: "weakref.WeakSet[StreamCheck]" = weakref.WeakSet()
_unchecked: Any = None  # torch's record_stream, once it is replaced


def start(torch: Any) -> Optional[StreamCheck]:
    """Returns a check for a loader, or None if none is asked for."""
    if os.environ.get(_VARIABLE, "") in ("", "0"):
        return None
    if _unchecked is None:
        _install(torch.Tensor)
    return StreamCheck()


def record_stream(tensor: Any, stream: Any) -> None:
    """torch's record_stream, without a check."""
    (_unchecked or type(tensor).record_stream)(tensor, stream)


def _install(tensor_class: Any) -> None:
    global _unchecked
    original = _unchecked = tensor_class.record_stream

    def record_stream(self: Any, *arguments: Any, **options: Any) -> Any:
        address = _address(self)
        if any(address in check.addresses for check in _checks):
            raise FailedPrecondition(
                "tensor.record_stream has no effect on a tensor of a batch, "
                "whose memory is not torch's: call batch.record_stream(stream)"
            )
        return original(self, *arguments, **options)

    tensor_class.record_stream = record_stream
