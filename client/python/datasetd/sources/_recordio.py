from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterator, Optional

from ..errors import InvalidArgument
from ._base import Path, existing, library


class _Records:
    def __init__(
        self,
        recordio: Any,
        path: str,
        decode: Callable[[bytes], Any],
        label_dtype: Optional[str],
    ) -> None:
        self._recordio = recordio
        self._path = path
        self._decode = decode
        self._label_dtype = label_dtype

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        import numpy

        file = self._recordio.MXRecordIO(self._path, "r")
        dtype = self._label_dtype
        try:
            for i in itertools.count():
                data = file.read()
                if data is None:
                    return
                header, content = self._recordio.unpack(data)
                label = header.label
                if header.flag == 0:  # a number
                    label = float(label)
                    is_whole = label.is_integer()
                    dtype = dtype or ("int64" if is_whole else "float32")
                    if dtype == "int64" and not is_whole:
                        raise InvalidArgument(
                            f"{self._path}: the label of record {i} is "
                            f"{label}, not a whole number: set "
                            "label_dtype='float32'"
                        )
                    label = numpy.dtype(dtype).type(label)
                yield {"image": self._decode(content), "label": label}
        finally:
            file.close()


def recordio(
    path: Path,
    decode: Optional[Callable[[bytes], Any]] = None,
    label_dtype: Optional[str] = None,
) -> Any:
    """Reads an MXNet RecordIO file (.rec) of images, with mxnet: `image`, and
    `label`, a number or float32 (K,).

    Args:
      decode: makes an image of a record's bytes; None: the daemon decodes it.
      label_dtype: dtype of labels that are numbers, "int64" or "float32"; None:
        int64 if the label of the first record is a whole number.
    """
    if label_dtype not in (None, "int64", "float32"):
        raise InvalidArgument(
            f"label_dtype is {label_dtype!r}, expected int64 or float32"
        )
    package = library("mxnet.recordio", "mxnet", "recordio")
    return _Records(package, existing(path), decode or bytes, label_dtype)
