"""Ops on sequences: waveforms [T] and [T, C], spectrograms [F, T] and
[C, F, T]. They are for fields of numbers, which are not images."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Union

from ..errors import InvalidArgument
from . import _checks
from ._base import GatedOp, Transform
from ._checks import Fields

__all__ = [
    "AddNoise",
    "AmplitudeToDB",
    "FrequencyMasking",
    "Gain",
    "MelSpectrogram",
    "PolarityInversion",
    "Shift",
    "TimeMasking",
    "Vol",
]


class Vol(Transform):
    """Multiplies a waveform by a constant and clamps it to -1..1.

    `gain` is a factor; with the `gain_type` "power" a ratio of powers, and with
    "db" decibels. The default is "amplitude".

    Example: T.Vol(-6, "db")
    """

    def __init__(
        self,
        gain: float,
        gain_type: str = "amplitude",
        *,
        fields: Fields = None,
    ) -> None:
        self.gain = gain
        self.gain_type = gain_type
        super().__init__(fields)
        if self.gain < 0 and self.gain_type != "db":
            raise _checks.fail(
                self, "gain", gain, 'a number of 0 or more, or gain_type="db"'
            )
        if self.gain == 0 and self.gain_type == "power":
            raise _checks.fail(self, "gain", gain, "a ratio above 0")


class Gain(Transform):
    """Multiplies a waveform by a drawn gain, with probability `p`.

    The gain is uniform in decibels, from `min_gain_in_db` to `max_gain_in_db`,
    by default from -18 to 6; `p` is 0.5 by default. The result is not clamped.
    As in torch-audiomentations.

    Example: T.Gain(-12, 12, p=1)
    """

    def __init__(
        self,
        min_gain_in_db: float = -18.0,
        max_gain_in_db: float = 6.0,
        p: float = 0.5,
        *,
        fields: Fields = None,
    ) -> None:
        self.min_gain_in_db = min_gain_in_db
        self.max_gain_in_db = max_gain_in_db
        self.p = p
        super().__init__(fields)
        _check_order(self, "min_gain_in_db", "max_gain_in_db")


class PolarityInversion(GatedOp):
    """Multiplies a waveform by -1, with probability `p`, by default 0.5.

    As in torch-audiomentations.

    Example: T.PolarityInversion(p=0.5)
    """


class Shift(Transform):
    """Moves a waveform along time by a drawn shift, with probability `p`.

    The shift is from `min_shift` to `max_shift`, both possible, by default half
    of the length in either direction; a positive one moves the waveform later.
    `shift_unit` is "fraction", of the length, or "samples". With `rollover`,
    the default, what leaves at one end enters at the other; without, zeros
    enter. `p` is 0.5 by default. Of a crop the steps of its sequence are moved.
    As in torch-audiomentations.

    Example: T.Shift(-0.1, 0.1, rollover=False, p=1)
    """

    def __init__(
        self,
        min_shift: float = -0.5,
        max_shift: float = 0.5,
        shift_unit: str = "fraction",
        rollover: bool = True,
        p: float = 0.5,
        *,
        fields: Fields = None,
    ) -> None:
        self.min_shift = min_shift
        self.max_shift = max_shift
        self.shift_unit = shift_unit
        self.rollover = rollover
        self.p = p
        super().__init__(fields)
        _check_order(self, "min_shift", "max_shift")


class AddNoise(Transform):
    """Adds a recording of another dataset at a drawn signal-to-noise ratio.

    `noise` is a Dataset, or the name of one, on the device of the loader; the
    loader's own may be one. For each sample a recording of it, the part that is
    used, and the ratio are drawn uniformly: `snr` is in decibels, a number or
    (min, max), by default from 0 to 20. A recording that is shorter than the
    waveform is repeated. With probability `p`, by default 1. `field` is the
    field of the noise; None: that of the waveform's name, else the only one.

    The noise has one channel, or as many as the waveform; the ratio is that of
    each channel, by its energy and the noise's. A channel without energy, its
    own or the noise's, stays as it is. As in torchaudio.

    Example: T.AddNoise("noise", (5, 20))
    """

    def __init__(
        self,
        noise: Any,
        snr: Union[float, Sequence[float]] = (0.0, 20.0),
        p: float = 1.0,
        field: Optional[str] = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.noise = getattr(noise, "name", noise)
        if not isinstance(self.noise, str) or not self.noise:
            raise _checks.fail(self, "noise", noise, "a Dataset, or its name")
        ends = snr if _checks.is_sequence(snr) else (snr, snr)
        self.snr = _checks.interval(self, "snr", ends)
        self.p = p
        self.field = field
        super().__init__(fields)
        self.noise = noise

    def _parameters(self) -> Dict[str, Any]:
        name = getattr(self.noise, "name", self.noise)
        return {**super()._parameters(), "noise": name}


class MelSpectrogram(Transform):
    """Makes a mel spectrogram of a waveform, with a Hann window.

    [T] becomes [n_mels, frames], and [T, C] becomes [C, n_mels, frames].
    Arguments and defaults are those of torchaudio: `sample_rate` in Hz, the
    lengths `n_fft`, `win_length` (n_fft) and `hop_length` (half of win_length)
    in samples, filters from `f_min` to `f_max` (half of sample_rate) in Hz,
    `pad` zeros on both sides, `n_mels` filters. `power` is the exponent of the
    magnitude, `normalized` divides by the window's norm, and `center` pads the
    waveform by half a frame on both sides, by `pad_mode`: "reflect",
    "constant", "replicate" or "circular". `norm` is None or "slaney",
    `mel_scale` "htk" or "slaney".

    Example: T.MelSpectrogram(16000, n_fft=400, hop_length=160, n_mels=64)
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        win_length: Optional[int] = None,
        hop_length: Optional[int] = None,
        f_min: float = 0.0,
        f_max: Optional[float] = None,
        pad: int = 0,
        n_mels: int = 128,
        *,
        power: float = 2.0,
        normalized: bool = False,
        center: bool = True,
        pad_mode: str = "reflect",
        norm: Optional[str] = None,
        mel_scale: str = "htk",
        fields: Fields = None,
    ) -> None:
        self.sample_rate = sample_rate
        self.n_fft = n_fft
        self.win_length = win_length
        self.hop_length = hop_length
        self.f_min = f_min
        self.f_max = f_max
        self.pad = pad
        self.n_mels = n_mels
        self.power = power
        self.normalized = normalized
        self.center = center
        self.pad_mode = pad_mode
        self.norm = norm
        self.mel_scale = mel_scale
        super().__init__(fields)


