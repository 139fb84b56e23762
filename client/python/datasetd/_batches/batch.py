"""Batch: the result of a loader."""

from __future__ import annotations

import sys
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    SupportsIndex,
    Tuple,
    Type,
    TypeVar,
    Union,
    overload,
)

from .._attributes import missing
from .._connection import library
from ..errors import FailedPrecondition
from . import dlpack, frameworks
from .dlpack import FieldInfo, Handle

ArrayT = TypeVar("ArrayT", covariant=True)


class Origin(NamedTuple):
    """What the batches of a feed have in common."""

    framework: frameworks.Framework
    indices_info: FieldInfo
    # The indices name a dataset, too.
    is_mixture: bool = False

    def record_current(self, handle: Handle) -> None:
        """Keeps the memory for the framework's current stream, on which the
        library copies: it need not be the one that took the batch."""
        if self.framework.device[0] == dlpack.CUDA:
            dlpack.record_stream(handle, self.framework.stream())

    def indices(self, handle: Handle) -> Any:
        """Returns the sample indices, as a copy under the rule of fields."""
        if self.is_mixture and self.framework.can_copy:
            return self.places(handle)[1]
        array = self.framework.from_handle(
            handle, library.INDICES, self.indices_info
        )
        if not self.framework.can_copy:
            return array  # a Tensor, which records the stream itself
        self.record_current(handle)
        if self.framework.copies(self.indices_info, ()):
            return frameworks.copy_of(array)
        return array

    def places(self, handle: Handle) -> Tuple[Any, Any]:
        """Returns the datasets of a mixture and the indices in them, copies.
        REQUIRES: the framework can copy."""
        places = self.framework.split_indices(handle, self.indices_info)
        self.record_current(handle)
        return places


class Detached(NamedTuple):
    """The rest of a batch whose memory was given back."""

    epoch: int
    index: int  # type: ignore[assignment]
    num_samples: int
    num_padding: int
    indices: Any
    group_size: int = 0  # 0: there are no groups
    dataset_index: Any = None  # of a mixture


