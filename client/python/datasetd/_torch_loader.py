"""A loader as a torch.utils.data.DataLoader."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Protocol


class Source(Protocol):
    """The part of DataLoader that is used here."""

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...

    def set_epoch(self, epoch: int) -> None: ...

    def state_dict(self) -> Dict[str, Any]: ...

    def load_state_dict(self, state: Dict[str, Any]) -> None: ...


def _same(batch: Any) -> Any:
    return batch


def make(loader: Source) -> Any:
    """See DataLoader.as_torch."""
    import torch.utils.data

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc]
        """The batches of the next epoch."""

        def __iter__(self) -> Iterator[Any]:
            return iter(loader)

        def __len__(self) -> int:
            return len(loader)

    class TorchLoader(torch.utils.data.DataLoader):  # type: ignore[misc]
        """Its items are the loader's batches."""

        # Accelerate would divide the batches among the ranks again.
        _is_accelerate_prepared = True

        def set_epoch(self, epoch: int) -> None:
            loader.set_epoch(epoch)

        def state_dict(self) -> Dict[str, Any]:
            return loader.state_dict()

        def load_state_dict(self, state: Dict[str, Any]) -> None:
            loader.load_state_dict(state)

    return TorchLoader(
        Batches(), batch_size=None, num_workers=0, collate_fn=_same
    )
