from __future__ import annotations

import os
from typing import Any, Callable, Iterator

from ._base import Path, existing, library


class _Entries:
    def __init__(
        self, environment: Any, decode: Callable[[bytes, bytes], Any]
    ) -> None:
        self._environment = environment
        self._decode = decode

    def __iter__(self) -> Iterator[Any]:
        with self._environment.begin() as transaction:
            for key, value in transaction.cursor():
                if not key.startswith(b"__"):
                    yield self._decode(key, value)

    def __len__(self) -> int:
        with self._environment.begin() as transaction:
            cursor = transaction.cursor()
            has_own = cursor.set_range(b"__")
            own = cursor.iternext(values=False) if has_own else ()
            count = 0
            for key in own:
                if not key.startswith(b"__"):
                    break
                count += 1
        return int(self._environment.stat()["entries"]) - count


def lmdb(path: Path, decode: Callable[[bytes, bytes], Any]) -> Any:
    """Reads the entries of an LMDB environment, in the order of their keys.

    Args:
      decode: makes a sample, a tuple or a dict, of a key and a value, such as
        `lambda key, value: (value[8:], int.from_bytes(value[:8], "little"))`.
        The daemon decodes images that are left as bytes.

    Keys that begin with `__`, such as `__len__`, are not samples.
    """
    package = library("lmdb", "lmdb", "lmdb")
    found = existing(path)
    environment = package.open(
        found, subdir=os.path.isdir(found), readonly=True, lock=False
    )
    return _Entries(environment, decode)