class Batch(Tuple[ArrayT, ...]):
    """One batch: the arrays of its fields, by position, attribute and name.

        images, labels = batch
        batch.image, batch["image"], batch[0]
        model(**batch)

    It is a tuple in the order of the fields: len(), iteration and unpacking are
    those of the arrays, not of the names. keys(), values(), items(), get(),
    `name in batch`, dict(batch) and **batch work as for a mapping. A field with
    the name of an attribute below, or a name that begins with "_", is available
    as batch["name"].

    The arrays share the daemon's memory and keep it alive; they may be freed on
    any thread. Small fields, such as labels, are copies (on a GPU only if the
    job keeps some batches), and so are all fields if it keeps many: see
    DataLoader.

    A Batch that a wrapper makes of other values, as in jax.jit or
    jax.tree_util.tree_map, has the names of the fields, but no epoch, index,
    num_samples, num_padding, indices, dataset_index and record_stream.
    """

    # Set for the class of each list of fields.
    _positions: Dict[str, int]

    _origin: Origin
    _handle: Union[Handle, Detached]
    # The stream that makes the copies among the arrays; None: all are complete.
    _copied_on: Optional[int] = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> ArrayT:
            """A field."""

    else:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError, which names the fields."""
            instead = f"its fields are {list(self.keys())}"
            if name == "dataset_index":
                instead = "the batch is of one dataset, not of a mixture"
            raise missing(self, name, instead)

    # -- Fields ---------------------------------------------------------------

    @overload
    def __getitem__(self, key: Union[str, SupportsIndex]) -> ArrayT: ...

    @overload
    def __getitem__(self, key: slice) -> Tuple[ArrayT, ...]: ...

    def __getitem__(self, key: Union[str, SupportsIndex, slice]) -> Any:
        if isinstance(key, str):
            try:
                key = self._positions[key]
            except KeyError:
                raise KeyError(
                    f"{key!r}: the batch has {list(self._positions)}"
                ) from None
        return tuple.__getitem__(self, key)

    def __contains__(self, key: object) -> bool:
        """True if there is a field with this name, or exactly this array."""
        if isinstance(key, str):
            return key in self._positions
        return any(value is key for value in self)

    def keys(self) -> Tuple[str, ...]:
        """The fields' names."""
        return tuple(self._positions)

    def values(self) -> Tuple[ArrayT, ...]:
        return tuple(self)

    def items(self) -> Tuple[Tuple[str, ArrayT], ...]:
        return tuple(zip(self._positions, self))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._positions else default

    def as_dict(self) -> Dict[str, ArrayT]:
        """Returns {name: array}."""
        return dict(self.items())

    # -- What the daemon said -------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._held().epoch

    @property
    def index(self) -> int:  # type: ignore[override]
        """Index within the epoch."""
        return self._held().index

    @property
    def num_samples(self) -> int:
        """Number of rows; with groups, of the samples of all."""
        return self._held().num_samples

    @property
    def num_padding(self) -> int:
        """Number of rows at the end that repeat samples, so that all ranks
        have the same number of rows."""
        return self._held().num_padding

    @property
    def valid(self) -> ArrayT:
        """A mask [num_samples] of booleans, on the device: false for the rows
        that are padding, True for all others. With groups it is [B, K]."""
        if "valid" in self._positions:
            return self["valid"]
        result: ArrayT = frameworks.mask_like(
            self[0], self.num_samples, self.num_padding, self._group_size
        )
        return result

    @property
    def dataset_index(self) -> ArrayT:
        """Of a mixture or concat, the number of each row's dataset: int64
        [num_samples], on the device. With `indices` it names the sample."""
        if "dataset_index" in self._positions:
            return self["dataset_index"]
        held = self._held()
        found: Any = None
        if isinstance(held, Detached):
            found = held.dataset_index
        elif self._origin.is_mixture:
            if not self._origin.framework.can_copy:
                raise FailedPrecondition(
                    "dataset_index: framework='dlpack' has no memory for it: "
                    "the upper 32 bits of `indices` are it"
                )
            found = self._origin.places(held)[0]
        if found is None:
            raise AttributeError("dataset_index")  # __getattr__ explains it
        result: ArrayT = found
        return result

    @property
    def indices(self) -> ArrayT:
        """Sample indices: int64 [num_samples], on the device. With groups
        [B, K]. Of a mixture they are indices in the row's dataset,
        `dataset_index`; with framework="dlpack" they have it in their upper 32
        bits."""
        held = self._held()
        result: ArrayT = (
            held.indices
            if isinstance(held, Detached)
            else self._origin.indices(held)
        )
        return result

    @property
    def _group_size(self) -> int:
        return self._group_size_of(self._held())

    def _group_size_of(self, held: Union[Handle, Detached]) -> int:
        if isinstance(held, Detached):
            return held.group_size
        return self._origin.indices_info.group_size

    def with_valid(self) -> "Batch[ArrayT]":
        """Returns the batch with `valid` appended as the last value."""
        kind = batch_class((*self._positions, "valid"))
        result = kind((*self, self.valid))
        for name in ("_origin", "_handle", "_copied_on"):
            if name in self.__dict__:
                setattr(result, name, self.__dict__[name])
        if "_origin" in self.__dict__ and result._copied_on is None:
            framework = self._origin.framework
            if framework.device[0] == dlpack.CUDA:
                result._copied_on = framework.stream()
        return result

    # -- Memory ---------------------------------------------------------------

    def clone(self) -> "Batch[ArrayT]":
        """Returns a copy in the framework's own memory, which can be kept.

        Raises FailedPrecondition with framework="dlpack".
        """
        return self._changed(frameworks.copy_of)

    def to(self, device: Any, non_blocking: bool = False) -> "Batch[ArrayT]":
        """Returns the batch on another device; itself if it is there."""
        return self._changed(
            lambda array: frameworks.moved(array, device, non_blocking)
        )

    def _changed(self, change: Callable[[Any], Any]) -> "Batch[ArrayT]":
        held = self.__dict__.get("_handle")
        if "_origin" in self.__dict__:
            self._record_current()
        values = [change(value) for value in self]
        if all(new is old for new, old in zip(values, self)):
            return self
        result = type(self)(values)
        if held is not None:
            result._handle = self._detached(held, change)
        return result

    def _detached(
        self, held: Union[Handle, Detached], change: Callable[[Any], Any]
    ) -> Detached:
        indices: Any = None
        dataset_index: Any = None
        if isinstance(held, Detached):
            indices, dataset_index = held.indices, held.dataset_index
        elif self._origin.is_mixture and self._origin.framework.can_copy:
            dataset_index, indices = self._origin.places(held)
        else:
            indices = self._origin.indices(held)
        if dataset_index is not None:
            dataset_index = change(dataset_index)
        return detached(
            held, change(indices), self._group_size_of(held), dataset_index
        )

    def record_stream(self, stream: Any) -> None:
        """Lets `stream` use the batch: keeps the memory until the work of the
        stream has completed, too, and makes the stream wait for arrays that are
        copies.

        Call it for every stream except the one that was current when the batch
        was taken; clone(), to() and indices do it themselves. `stream` is a
        framework's stream object or its number, possibly of another GPU, and
        must live as long as the batch. torch's copies need the object for a
        stream of another GPU. The numbers 0 and 1 are the default stream of the
        batch's GPU. Raises InvalidArgument (a ValueError) for another GPU's
        default stream, whose number is the same, and for 2, CUDA's per-thread
        default stream, which is a different stream on the thread that frees the
        batch.

        torch's record_stream of a tensor has no effect here; with
        DATASETD_CHECK_STREAMS=1 in the environment it raises an error.
        """
        held = self._held()
        if isinstance(held, Handle):
            device = self._origin.framework.device
            dlpack.record_stream(
                held, frameworks.stream_number_on(device, stream)
            )
        else:
            frameworks.record_stream(held.indices, stream)
            if held.dataset_index is not None:
                frameworks.record_stream(held.dataset_index, stream)
        for value in self:
            frameworks.record_stream(value, stream)
        if self._copied_on is not None:
            self._origin.framework.wait(stream, self._copied_on)

    def _record_current(self) -> None:
        """Lets the framework's current stream use the batch, which may be
        another one than that which took it."""
        framework = self._origin.framework
        if framework.device[0] == dlpack.CUDA:
            stream = framework.stream()
            if stream != self._copied_on:
                self.record_stream(stream)

    def _held(self) -> Union[Handle, Detached]:
        try:
            return self._handle
        except AttributeError:
            raise AttributeError(
                "this Batch was made of other values: use the Batch that the "
                "loader returned"
            ) from None

    def __reduce__(self) -> Any:
        """Pickles a copy."""
        held = self.__dict__.get("_handle")
        if not isinstance(held, Handle):
            return _rebuilt, (self.keys(), tuple(self), held)
        if not self._origin.framework.can_copy:
            raise TypeError(
                "a datasetd.Batch with framework='dlpack' is memory of this "
                "process: convert its fields to arrays of a framework, and "
                "copy those"
            )
        return self.clone().__reduce__()

    def __repr__(self) -> str:
        """Describes the batch; the fields have the values."""
        held = self.__dict__.get("_handle")
        where = device = ""
        if held is not None:
            where = f"epoch {held.epoch}, index {held.index}, "
            if held.num_padding:
                where += f"{held.num_padding} of {held.num_samples} padding, "
        fields = ", ".join(
            f"{name}: {frameworks.description(value)}"
            for name, value in self.items()
        )
        if len(self):
            device = frameworks.device_text(self[0])
        return f"datasetd.Batch({where}{fields}{device and ', on '}{device})"


