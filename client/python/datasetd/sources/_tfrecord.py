from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Mapping, Sequence, Union

from ..errors import InvalidArgument
from ._base import Path, library, shards

_TYPES = ("byte", "int", "float")


class _Records:
    def __init__(
        self,
        files: Sequence[str],
        features: Mapping[str, Any],
        decode: Mapping[str, Callable[[bytes], Any]],
        compression: Any,
        load: Any,
    ) -> None:
        self._files = files
        self._features = features
        self._decode = decode
        self._compression = compression
        self._load = load

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        kinds = dict(self._features.values())
        for path in self._files:
            for record in self._load(
                path, None, kinds, compression_type=self._compression
            ):
                yield {
                    field: self._value(field, record[name])
                    for field, (name, _) in self._features.items()
                }

    def _value(self, field: str, value: Any) -> Any:
        if field in self._decode:
            return self._decode[field](bytes(value))
        return value[0] if getattr(value, "shape", None) == (1,) else value


def tfrecord(
    paths: Union[Path, Sequence[Path]],
    features: Mapping[str, Any],
    decode: Mapping[str, Callable[[bytes], Any]] = {},
    compression: Any = None,
) -> Any:
    """Examples of TFRecord files, by the package `tfrecord`.

    Args:
      features: for each field the feature and its type: `{"image":
        ("image/encoded", "byte"), "label": ("image/class/label", "int")}`.
        Types are byte, int and float.
      decode: for fields of bytes a function of them, as `{"image": bytes}`
        for images, which the daemon decodes.
      compression: None or "gzip".

    A feature with one value becomes a number, any other an array (K,).
    """
    package = library("tfrecord.reader", "tfrecord", "tfrecord")
    for field, feature in features.items():
        if len(feature) != 2 or feature[1] not in _TYPES:
            raise InvalidArgument(
                f"features[{field!r}] is {feature!r}, expected (name, type) "
                f"with a type of {', '.join(_TYPES)}"
            )
    return _Records(
        shards(paths), features, decode, compression, package.tfrecord_loader
    )
