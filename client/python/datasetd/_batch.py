"""Batch: the result of a loader."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Type

from . import _dlpack, _library
from ._dlpack import FieldInfo
from ._frameworks import Framework


class Batch(tuple[Any, ...]):
    """One batch: a tuple in field order, with the fields as attributes.

    A field whose name equals one of the attributes below is only available by
    index. The arrays share the daemon's memory and keep it alive; they may be
    freed on any thread. A Batch that a wrapper makes from other values, such
    as arrays moved to a device, has the fields' names but none of the
    attributes below.
    """

    # Set for each loader's class.
    _framework: Framework
    _indices_info: FieldInfo

    _handle: _dlpack.Handle

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A field."""

    @property
    def epoch(self) -> int:
        return self._held().epoch

    @property
    def index(self) -> int:  # type: ignore[override]
        """Index within the epoch."""
        return self._held().index

    @property
    def num_samples(self) -> int:
        return self._held().num_samples

    @property
    def num_padding(self) -> int:
        """Number of rows at the end that repeat samples, so that ranks get
        equally many."""
        return self._held().num_padding

    @property
    def indices(self) -> Any:
        """Sample indices: int64 [num_samples], on the device."""
        return self._framework.from_handle(
            self._held(), _library.INDICES, self._indices_info
        )

    def record_stream(self, stream: Any) -> None:
        """Keeps the memory until the work of `stream` has completed, too.

        Needed for every stream except the one that was current when the batch
        was taken. `stream` is a framework's stream object, or its number.
        torch's record_stream of a tensor has no effect here; with
        DATASETD_CHECK_STREAMS=1 in the environment it raises.
        """
        _dlpack.record_stream(
            self._held(), self._framework.stream_number(stream)
        )

    def _held(self) -> _dlpack.Handle:
        try:
            return self._handle
        except AttributeError:
            raise AttributeError(
                "this Batch was made of other values than a loader's: ask the "
                "one that the loader gave"
            ) from None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a datasetd.Batch is memory of this process: clone it")


def batch_class(framework: Framework, fields: List[FieldInfo]) -> Type[Batch]:
    """Returns the Batch class of a loader, with the names of its fields."""
    attributes: Dict[str, Any] = {
        "_framework": framework,
        "_indices_info": FieldInfo(
            "indices", "int64", fields[0].shape[:1], (1,)
        ),
    }
    for position, field in enumerate(fields):
        if not hasattr(Batch, field.name) or hasattr(tuple, field.name):
            if field.name not in vars(Batch):
                attributes[field.name] = property(
                    operator.itemgetter(position)
                )
    return type("Batch", (Batch,), attributes)
