"""Arguments of torch.utils.data.DataLoader that have no meaning here."""

from __future__ import annotations

import difflib
from typing import Any, Dict, Iterable, Tuple

from .._warnings import warn
from ..errors import InvalidArgument

# The values that ask for nothing.
_IGNORED: Dict[str, Tuple[Any, ...]] = {
    "num_workers": (0,),
    "persistent_workers": (False, None),
    "prefetch_factor": (None, 2),
    "pin_memory": (False, None),
    "pin_memory_device": ("", None),
    "multiprocessing_context": (None,),
    "in_order": (True,),
}
_REFUSED = {
    "collate_fn": "the daemon makes the batches; convert a batch in the loop, "
    "or wrap the loader: (convert(batch) for batch in loader)",
    "worker_init_fn": "there are no worker processes; seed= determines "
    "everything random",
}
NAMES = (*_IGNORED, *_REFUSED)


def check(arguments: Dict[str, Any], names: Iterable[str]) -> None:
    """Warns of ignored arguments, once for all, and raises for others.

    `names` are those that DataLoader has. Raises TypeError for unknown ones,
    as Python does.
    """
    ignored = []
    for name, value in arguments.items():
        if name in _REFUSED:
            if value is not None:
                raise InvalidArgument(
                    f"{name}= is not supported: {_REFUSED[name]}"
                )
        elif name not in _IGNORED:
            near = difflib.get_close_matches(name, [*names, *_IGNORED], 1, 0.8)
            raise TypeError(
                "DataLoader.__init__() got an unexpected keyword argument "
                f"{name!r}" + (f": did you mean {near[0]}=?" if near else "")
            )
        elif not any(value is v or value == v for v in _IGNORED[name]):
            ignored.append(f"{name}={value!r}")
    if ignored:
        warn(
            "the daemon makes batches ahead (prefetch=) where they are used, "
            "without worker processes or pinned memory: "
            f"{', '.join(ignored)} ignored"
        )
