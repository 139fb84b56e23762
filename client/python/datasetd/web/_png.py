"""PNG files of arrays, by zlib alone."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

# By number of channels: grey, grey and alpha, RGB, RGBA.
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def _chunk(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )


def png(pixels: Any) -> bytes:
    """Returns the file of `pixels`, uint8 [H, W, C], C in 1..4."""
    import numpy

    height, width, channels = pixels.shape
    rows = numpy.zeros((height, 1 + width * channels), numpy.uint8)
    rows[:, 1:] = pixels.reshape(height, width * channels)
    header = struct.pack(
        ">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0
    )
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows.data, 1))
        + _chunk(b"IEND", b"")
    )


def data_url(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
