"""Patterns of shards, such as train-{000..146}.tar."""

from __future__ import annotations

import os
import re
from typing import List, Sequence

from ..errors import InvalidArgument

_MAX_FILES = 1 << 16  # the daemon's
_MAX_PATH_BYTES = 4096  # the daemon's
_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")


def expand(pattern: str) -> List[str]:
    """Returns the files of a pattern as the daemon does: {000..146} counts,
    zero-padded if one of the two numbers is; {a,b} lists."""
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    if any("{" in piece or "}" in piece for piece in pieces):
        raise _error(pattern, "has an unmatched brace, or nested ones")
    files = [pieces[0]]
    for inside, after in zip(pieces[1::2], pieces[2::2]):
        items = _alternatives(pattern, inside)
        if len(files) * len(items) > _MAX_FILES:
            raise _error(pattern, f"names more than {_MAX_FILES} files")
        files = [file + item + after for file in files for item in items]
    return files


def files_of(path: str) -> List[str]:
    """Returns the files of a pattern, or the path if it is none."""
    is_pattern = "{" in path and not os.path.exists(path)
    return expand(path) if is_pattern else [path]


def _alternatives(pattern: str, inside: str) -> List[str]:
    if ".." not in inside:
        if "," not in inside:
            raise _error(pattern, "has braces around one thing")
        return inside.split(",")
    match = _RANGE.fullmatch(inside)
    if match is None:
        raise _error(pattern, "has a range of something else than numbers")
    first, last = match.groups()
    begin, end = int(first), int(last)
    if abs(end - begin) >= _MAX_FILES:
        raise _error(pattern, f"names more than {_MAX_FILES} files")
    is_padded = any(len(n) > 1 and n[0] == "0" for n in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    step = 1 if begin <= end else -1
    return [str(i).zfill(width) for i in range(begin, end + step, step)]


def _error(pattern: str, what: str) -> InvalidArgument:
    return InvalidArgument(
        f"the pattern {pattern!r} {what}; expected {{000..146}} or {{a,b}}"
    )


def pattern_of(files: Sequence[str]) -> str:
    """Returns the pattern that names `files`, in this order."""
    if len(files) == 1:
        return files[0]
    begin = os.path.commonprefix(list(files))
    rest = [file[len(begin) :] for file in files]
    end = os.path.commonprefix([text[::-1] for text in rest])[::-1]
    items = [text[: len(text) - len(end)] for text in rest]
    for item in items:
        if "," in item or ".." in item:
            raise InvalidArgument(
                f"shard {begin + item + end!r}: a name with ',' or '..' "
                "cannot be in a pattern with others: rename the shards"
            )
    pattern = f"{begin}{{{','.join(items)}}}{end}"
    if len(os.fsencode(pattern)) > _MAX_PATH_BYTES:
        raise InvalidArgument(
            f"part: {len(files)} shards make a pattern of "
            f"{len(os.fsencode(pattern))} bytes, and a path has at most "
            f"{_MAX_PATH_BYTES}: use fewer and larger shards, or shorter names"
        )
    return pattern
