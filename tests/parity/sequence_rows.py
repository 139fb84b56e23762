"""Cases of the ops on sequences, and two judges: NumPy in double precision, and
torchaudio, where it is installed.

Judges get the random numbers of a sample, by docs/randomness.md.
"""

import dataclasses
from typing import List, Tuple

import numpy as np

from tests.conformance.random_reference import philox

SEED, EPOCH = 7, 1
DTYPES = {
    "DTYPE_FLOAT16": "float16",
    "DTYPE_BFLOAT16": "bfloat16",
    "DTYPE_FLOAT32": "float32",
}


@dataclasses.dataclass
class Case:
    """Ops on a sample of a field of numbers."""

    transforms: List[dict]
    shape: Tuple[int, ...] = (1600,)
    dtype: str = "float32"
    # The largest difference, as a part of the largest result.
    bound: float = 1e-6
    # Instead, where logarithms are.
    decibels: float = 0.0
    num_samples: int = 1
    # Recordings for add_noise.
    noise: List[np.ndarray] = dataclasses.field(default_factory=list)

    def __str__(self):
        noise = [(str(x.dtype), x.shape) for x in self.noise]
        return f"{self.dtype} {self.shape} {self.transforms} {noise or ''}"

    def input(self, sample):
        """Noise and tones, within the range of the dtype."""
        rng = np.random.default_rng(sample)
        ones = [1] * (len(self.shape) - 1)
        t = np.arange(self.shape[0]).reshape(-1, *ones) if self.shape else 0
        tones = np.sin(0.1 * t) + 0.3 * np.sin(1.7 * t + 1)
        x = 0.3 * rng.standard_normal(self.shape) + 0.5 * tones
        if np.issubdtype(np.dtype(self.dtype), np.integer):
            limits = np.iinfo(self.dtype)
            scaled = np.clip(x / 4 + (limits.min == 0) / 2, -0.9, 0.9)
            return (scaled * limits.max).astype(self.dtype)
        return np.asarray(x, self.dtype)


class Draws:
    """The uniform numbers of an op on a sample, each draw four words."""

    def __init__(self, op_index, sample):
        self._op_index, self._sample = op_index, sample

    def words(self, draw):
        counter = [draw, self._op_index, EPOCH, self._sample]
        return philox(counter, SEED)

    def floats(self, draw):
        return [np.float32(word >> 8) / np.float32(2**24)
                for word in self.words(draw)]

    def passes(self, p):
        return p >= 1 or self.floats(0)[0] < np.float32(p)


def hertz_of(mel, scale):
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    mel = np.asarray(mel, np.float64)
    return np.where(mel < 15, mel * 200 / 3,
                    1000 * np.exp(np.log(6.4) / 27 * (mel - 15)))


def mel_of(hertz, scale):
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    if hertz < 1000:
        return hertz * 3 / 200
    return 15 + np.log(hertz / 1000) * 27 / np.log(6.4)