class AmplitudeToDB(Transform):
    """Converts to decibels: 10 log10(x), with x at least 1e-10.

    `stype` is "power", the default, or "magnitude", which doubles the result.
    With `top_db` no value is further below the largest one of its sample.

    Example: T.AmplitudeToDB(top_db=80)
    """

    def __init__(
        self,
        stype: str = "power",
        top_db: Optional[float] = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.stype = stype
        self.top_db = top_db
        super().__init__(fields)


class TimeMasking(Transform):
    """Sets a drawn range of a spectrogram's frames to `mask_value`.

    The range has fewer than `time_mask_param` frames, and at most the fraction
    `p` of all, by default 1. `iid_masks` draws one for each channel; it is
    False by default, as mask_value is 0. Of a crop: of the frames of its
    sequence.

    Example: T.TimeMasking(20, p=0.5)
    """

    def __init__(
        self,
        time_mask_param: int,
        iid_masks: bool = False,
        p: float = 1.0,
        mask_value: float = 0.0,
        *,
        fields: Fields = None,
    ) -> None:
        self.time_mask_param = time_mask_param
        self.iid_masks = iid_masks
        self.p = p
        self.mask_value = mask_value
        super().__init__(fields)


class FrequencyMasking(Transform):
    """Sets a drawn range of a spectrogram's frequencies to `mask_value`.

    The range has fewer than `freq_mask_param` of them. `iid_masks` draws one
    for each channel; it is False by default, as mask_value is 0. Of a crop only
    the frames of its sequence are set.

    Example: T.FrequencyMasking(8)
    """

    def __init__(
        self,
        freq_mask_param: int,
        iid_masks: bool = False,
        mask_value: float = 0.0,
        *,
        fields: Fields = None,
    ) -> None:
        self.freq_mask_param = freq_mask_param
        self.iid_masks = iid_masks
        self.mask_value = mask_value
        super().__init__(fields)


def _check_order(op: Transform, low: str, high: str) -> None:
    values = vars(op)
    if values[low] > values[high]:
        raise InvalidArgument(
            f"{op._op.title}: {low}={values[low]:g} is above "
            f"{high}={values[high]:g}; expected them in that order"
        )
