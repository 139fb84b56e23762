"""Recordings among the values of samples: decoded, or as encoded files."""

from __future__ import annotations

import importlib.util
import io
from typing import Any, Dict, Mapping, NamedTuple, Optional

from ..errors import InvalidArgument
from ..sources._audio import RESAMPLE, open_sound, read_sound
from ..sources._base import Note, library
from . import encoded
from .field_names import FieldNames
from .samples import tensor_to_numpy

# First bytes: FLAC, Ogg, MP3 with and without tags.
_MAGIC = (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")
# Bytes 0 to 3 of a WAV or AIFF file, and 8 to 11.
_FORMS = {b"RIFF": b"WAVE", b"RF64": b"WAVE", b"FORM": b"AIF"}


class Waveform(NamedTuple):
    """Samples, [T] or [T, channels], and their number per second."""

    steps: Any
    rate: int


def is_audio_file(value: Any) -> bool:
    """True for a value that holds an encoded recording, by its first bytes."""
    data = encoded.data_of(value)
    if data is None:
        return False
    head = bytes(data[:12])
    form = _FORMS.get(head[:4])
    return head.startswith(_MAGIC) or (
        form is not None and head[8:].startswith(form)
    )


def waveform_of(value: Any, where: str) -> Optional[Waveform]:
    """Returns the recording that a value is, None if it is none: a dict of
    array, (T) or (channels, T), and sampling_rate, or a decoder, as Hugging
    Face's feature Audio gives them, or an encoded file."""
    import numpy

    if isinstance(value, Waveform):
        return value
    if hasattr(value, "get_all_samples"):  # a decoder of torchcodec
        decoded = value.get_all_samples()
        steps, rate = decoded.data, decoded.sample_rate
    elif isinstance(value, Mapping) and {"array", "sampling_rate"} <= set(
        value
    ):
        steps, rate = value["array"], value["sampling_rate"]
    elif is_audio_file(value):
        return decoded_file(encoded.to_bytes(value, where), where)
    else:
        return None
    if hasattr(steps, "detach"):
        steps, _ = tensor_to_numpy(steps, where)
    steps = numpy.asarray(steps)
    if steps.ndim == 2:
        steps = steps[0] if len(steps) == 1 else steps.T
    if steps.dtype == numpy.float64:
        steps = steps.astype(numpy.float32)
    return Waveform(steps, int(rate))


def decoded_file(data: bytes, where: str) -> Waveform:
    """Returns a file as soundfile reads it, float32 from -1 to 1."""
    soundfile = library("soundfile", "soundfile", "an encoded recording")
    with open_sound(soundfile, io.BytesIO(data), where) as file:
        steps = read_sound(soundfile, file, where, "float32")
        return Waveform(steps, file.samplerate)


class Recordings:
    """The fields of samples that are recordings, and their rates."""

    def __init__(self, names: FieldNames) -> None:
        self._names = names
        # None: no sample was seen yet.
        self._rates: Optional[Dict[str, int]] = None

    def replace(self, values: Dict[str, Any], where: str) -> None:
        """Puts waveforms in the places of recordings. The first sample
        determines which fields have them."""
        is_first = self._rates is None
        rates = self._rates = self._rates or {}
        for name in list(values if is_first else rates):
            place = f"{where}, field {name!r}"
            found = waveform_of(values[name], place)
            if found is None:
                if is_first:
                    continue
                raise InvalidArgument(
                    f"{place} is {type(values[name]).__name__}, and that of "
                    "the first sample a recording"
                )
            values[name] = found.steps
            if is_first:
                rates[name] = found.rate
                self._names.make_sequence(name)
                self._names.notes.append(
                    Note(f"field {name!r}: {found.rate} samples per second")
                )
            elif found.rate != rates[name]:
                raise InvalidArgument(
                    f"{place} has {found.rate} samples per second, and that of "
                    f"the first sample {rates[name]}: {RESAMPLE}"
                )


class HuggingFaceAudio:
    """The samples of a Hugging Face Dataset, whose columns of the feature
    Audio are read by soundfile, as float32, and not by its own decoder.

    As there, channels are averaged, unless the feature keeps them.
    """

    def __init__(self, dataset: Any, audio: Mapping[str, Any]) -> None:
        """`audio` has the features of these columns."""
        self._audio = audio
        self._dataset = dataset.with_format(None)
        for name, feature in audio.items():
            undecoded = type(feature)(decode=False)
            self._dataset = self._dataset.cast_column(name, undecoded)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> Dict[str, Any]:
        sample = dict(self._dataset[i])
        for name, feature in self._audio.items():
            where = f"column {name!r}, row {i}"
            sample[name] = _read(sample[name], feature, name, where)
        return sample


def _read(value: Any, feature: Any, name: str, where: str) -> Waveform:
    if value is None:
        raise InvalidArgument(
            f"{where} is None: leave such rows out, as with dataset.filter()"
        )
    data = encoded.to_bytes(value, where, may_open=True)
    steps, rate = decoded_file(data, where)
    wanted = getattr(feature, "sampling_rate", None)
    if wanted not in (None, rate):
        raise InvalidArgument(
            f"{where} has {rate} samples per second, and its feature "
            f"sampling_rate={wanted}: none is resampled here. "
            "dataset.with_transform(lambda rows: rows) pushes what datasets "
            f"decodes and resamples; dataset.cast_column({name!r}, "
            "datasets.Audio()) leaves the rate as it is"
        )
    keeps_channels = (
        getattr(feature, "mono", None) is False
        or (getattr(feature, "num_channels", None) or 1) > 1
    )
    if steps.ndim == 2 and not keeps_channels:
        steps = steps.mean(axis=1, dtype="float64").astype("float32")
    return Waveform(steps, rate)


def of_hugging_face(dataset: Any, columns: Mapping[str, str]) -> Any:
    """Returns the samples of a Dataset that has recordings among `columns`,
    names by field; None if it has none, or only its own decoder is there."""
    audio = {
        name: dataset.features[name]
        for name in columns.values()
        if type(dataset.features[name]).__name__ == "Audio"
    }
    if not audio or importlib.util.find_spec("soundfile") is None:
        return None
    return HuggingFaceAudio(
        dataset.select_columns(list(columns.values())), audio
    )


class ArrowSamples:
    """The rows of a table, as dicts of Python's values."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, i: int) -> Dict[str, Any]:
        sample: Dict[str, Any] = self._table.slice(i, 1).to_pylist()[0]
        return sample
