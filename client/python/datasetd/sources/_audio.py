from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..errors import DataLoss, InvalidArgument
from ._base import Note, Path, SampleSource, existing, library
from ._folders import class_files

_EXTENSIONS = (".wav", ".flac")
# Of the resident samples, to the type that soundfile reads.
_DTYPES = {
    "float32": "float32", "float16": "float32", "int16": "int16",
    "int32": "int32",
}  # fmt: skip
# Of the data of a WAV file, in libsndfile's log: as named, and as they are.
_SIZES = re.compile(r"^data *: (\d+) \(should be (\d+)\)", re.MULTILINE)
_NO_SIZE = 0x7FFFF000
# Of libsndfile, whose values are integers, to their bits.
_BITS = {"PCM_U8": 8, "PCM_S8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}


def open_sound(soundfile: Any, file: Any, where: str) -> Any:
    """Returns a SoundFile of a path or a file object."""
    try:
        return soundfile.SoundFile(file)
    except soundfile.SoundFileError as error:
        raise DataLoss(f"{where}: {error}") from error


def read_sound(
    soundfile: Any,
    file: Any,
    where: str,
    dtype: str,
    always_2d: bool = False,
) -> Any:
    """Returns all samples of a SoundFile; raises DataLoss if some are
    missing."""
    # libsndfile shortens what ends early. A stream's writer names no size.
    sizes = _SIZES.search(file.extra_info)
    if sizes and int(sizes[2]) < int(sizes[1]) < _NO_SIZE:
        raise DataLoss(
            f"{where}: it ends after {sizes[2]} of the {sizes[1]} bytes of "
            "samples that its header names"
        )
    try:
        samples = file.read(dtype=dtype, always_2d=always_2d)
    except soundfile.SoundFileError as error:
        raise DataLoss(f"{where}: {error}") from error
    if len(samples) != file.frames:
        raise DataLoss(
            f"{where}: it ends after {len(samples)} of {file.frames}"
        )
    return samples


class _Folder(SampleSource):
    def __init__(
        self,
        root: str,
        classes: List[str],
        files: List[Tuple[str, Optional[int]]],
        notes: List[Note],
        dtype: str,
        sample_rate: Optional[int],
        mono: bool,
    ) -> None:
        self.classes = classes
        self.notes = notes
        self.kinds = {"audio": "sequence"}
        self._soundfile = library("soundfile", "soundfile", "audio_folder")
        self._root = root
        self._files = files
        self._dtype = dtype
        self._mixes = mono
        self._read_first(sample_rate)

    def _read_first(self, sample_rate: Optional[int]) -> None:
        path = os.path.join(self._root, self._files[0][0])
        self._example = path
        with self._open(path) as file:
            self._rate = file.samplerate
            self._channels = 1 if self._mixes else file.channels
            kind = file.subtype
        if sample_rate not in (None, self._rate):
            raise InvalidArgument(
                f"{path} has {self._rate} samples per second, and sample_rate "
                f"is {sample_rate}: {RESAMPLE}"
            )
        shape = "[T]" if self._channels == 1 else f"[T, {self._channels}]"
        self.notes.append(
            Note(
                f"{self._rate} samples per second, {shape}, the first file "
                f"{kind}"
            )
        )

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> Dict[str, Any]:
        name, label = self._files[i]
        path = os.path.join(self._root, name)
        with self._open(path) as file:
            self._check(file, path)
            audio = read_sound(
                self._soundfile,
                file,
                path,
                _DTYPES[self._dtype],
                self._channels > 1,
            )
        if self._mixes and audio.ndim > 1:
            audio = audio.mean(axis=1, dtype="float64")
        sample = {"audio": audio.astype(self._dtype, copy=False)}
        return sample if label is None else {**sample, "label": label}

    def _open(self, path: str) -> Any:
        if not os.path.getsize(path):
            raise DataLoss(f"{path}: it is empty")
        # An OSError that names the file, where soundfile's does not.
        with open(path, "rb"):
            pass
        return open_sound(self._soundfile, path, path)

    def _check(self, file: Any, path: str) -> None:
        if file.samplerate != self._rate:
            raise InvalidArgument(
                f"{path} has {file.samplerate} samples per second, and "
                f"{self._example} {self._rate}: {RESAMPLE}"
            )
        if not self._mixes and file.channels != self._channels:
            raise InvalidArgument(
                f"{path} has {file.channels} channels, and {self._example} "
                f"{self._channels}: mono=True makes all of them mono, the mean "
                "of their channels"
            )
        if not self._dtype.startswith("int"):
            return
        bits = _BITS.get(file.subtype, 0)
        if not 0 < bits <= int(self._dtype[3:]):
            raise InvalidArgument(
                f"{path} is of {file.subtype}, which dtype={self._dtype!r} "
                "does not hold: use float32, or float16, which rounds"
            )


RESAMPLE = (
    "resample the files before, to one rate, as with torchaudio.functional."
    "resample or `sox IN -r RATE OUT`, or leave those of another rate out"
)


def audio_folder(
    path: Path,
    extensions: Sequence[str] = _EXTENSIONS,
    dtype: str = "float32",
    sample_rate: Optional[int] = None,
    mono: bool = False,
    classes: Any = None,
    ignore_other_classes: bool = False,
) -> Any:
    """Reads recordings from a directory with one directory per class, with the
    package soundfile: `audio`, sequences of their own lengths, [T] if the files
    are mono and else [T, channels], and `label`. Files and classes have the
    order of image_folder. A directory that contains only recordings has only
    `audio`.

    Args:
      extensions: of the files: WAV and FLAC, of 8, 16, 24 or 32 bits or
        floats, and whatever else soundfile reads.
      dtype: "float32", from -1 to 1 as torchaudio and soundfile have it;
        "float16"; or "int16" or "int32", for files of integers that have no
        more bits.
      sample_rate: in samples per second, that all files must have; None: that
        of the first one. Files of another rate are errors: none is resampled.
      mono: makes the files mono, as the mean of their channels. Otherwise files
        with other channels than the first one are errors.
      classes, ignore_other_classes: as of image_folder.
    """
    if dtype not in _DTYPES:
        raise InvalidArgument(
            f"dtype={dtype!r}; expected one of {', '.join(_DTYPES)}"
        )
    if mono and dtype.startswith("int"):
        raise InvalidArgument(
            f"mono=True with dtype={dtype!r}: a mean is not an integer; use "
            "float32"
        )
    library("soundfile", "soundfile", "audio_folder")
    root, names, files, notes = class_files(
        existing(path),
        [extensions] if isinstance(extensions, str) else extensions,
        ("recording", "recordings"),
        classes,
        ignore_other_classes,
    )
    return _Folder(root, names, files, notes, dtype, sample_rate, mono)
