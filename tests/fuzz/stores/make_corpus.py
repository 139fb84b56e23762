"""Writes the corpus of this folder; its files are committed.

    python3 tests/fuzz/stores/make_corpus.py
"""

import os
import struct

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
_BLOCK = 4 << 20


def _text(text):
    return struct.pack("<I", len(text)) + text


def _body(num_samples, fields, class_names=(), notes=(), digit=b"a"):
    """A cache header: fields are (name, dtype, flags, sizes, bytes each)."""
    body = _text(digit * 64) + _text(b"0" * 64) + bytes(9) + struct.pack(
        "<qI", num_samples, len(fields))
    for name, dtype, flags, shape, _ in fields:
        body += _text(name) + struct.pack("<BBI", dtype, flags, len(shape))
        body += b"".join(struct.pack("<q", extent) for extent in shape)
    body += struct.pack("<I", len(class_names))
    body += b"".join(map(_text, class_names))
    body += struct.pack("<I", len(notes))
    body += b"".join(_text(key) + _text(value) for key, value in notes)
    for _, _, _, shape, item in fields:
        size = item * num_samples
        for extent in shape:
            size *= extent
        body += bytes(8) * max(0, -(-size // _BLOCK))
    return body


_IMAGE = (b"image", 1, 1, (4, 4, 3), 1)
_LABEL = (b"label", 4, 0, (), 8)

_CACHE = {
    "empty": b"",
    "mode": b"\1",
    "small": b"\1" + _body(3, [_IMAGE, _LABEL], [b"cat", b""], [(b"k", b"v")]),
    "scalar": b"\1" + _body(1, [_LABEL]),
    "two_blocks_of_samples": b"\1" + _body(100000, [(b"x", 7, 0, (11,), 4)]),
    "no_samples": b"\1" + _body(0, [_LABEL]),
    "no_fields": b"\1" + _body(3, []),
    "negative": b"\1" + _body(1, [(b"x", 1, 1, (-1, 4), 1)]),
    "overflow": b"\1" + _body(1, [(b"x", 8, 0, (), 8)])[:141]
                + struct.pack("<q", 2**62),
    "dtype": b"\1" + _body(1, [(b"x", 99, 0, (), 0)]),
    "flags": b"\1" + _body(1, [(b"x", 1, 255, (), 1)]),
    "bad_id": b"\1" + _body(1, [_LABEL], digit=b"/"),
    "raw": b"dsdcache" + struct.pack("<IIQQ", 3, 0, 32, 0),
    "raw_size": b"dsdcache" + struct.pack("<IIQQ", 3, 0, 2**63, 0),
    "raw_version": b"dsdcache" + struct.pack("<IIQQ", 1, 0, 40, 0) + bytes(8),
}


def _field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


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
    "raw": b"dsdmanif" + struct.pack("<IIQ", 1, 0, 0x2d06800538d394c2),
    "raw_size": b"dsdmanif" + struct.pack("<IIQ", 1, 2**32 - 1, 0),
}

for folder, files in (("cache_entry", _CACHE), ("manifest", _MANIFEST)):
    os.makedirs(os.path.join(_HERE, folder), exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(_HERE, folder, name), "wb") as file:
            file.write(data)
