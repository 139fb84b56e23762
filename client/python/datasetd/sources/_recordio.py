from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Optional

from ._base import Path, existing, library


class _Records:
    def __init__(
        self, recordio: Any, path: str, decode: Callable[[bytes], Any]
    ) -> None:
        self._recordio = recordio
        self._path = path
        self._decode = decode

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        file = self._recordio.MXRecordIO(self._path, "r")
        try:
            while True:
                data = file.read()
                if data is None:
                    return
                header, content = self._recordio.unpack(data)
                label = header.label
                is_number = header.flag == 0
                if is_number and float(label).is_integer():
                    label = int(label)
                yield {"image": self._decode(content), "label": label}
        finally:
            file.close()


def recordio(
    path: Path, decode: Optional[Callable[[bytes], Any]] = None
) -> Any:
    """Records of an MXNet RecordIO file (.rec) of images, by mxnet: `image`,
    and `label`, whole numbers as int64, else as float32 (K,).

    `decode` makes the image of a record's bytes; unset, the daemon does.
    """
    package = library("mxnet.recordio", "mxnet", "recordio")
    return _Records(package, existing(path), decode or bytes)
