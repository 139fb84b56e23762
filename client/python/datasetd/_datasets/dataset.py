"""Dataset: a client's hold on a dataset."""

from __future__ import annotations

import weakref
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Optional,
)

from .._connection.connection import Connection
from .._connection.session import Session
from .._descriptions import (
    Field,
    bad_samples_of,
    fields_of,
    notes_of,
    placements_of,
    residency_of,
    summary_of,
)
from .subset import Samples


class Dataset(Samples):
    """A dataset that the daemon keeps for this client.

    Returned by Client.load_dataset, push_dataset and get_dataset. The daemon
    may drop it once every client has closed it or ended. It can be pickled, as
    address, name and content hash; a process that unpickles it also holds the
    dataset.

    `dataset[i]` is a sample and `dataset[[3, 1]]` a Batch. Iteration yields
    every sample, column() returns a field of all samples, and select() and
    split() return Subsets. See Samples, the base class.

    Attributes: name, num_samples, fields (datasetd.Field), device (with
    replicas all devices, "cuda:0,cuda:1"; with shards "shard:cuda:0,cuda:1"),
    format, path, split_name, resident_bytes, residency ("device", "pinned",
    "split" or "mapped"), placements (datasetd.Placement), spec_id,
    content_hash, class_names (also classes and class_to_idx), notes (what the
    load omitted, changed or decided, in sentences), num_bad_samples and
    bad_samples (datasetd.BadSample): samples skipped or replaced while loading,
    of which the first 1000 are listed.
    """

    def __init__(
        self,
        client: Any,
        session: Session,
        message: Dict[str, Any],
        load_again: Optional[Callable[[Any], Dict[str, Any]]] = None,
    ) -> None:
        """REQUIRES: the session holds it. `load_again`, given a function to
        report progress to, loads it into another daemon, holds it and returns
        its message."""
        self._client = client
        self._session = session
        self._load_again = load_again
        self._is_open = True
        self._found_on: "Optional[weakref.ref[Connection]]" = None
        self._set_found()
        self._message = message
        self.name: str = message["name"]
        self.num_samples = int(message["num_samples"])
        self.fields: List[Field] = fields_of(message)
        self.device: str = message["device"]
        self.format: str = message["format"]
        self.path: str = message["path"]
        self.split_name: str = message["split"]
        self.resident_bytes = int(message["resident_bytes"])
        self.residency = residency_of(message)
        self.placements = placements_of(message)
        self.spec_id: str = message["spec_id"]
        self.content_hash: str = message["content_hash"]
        self.class_names: List[str] = list(message["class_names"])
        self.notes: List[str] = notes_of(message)
        self.num_bad_samples = int(message["num_bad_samples"])
        self.bad_samples = bad_samples_of(message)
        self._is_made = True

    @property
    def client(self) -> Any:
        """The Client that returned it."""
        return self._client

    def _set_found(self) -> None:
        """Remembers that the session's present daemon has it."""
        connection = self._session._connection
        if connection is not None:  # not closed meanwhile
            # Weak: when it is replaced, its session ends.
            self._found_on = weakref.ref(connection)

    def _found(self) -> Optional[Connection]:
        """Returns the connection through which it was loaded, or found last;
        None if that has ended."""
        return None if self._found_on is None else self._found_on()

    def _datasets_in_use(self) -> List["Dataset"]:
        """The datasets of which a loader of this one holds uses: itself."""
        return [self]

    def _whole(self) -> "Dataset":
        return self

    def _to_indices(self, positions: Any) -> Any:
        return positions

    def __len__(self) -> int:
        return self.num_samples

    def close(self) -> None:
        """Releases the dataset, unless it was unloaded or the daemon was lost
        meanwhile. Open loaders continue to hold it."""
        if self._is_open:
            self._is_open = False
            self._session.release(self.name)

    def __enter__(self) -> "Dataset":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        """Pickles where the dataset is. Unpickling holds the dataset, and
        raises NotFound or FailedPrecondition if it does not exist any more."""
        address = self._session.address
        attach = type(self._client)._attach
        return attach, (address, self.name, self.content_hash)

    def __repr__(self) -> str:
        return (
            f"datasetd.Dataset({self.name!r}, device={self.device!r}, "
            f"fields={[field.name for field in self.fields]}, "
            f"{summary_of(self._message)})"
        )


def message_of(dataset: Dataset) -> Dict[str, Any]:
    """Returns the Dataset message received when the hold began."""
    return dataset._message


def has_replicas(dataset: Dataset) -> bool:
    """Whether each of several devices has all samples."""
    several = len(dataset._message.get("placements", ())) > 1
    return several and not dataset.device.startswith("shard")
