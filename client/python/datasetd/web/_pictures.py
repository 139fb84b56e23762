"""Bad samples as files that a browser shows, read with this user's rights."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
import zlib
from typing import BinaryIO, cast

from .. import errors
from .._descriptions import BadSample
from ._png import data_url

_MAX_BYTES = 8 << 20
# A sample of a compressed archive is shown if it begins before this offset,
# up to which the archive has to be inflated.
_MAX_INFLATED_BYTES = 256 << 20

# First bytes of what a browser shows.
_KINDS = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"BM": "image/bmp",
    b"GIF8": "image/gif",
}


def picture(dataset_path: str, format: str, bad: BadSample) -> str:
    """Returns the picture as a data URL. Raises datasetd's errors."""
    path = os.path.join(dataset_path, bad.path)
    where = f"{path}, offset {bad.offset}" if bad.offset else path
    with _opened(path) as file:
        if format == "webdataset":
            content = _tar_member(file, bad.offset, where)
        elif bad.offset:
            raise errors.Unimplemented(
                f"{where}: samples of {format} files are not shown"
            )
        else:
            content = file.read(_MAX_BYTES + 1)
            _check_size(len(content), where)
    for magic, kind in _KINDS.items():
        if content.startswith(magic):
            return data_url(content, kind)
    raise errors.InvalidArgument(
        f"{where} does not begin as a JPEG, PNG, BMP or GIF does"
    )


def _opened(path: str) -> BinaryIO:
    try:
        # A path may name a pipe, which an open would wait for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise errors.NotFound(f"{path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise errors.NotFound(f"{path} is not a file")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_size(size: int, where: str) -> None:
    if size > _MAX_BYTES:
        raise errors.ResourceExhausted(
            f"{where} has more than {_MAX_BYTES >> 20} MiB"
        )
    if size < 0:
        raise errors.DataLoss(f"{where}: the size is {size}")


def _tar_member(file: BinaryIO, offset: int, where: str) -> bytes:
    """Returns the file of a tar archive whose content is at `offset`."""
    magic = file.read(2)
    if magic == b"\x1f\x8b":
        if offset > _MAX_INFLATED_BYTES:
            raise errors.ResourceExhausted(
                f"{where}: too far within a compressed archive"
            )
        file.seek(0)
        file = cast(BinaryIO, gzip.GzipFile(fileobj=file))
    try:
        file.seek(max(0, offset - tarfile.BLOCKSIZE))
        header = tarfile.TarInfo.frombuf(
            file.read(tarfile.BLOCKSIZE), "utf-8", "replace"
        )
        _check_size(header.size, where)
        return file.read(header.size)
    except (tarfile.HeaderError, EOFError, OSError, zlib.error) as error:
        raise errors.DataLoss(f"{where}: {error}") from None
