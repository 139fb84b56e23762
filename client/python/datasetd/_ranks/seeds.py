"""Seeds of loaders for which none is given."""

from __future__ import annotations

import secrets
import sys
from typing import Any

from ..errors import FailedPrecondition, InvalidArgument
from . import ranks


def draw(generator: Any = None) -> int:
    """Returns a random seed.

    Drawn from `generator`, else from torch's default generator if torch is
    imported, else from the system.
    """
    torch = sys.modules.get("torch")
    if generator is None:
        if torch is None:
            return secrets.randbits(63)
        return int(
            torch.empty((), dtype=torch.int64, device="cpu").random_().item()
        )
    if torch is not None and isinstance(generator, torch.Generator):
        number = torch.empty((), dtype=torch.int64, device=generator.device)
        return int(number.random_(generator=generator).item())
    if hasattr(generator, "integers"):
        return int(generator.integers(2**63))
    raise InvalidArgument(
        f"generator={generator!r}; expected a torch.Generator or a "
        "numpy.random.Generator"
    )


def agreed(seed: int, world_size: int) -> int:
    """Returns rank 0's seed, on all ranks. Every rank must call it."""
    if world_size == 1:
        return seed
    found = ranks.of_torch()
    if found is None or found.world_size != world_size:
        raise InvalidArgument(
            f"seed: {world_size} ranks share one order and need one seed, "
            "which they can agree on only through a torch.distributed of "
            f"{world_size} processes: pass seed=, equal on all ranks"
        )
    numbers = [seed]
    try:
        sys.modules["torch"].distributed.broadcast_object_list(numbers, src=0)
        return int(numbers[0])
    except Exception as error:
        # Of the backend, which says nothing of loaders: another rank was not
        # there in time, has ended, or was in another collective call.
        raise FailedPrecondition(
            f"seed: rank {found.rank} of {world_size} made a loader that "
            "shuffles or draws by weights, and not all other ranks made it, "
            "too: without seed= that is a collective call, in which the ranks "
            "agree on one. Make it on every rank, in the same order; or on "
            "this rank alone with world_size=1 (all samples); or give seed=, "
            "equal on all ranks"
        ) from error
