"""Writes the corpus of this folder; its files are committed.

    python3 tests/fuzz/stores/make_corpus.py
"""

import os
import struct

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
_BLOCK = 4 << 20


def _varint(value):
    value &= 2**64 - 1
    text = b""
    while value > 127:
        text += bytes([value & 127 | 128])
        value >>= 7
    return text + bytes([value])


def _number(number, value):
    return bytes([number << 3]) + _varint(value) if value else b""


def _field(number, data):
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _header(num_samples, fields, class_names=(), bad_samples=(), digit=b"a"):
    """A cache header: fields are (name, dtype, is_image, shape, bytes each)."""
    text = _field(1, digit * 64) + _field(2, b"0" * 64)
    text += _number(5, num_samples)
    for name, dtype, is_image, shape, _ in fields:
        extents = b"".join(map(_varint, shape))
        text += _field(6, _field(1, name) + _number(2, dtype)
                       + (_field(3, extents) if shape else b"")
                       + _number(4, is_image))
    text += b"".join(_field(8, name) for name in class_names)
    text += _number(9, len(bad_samples))
    text += b"".join(
        _field(10, _number(1, index) + _field(2, path) + _field(4, reason))
        for index, path, reason in bad_samples)
    for _, _, _, shape, item in fields:
        size = item * num_samples
        for extent in shape:
            size *= extent
        text += _field(11, _field(1, bytes(8) * max(0, -(-size // _BLOCK))))
    return text


_IMAGE = (b"image", 1, 1, (4, 4, 3), 1)
_LABEL = (b"label", 4, 0, (), 8)

_CACHE = {
    "empty": b"",
    "mode": b"\1",
    "small": b"\1" + _header(3, [_IMAGE, _LABEL], [b"cat", b""],
                              [(2, b"/a/\xff", b"cut")]),
    "scalar": b"\1" + _header(1, [_LABEL]),
    "two_blocks_of_samples": b"\1" + _header(100000, [(b"x", 7, 0, (11,), 4)]),
    "no_samples": b"\1" + _header(0, [_LABEL]),
    "no_fields": b"\1" + _header(3, []),
    "negative": b"\1" + _header(1, [(b"x", 1, 1, (-1, 4), 1)]),
    "overflow": b"\1" + _header(1, [(b"x", 8, 0, (), 8)]).replace(
        _number(5, 1), _number(5, 2**62)),
    "dtype": b"\1" + _header(1, [(b"x", 99, 0, (), 0)]),
    "unknown_field": b"\1" + _header(1, [_LABEL]) + _number(15, 1),
    "bad_id": b"\1" + _header(1, [_LABEL], digit=b"/"),
    "raw": b"dsdcache" + struct.pack("<IIQQ", 4, 0, 32, 0),
    "raw_size": b"dsdcache" + struct.pack("<IIQQ", 4, 0, 2**63, 0),
    "raw_version": b"dsdcache" + struct.pack("<IIQQ", 1, 0, 40, 0) + bytes(8),
}


def _entry(name, content_hash=b"0" * 32):
    spec = (_field(1, name) + _field(2, b"npy") + _field(3, b"/data/a") +
            _field(7, _field(1, b"key") + _field(2, b"value")))
    return _field(1, _field(1, spec) + b"\x10\xe8\x07" +
                  _field(3, content_hash))


_MANIFEST = {
    "empty": b"",
    "none": b"\1",
    "one": b"\1" + _entry(b"a"),
    "two": b"\1" + _entry(b"a") + _entry(b"b"),
    "doubled": b"\1" + _entry(b"a") + _entry(b"a"),
    "bad_name": b"\1" + _entry(b"../a"),
    "no_hash": b"\1" + _entry(b"a", b""),
    "damaged": b"\2\x50\0\1" + _entry(b"a") + _entry(b"b"),
    "raw": b"dsdmanif" + struct.pack("<IIQ", 1, 0, 0x2d06800538d394c2),
    "raw_size": b"dsdmanif" + struct.pack("<IIQ", 1, 2**32 - 1, 0),
}

for folder, files in (("cache_entry", _CACHE), ("manifest", _MANIFEST)):
    os.makedirs(os.path.join(_HERE, folder), exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(_HERE, folder, name), "wb") as file:
            file.write(data)