class NumpyJudge:
    """Formulas, in double precision."""

    def vol(self, x, gain, gain_type):
        if gain_type == "db":
            gain = 10 ** (gain / 20)
        return np.clip(x * (gain**0.5 if gain_type == "power" else gain), -1, 1)

    def mel_spectrogram(
        self, x, *, sample_rate, n_fft, win_length, hop_length, f_min, f_max,
        pad, n_mels, power, normalized, center, pad_mode, norm, mel_scale,
    ):
        length = win_length or n_fft
        hop = hop_length or length // 2
        window = np.zeros(n_fft)
        begin = (n_fft - length) // 2
        turns = np.arange(length) / length
        window[begin : begin + length] = (
            0.5 - 0.5 * np.cos(2 * np.pi * turns) if length > 1 else 1
        )
        x = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (pad, pad)])
        if center:
            mode = {"replicate": "edge", "circular": "wrap"}
            both = (n_fft // 2, n_fft // 2)
            x = np.pad(x, [*[(0, 0)] * (x.ndim - 1), both],
                       mode=mode.get(pad_mode, pad_mode))
        frames = np.lib.stride_tricks.sliding_window_view(x, n_fft, axis=-1)
        bins = np.abs(np.fft.rfft(frames[..., ::hop, :] * window))
        if normalized:
            bins = bins / np.sqrt((window**2).sum())
        hertz = np.linspace(0, sample_rate // 2, n_fft // 2 + 1)
        top = sample_rate // 2 if f_max is None else f_max
        corners = hertz_of(
            np.linspace(mel_of(f_min, mel_scale), mel_of(top, mel_scale),
                        n_mels + 2),
            mel_scale,
        )
        low, middle, high = (corners[i : i + n_mels] for i in range(3))
        rise = (hertz[:, None] - low) / (middle - low)
        fall = (high - hertz[:, None]) / (high - middle)
        filters = np.maximum(0, np.minimum(rise, fall))
        if norm == "slaney":
            filters = filters * 2 / (high - low)
        return np.swapaxes(bins**power @ filters, -1, -2)

    def add_noise(self, x, noise, snr):
        """Of [C, T] each; C of the noise may be 1."""
        noise = np.broadcast_to(noise, x.shape)
        energies = [(y.astype(np.float64) ** 2).sum(-1) for y in (x, noise)]
        scale = 10 ** (
            (10 * np.log10(energies[0] / energies[1]) - snr) / 20
        )
        return x + scale[:, None] * noise

    def amplitude_to_db(self, x, stype, top_db):
        factor = 10 if stype == "power" else 20
        x = factor * np.log10(np.maximum(x, 1e-10))
        return x if top_db is None else np.maximum(x, x.max() - top_db)

    def mask(self, x, axis, param, value, p, is_iid, draws):
        size = x.shape[axis]
        longest = min(param, size if p == 1 else int(size * p))
        if p == 1:
            longest = param
        x = x.copy()
        if longest < 1:
            return x
        planes = x.reshape(-1, *x.shape[-2:])
        for c, plane in enumerate(planes):
            u, v = draws.floats(1 + (c if is_iid else 0))[:2]
            length = np.float32(u) * np.float32(longest)
            first = np.float32(v) * (np.float32(size) - length)
            begin = int(first)
            places = np.arange(size)
            inside = (places >= begin) & (places < begin + int(length))
            (plane.T if axis == -1 else plane)[inside] = value
        return planes.reshape(x.shape)


class TorchaudioJudge(NumpyJudge):
    """torchaudio itself."""

    def __init__(self):
        import torch
        import torchaudio

        self.torch = torch
        self.functional = torchaudio.functional
        self.transforms = torchaudio.transforms

    def vol(self, x, gain, gain_type):
        op = self.transforms.Vol(gain, gain_type)
        return op(self.torch.from_numpy(x)).numpy()

    def add_noise(self, x, noise, snr):
        noise = np.broadcast_to(noise, x.shape).astype(np.float32)
        return self.functional.add_noise(
            self.torch.from_numpy(np.ascontiguousarray(x)),
            self.torch.from_numpy(np.ascontiguousarray(noise)),
            self.torch.full(x.shape[:1], snr),
        ).numpy()

    def mel_spectrogram(self, x, **arguments):
        op = self.transforms.MelSpectrogram(**arguments)
        return op(self.torch.from_numpy(np.ascontiguousarray(x))).numpy()

    def amplitude_to_db(self, x, stype, top_db):
        op = self.transforms.AmplitudeToDB(stype, top_db)
        return op(self.torch.from_numpy(x)).numpy()

    def mask(self, x, axis, param, value, p, is_iid, draws):
        # torchaudio's own code, with the sample's numbers.
        planes = x.reshape(-1, *x.shape[-2:])
        channels = range(len(planes) if is_iid else 1)
        numbers = [draws.floats(1 + c)[:2] for c in channels]
        rows = iter(np.asarray(numbers, np.float32).T)
        torch = self.torch
        rand, torch.rand = torch.rand, lambda *a, **k: torch.from_numpy(
            next(rows).copy()
        )
        try:
            if is_iid:
                return self.functional.mask_along_axis_iid(
                    torch.from_numpy(planes)[None], param, value, axis % 2 + 2,
                    p,
                )[0].numpy().reshape(x.shape)
            return self.functional.mask_along_axis(
                torch.from_numpy(x), param, value, x.ndim + axis, p
            ).numpy()
        finally:
            torch.rand = rand


def _name(value):
    """The last word of an enumerator, in lower case."""
    return value.rsplit("_", 1)[1].lower()


def judged(judge, case, x, sample):
    """What a judge makes of a sample."""
    is_wave = True
    dtype = "float32" if case.dtype == "float32" else None
    result = x
    position = 0

    def run(transforms, result, dtype, is_wave, is_on):
        nonlocal position
        for transform in transforms:
            (name, op), = transform.items()
            draws = Draws(position, sample)
            position += 1
            if name == "random_apply":
                result, dtype, is_wave = run(
                    op["transforms"], result, dtype, is_wave,
                    is_on and draws.passes(op["p"]),
                )
            elif is_on:
                result, dtype, is_wave = _apply(
                    judge, name, op, result, dtype, is_wave, draws, case.noise
                )
        return result, dtype, is_wave

    result, dtype, _ = run(case.transforms, result, dtype, is_wave, True)
    if dtype == "float16":
        return np.asarray(result, np.float16).astype(np.float32)
    if dtype == "bfloat16":
        return _bfloat16(np.asarray(result, np.float32))
    return np.asarray(result)


def _bfloat16(x):
    """The nearest numbers of which a float32's upper half is left; of two, the
    even one."""
    bits = x.view(np.uint32)
    return (bits + (0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(
        np.uint32).view(np.float32)


def _with_noise(judge, op, x, draws, noise):
    if not draws.passes(op.get("p", 1)):
        return x
    words = draws.words(1)
    low, high = (op["snr"][end] for end in ("min", "max"))
    snr = low + (high - low) * float(draws.floats(1)[0])
    recording = noise[words[1] * len(noise) >> 32]
    if not len(recording):
        return x
    left = len(recording) - len(x)
    starts = left + 1 if left >= 0 else len(recording)
    begin = words[2] * starts >> 32
    added = recording[(begin + np.arange(len(x))) % len(recording)]
    channels = x.reshape(len(x), -1).T
    added = added.reshape(len(x), -1).T
    silent = ~(channels.any(-1) & added.any(-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        result = judge.add_noise(channels, added, snr)
    result = np.where(silent[:, None], channels, result)
    return result.T.reshape(x.shape)


def _apply(judge, name, op, x, dtype, is_wave, draws, noise):
    """The result, its dtype, and whether it is a waveform still."""
    if name == "to_dtype":
        divisor = 1.0
        if op.get("scale") and np.issubdtype(x.dtype, np.integer):
            divisor = np.float64(np.iinfo(x.dtype).max)
        scaled = (x.astype(np.float64) / divisor).astype(np.float32)
        return scaled, DTYPES[op["dtype"]], is_wave
    if name == "normalize":
        mean, std = np.float32(op["mean"]), np.float32(op["std"])
        if len(mean) == 1:
            mean, std = mean[0], std[0]
        elif x.ndim == 3:
            mean, std = mean[:, None, None], std[:, None, None]
        return (x - mean) / std, dtype, is_wave
    if name == "vol":
        kind = _name(op.get("gain_type", "_AMPLITUDE"))
        return judge.vol(x, op["gain"], kind), dtype, is_wave
    if name == "add_noise":
        return _with_noise(judge, op, x, draws, noise), dtype, is_wave
    if name in ("gain", "polarity_inversion", "shift"):
        if not draws.passes(op.get("p", 0.5)):
            return x, dtype, is_wave
        if name == "polarity_inversion":
            return -x, dtype, is_wave
        word = draws.words(1)[0]
        if name == "gain":
            low, high = op["min_gain_in_db"], op["max_gain_in_db"]
            decibels = low + (high - low) * float(draws.floats(1)[0])
            return x * np.float32(10 ** (decibels / 20)), dtype, is_wave
        unit = len(x) if _name(op["shift_unit"]) == "fraction" else 1
        low, high = (round(op[end] * unit) for end in ("min_shift", "max_shift"))
        steps = low + (word * (high - low + 1) >> 32)
        moved = np.roll(x, steps, axis=0)
        if not op.get("rollover", True):
            if steps >= 0:
                moved[:steps] = 0
            else:
                moved[steps:] = 0
        return moved, dtype, is_wave
    if name == "mel_spectrogram":
        arguments = {
            "sample_rate": 16000, "n_fft": 400, "win_length": None,
            "hop_length": None, "f_min": 0.0, "f_max": None, "pad": 0,
            "n_mels": 128, "power": 2.0, "normalized": False, "center": True,
            "pad_mode": "reflect", "norm": None, "mel_scale": "htk",
        }
        for key, value in op.items():
            arguments[key] = _name(value) if isinstance(value, str) else value
        if arguments["norm"] == "none":
            arguments["norm"] = None
        x = np.asarray(x, np.float32)
        return judge.mel_spectrogram(x.T, **arguments), dtype, False
    if name == "amplitude_to_db":
        kind = _name(op.get("stype", "_POWER"))
        return judge.amplitude_to_db(x, kind, op.get("top_db")), dtype, False
    axis, param = (
        (-1, op["time_mask_param"]) if name == "time_masking"
        else (-2, op["freq_mask_param"])
    )
    masked = judge.mask(
        np.asarray(x), axis, param, op.get("mask_value", 0.0), op.get("p", 1.0),
        op.get("iid_masks", False), draws,
    )
    return masked, dtype, False


def _to(dtype, scale=False):
    return {"to_dtype": {"dtype": "DTYPE_" + dtype.upper(), "scale": scale}}


def _mel(**parameters):
    return {"mel_spectrogram": parameters}


_SHAPES = ((1,), (7,), (1600,), (333, 1), (500, 2), (90, 25))


def _plain_cases():
    for shape in _SHAPES:
        for gain, kind in ((0, "AMPLITUDE"), (0.5, "AMPLITUDE"),
                           (3, "AMPLITUDE"), (2, "POWER"), (0.01, "POWER"),
                           (-6, "DB"), (10, "DB")):
            yield Case([{"vol": {"gain": gain, "gain_type": "GAIN_TYPE_" + kind}}],
                       shape)
        for p in (0, 0.5, 1):
            yield Case([{"polarity_inversion": {"p": p}}], shape, num_samples=4)
            for low, high in ((-18, 6), (-200, 0), (0, 0), (6, 200)):
                yield Case([{"gain": {"min_gain_in_db": low,
                                      "max_gain_in_db": high, "p": p}}],
                           shape, num_samples=3)
            for low, high, unit in ((-0.5, 0.5, "FRACTION"), (-1, -1, "FRACTION"),
                                    (1, 1, "FRACTION"), (0, 0, "SAMPLES"),
                                    (-shape[0], shape[0], "SAMPLES")):
                for rollover in (True, False):
                    yield Case(
                        [{"shift": {"min_shift": low, "max_shift": high,
                                    "shift_unit": "SHIFT_UNIT_" + unit,
                                    "rollover": rollover, "p": p}}],
                        shape, num_samples=3,
                    )
    for dtype in ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64"):
        for to in ("float16", "bfloat16", "float32"):
            yield Case([_to(to, scale=True)], (300, 2), dtype)
    yield Case([_to("float32"), {"normalize": {"mean": [0], "std": [32768]}}],
               (50,), "int16")
    yield Case([{"normalize": {"mean": [0.5], "std": [0.25]}}], (40, 3))
    for channels in (2, 25):
        mean = [0.1 * c - 1 for c in range(channels)]
        std = [0.5 + c for c in range(channels)]
        yield Case([{"normalize": {"mean": mean, "std": std}}], (31, channels))
        yield Case([{"normalize": {"mean": mean, "std": std}}],
                   (channels, 9, 11))
    yield Case([{"normalize": {"mean": [3], "std": [2]}}], (2, 3, 2, 2))
    yield Case([{"normalize": {"mean": [3], "std": [2]}}], ())
    group = {"random_apply": {"p": 0.5, "transforms": [
        {"vol": {"gain": 0.25}}, {"polarity_inversion": {"p": 0.5}}]}}
    yield Case([_to("float32", scale=True), group, {"vol": {"gain": 2}}, _to("float16")],
               (64, 2), "int16", num_samples=6)


def _recordings(dtype, sizes, channels=0):
    rng = np.random.default_rng(len(sizes))
    shape = (channels,) if channels else ()
    found = [rng.standard_normal((size, *shape)) for size in sizes]
    if dtype.startswith("int"):
        # torchaudio's energies of larger ones are infinite.
        most = min(np.iinfo(dtype).max, 2**31 - 1)
        return [(x * 0.2 * most).clip(-most, most).astype(dtype)
                for x in found]
    return [x.astype(dtype) for x in found]


def _noise_cases():
    def add(low, high, p=1.0):
        return {"add_noise": {"snr": {"min": low, "max": high}, "p": p}}

    for shape in _SHAPES:
        channels = shape[1] if len(shape) > 1 else 0
        for low, high in ((0, 20), (-200, -200), (-30, 200), (10, 10)):
            yield Case([add(low, high)], shape, num_samples=4, bound=1e-5,
                       noise=_recordings("float32", (5, 700, 0, 4000)))
        for dtype in ("int8", "int16", "int32", "int64", "float16", "float32",
                      "float64"):
            yield Case([add(0, 20)], shape, num_samples=2, bound=1e-5,
                       noise=_recordings(dtype, (333, 12), channels))
    yield Case([add(0, 20, 0)], noise=_recordings("float32", (9,), 1))
    yield Case([_to("float32", scale=True), add(0, 20, 0.5), add(5, 5),
                _to("float16")], (300, 2), "int16", bound=1e-3, num_samples=6,
               noise=_recordings("int16", (100, 400), 1))
    # Silence: of the noise, of a channel of it.
    yield Case([add(0, 20)], noise=[np.zeros(30, np.float32)])
    half = _recordings("float32", (900,), 2)
    half[0][:, 1] = 0
    yield Case([add(0, 20)], (500, 2), bound=1e-5, noise=half)


# torchaudio computes the corners of the filters in float32, as the daemon does;
# NumPy, in double precision, differs most where frequencies are lowest.
def _mel_cases():
    for parameters in (
        {}, {"n_fft": 512, "n_mels": 1}, {"n_fft": 512, "n_mels": 40},
        {"n_fft": 400, "hop_length": 160, "n_mels": 80},
        {"n_fft": 480, "hop_length": 10, "n_mels": 40},
        {"n_fft": 1024, "n_mels": 128, "sample_rate": 22050},
        {"n_fft": 1200, "n_mels": 60}, {"n_fft": 401, "n_mels": 64},
        {"n_fft": 253, "n_mels": 20}, {"n_fft": 2, "n_mels": 1},
        {"n_fft": 3, "n_mels": 1, "hop_length": 1}, {"n_fft": 434, "n_mels": 30},
        {"win_length": 320, "n_mels": 40}, {"win_length": 1, "hop_length": 100,
                                             "n_mels": 40},
        {"win_length": 301, "hop_length": 1600, "n_mels": 40},
        {"f_min": 20, "f_max": 7600, "n_mels": 64},
        {"f_min": 4000, "f_max": 12000, "n_mels": 10},
        {"pad": 50, "n_mels": 30}, {"power": 1, "n_mels": 30},
        {"power": 0.5, "n_mels": 30}, {"power": 3, "n_mels": 30},
        {"normalized": True, "n_mels": 30},
        {"center": True, "n_mels": 30}, {"center": False, "n_mels": 30}, {"pad_mode": "FRAME_PAD_MODE_CONSTANT", "n_mels": 30},
        {"pad_mode": "FRAME_PAD_MODE_REPLICATE", "n_mels": 30, "pad": 3},
        {"pad_mode": "FRAME_PAD_MODE_CIRCULAR", "n_mels": 30},
        {"pad_mode": "FRAME_PAD_MODE_REFLECT", "n_mels": 30, "pad": 250},
        {"norm": "MEL_NORM_SLANEY", "n_mels": 30},
        {"norm": "MEL_NORM_NONE", "mel_scale": "MEL_SCALE_HTK", "n_mels": 30},
        {"norm": "MEL_NORM_SLANEY", "mel_scale": "MEL_SCALE_SLANEY",
         "n_mels": 80, "sample_rate": 44100, "n_fft": 882},
        {"mel_scale": "MEL_SCALE_SLANEY", "f_min": 1200, "n_mels": 20},
        {"sample_rate": 2, "n_mels": 1}, {"sample_rate": 1000000, "n_mels": 4},
    ):
        for shape in ((1600,), (1601, 2)):
            is_lowest = parameters.get("sample_rate") == 2
            yield Case([_mel(**parameters)], shape,
                       bound=1e-4 if is_lowest else 1e-5)
    yield Case([_mel(n_mels=20, n_fft=64)], (33,), bound=1e-5)
    yield Case([_to("float32", scale=True), _mel(n_mels=40), _to("float16")],
               (1600,), "int16", bound=1e-3)


def _decibel_cases():
    for shape in ((1600,), (1600, 2)):
        for kind in ("POWER", "MAGNITUDE"):
            for top_db in (None, 0, 20, 80):
                op = {"stype": "AMPLITUDE_TYPE_" + kind}
                if top_db is not None:
                    op["top_db"] = top_db
                power = 2 if kind == "POWER" else 1
                yield Case([_mel(n_mels=64, n_fft=512, hop_length=160,
                                 power=power), {"amplitude_to_db": op}],
                           shape, decibels=1e-4)
    yield Case([{"amplitude_to_db": {"top_db": 60}}], (50, 3), decibels=1e-4)


def _mask_cases():
    def time(**parameters):
        return {"time_masking": parameters}

    def frequency(**parameters):
        return {"frequency_masking": parameters}

    for shape in ((8, 30), (3, 8, 30), (64, 1, 5)):
        for is_iid in (False, True):
            for param in (0, 1, 5, 100):
                for p in (0, 0.3, 1):
                    yield Case([time(time_mask_param=param, p=p,
                                     iid_masks=is_iid)], shape, num_samples=4)
                yield Case([frequency(freq_mask_param=param, mask_value=-3,
                                      iid_masks=is_iid)], shape, num_samples=4)
    yield Case([time(time_mask_param=9, mask_value=2.5)], (4, 20),
               num_samples=3)
    yield Case(
        [_to("float32", scale=True), {"gain": {"min_gain_in_db": -6,
                                               "max_gain_in_db": 6, "p": 1}},
         _mel(n_fft=512, hop_length=160, n_mels=64),
         {"amplitude_to_db": {"top_db": 80}},
         time(time_mask_param=4), frequency(freq_mask_param=8),
         {"normalize": {"mean": [-20], "std": [20]}}],
        (1600,), "int16", decibels=1e-5, num_samples=3,
    )


CASES = [
    *_plain_cases(), *_noise_cases(), *_mel_cases(), *_decibel_cases(),
    *_mask_cases(),
]