def detached(
    held: Union[Handle, Detached],
    indices: Any,
    group_size: int,
    dataset_index: Any = None,
) -> Detached:
    return Detached(
        held.epoch,
        held.index,
        held.num_samples,
        held.num_padding,
        indices,
        group_size,
        dataset_index,
    )


def _rebuilt(
    names: Tuple[str, ...], values: Tuple[Any, ...], held: Optional[Detached]
) -> Batch[Any]:
    batch = batch_class(names)(values)
    if held is not None:
        batch._handle = held
    return batch


# By the fields' names. Frameworks keep a class that was registered forever.
_classes: Dict[Tuple[str, ...], Type[Batch[Any]]] = {}
_registered: Dict[str, List[Type[Batch[Any]]]] = {"torch": [], "jax": []}


def batch_class(names: Iterable[str]) -> Type[Batch[Any]]:
    """Returns the Batch class of loaders with these fields, registered as a
    pytree of torch and JAX if they are imported."""
    key = tuple(names)
    result = _classes.get(key)
    if result is None:
        attributes: Dict[str, Any] = {
            "_positions": {name: i for i, name in enumerate(key)}
        }
        for position, name in enumerate(key):
            if name.startswith("_"):
                continue  # not in place of what Batch itself uses
            if not hasattr(Batch, name) or name == "count":
                attributes[name] = _field(position)
        result = _classes[key] = type("Batch", (Batch,), attributes)
    _register(result)
    return result


def _field(position: int) -> property:
    return property(lambda batch: tuple.__getitem__(batch, position))


def _register(kind: Type[Batch[Any]]) -> None:
    def flatten(batch: Batch[Any]) -> Tuple[List[Any], None]:
        return list(batch), None

    jax = sys.modules.get("jax")
    if jax is not None and kind not in _registered["jax"]:
        _registered["jax"].append(kind)
        jax.tree_util.register_pytree_node(
            kind, flatten, lambda _, values: kind(values)
        )
    if sys.modules.get("torch") and kind not in _registered["torch"]:
        from torch.utils import _pytree

        _registered["torch"].append(kind)
        # Public since torch 2.2.
        register = getattr(_pytree, "register_pytree_node", None)
        register = register or _pytree._register_pytree_node
        register(kind, flatten, lambda values, _: kind(values))
