"""A dataset, as a client holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Optional

from ._descriptions import Field, bad_samples_of, fields_of
from ._session import Session

if TYPE_CHECKING:
    from ._client import Client


class Dataset:
    """A dataset that the daemon keeps for this client.

    Of Client.load_dataset, push_dataset and get_dataset. The daemon may drop
    it when every client has closed it or is gone.

    Attributes: name, num_samples, fields (datasetd.Field), device, format,
    path, split, resident_bytes, spec_id, content_hash, class_names,
    num_bad_samples and bad_samples (datasetd.BadSample): what was skipped or
    replaced while loading; the first 1000 are listed.
    """

    def __init__(
        self,
        client: "Client",
        session: Session,
        message: Dict[str, Any],
        spec: Optional[Dict[str, Any]],
    ) -> None:
        """The session holds it already. `spec`: what loads it again."""
        self._client = client
        self._session = session
        self._spec = spec
        self._is_open = True
        self._message = message
        self.name: str = message["name"]
        self.num_samples = int(message["num_samples"])
        self.fields: List[Field] = fields_of(message)
        self.device: str = message["device"]
        self.format: str = message["format"]
        self.path: str = message["path"]
        self.split: str = message["split"]
        self.resident_bytes = int(message["resident_bytes"])
        self.spec_id: str = message["spec_id"]
        self.content_hash: str = message["content_hash"]
        self.class_names: List[str] = list(message["class_names"])
        self.num_bad_samples = int(message["num_bad_samples"])
        self.bad_samples = bad_samples_of(message)

    @property
    def client(self) -> "Client":
        return self._client

    def __len__(self) -> int:
        return self.num_samples

    def close(self) -> None:
        """Gives up the hold. Open loaders keep their own."""
        if self._is_open:
            self._is_open = False
            self._session.release(self.name)

    def __enter__(self) -> "Dataset":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a datasetd.Dataset belongs to its process: in the other one, "
            f"call get_dataset({self.name!r}) of a client of its own"
        )

    def __repr__(self) -> str:
        return (
            f"datasetd.Dataset({self.name!r}, {self.num_samples} samples, "
            f"device={self.device!r}, "
            f"fields={[field.name for field in self.fields]})"
        )


def message_of(dataset: Dataset) -> Dict[str, Any]:
    """The Dataset message of when it was held."""
    return dataset._message
