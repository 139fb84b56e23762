"""Recordings: WAV and FLAC files, by the package soundfile, and recordings
among samples."""

import io
import types
import wave

import datasetd
import numpy as np
import pytest
from datasetd import sources
from datasetd import transforms as T

soundfile = pytest.importorskip("soundfile")

_RANDOM = np.random.default_rng(8)


def _integers(bits, count, channels=1):
    """Samples of so many bits, the extremes among them."""
    most = 2 ** (bits - 1)
    values = _RANDOM.integers(-most, most, (count, channels))
    values[:2, 0] = -most, most - 1
    return values


def _write_wav(path, bits, values, rate=16000):
    """By the standard library, not by libsndfile."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(values.shape[1])
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        if bits == 8:  # unsigned
            data = (values + 128).astype(np.uint8).tobytes()
        else:
            whole = values.astype("<i4").view(np.uint8)
            data = whole.reshape(-1, 4)[:, : bits // 8].tobytes()
        file.writeframes(data)


def _folder(tmp_path, files):
    """`files`: (class, name, function that writes a path)."""
    for kind, name, write in files:
        (tmp_path / kind).mkdir(exist_ok=True)
        write(tmp_path / kind / name)
    return tmp_path


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files_are_as_torchaudio_has_them(
    client, tmp_path, bits, channels
):
    values = [_integers(bits, n, channels) for n in (300, 20, 7)]
    root = _folder(tmp_path, [
        ("yes", "b.wav", lambda p: _write_wav(p, bits, values[1])),
        ("yes", "c.WAV", lambda p: _write_wav(p, bits, values[2])),
        ("no", "a.wav", lambda p: _write_wav(p, bits, values[0])),
    ])  # fmt: skip
    dataset = client.load_dataset(
        f"wav-{bits}-{channels}", "audio_folder", root
    )
    audio, label = dataset.fields
    assert audio.shape == ((-1,) if channels == 1 else (-1, 2))
    assert audio.dtype == "float32" and audio.is_sequence
    assert dataset.class_names == ["no", "yes"]
    assert list(dataset.column("label")) == [0, 1, 1]
    assert "16000 samples per second" in " ".join(dataset.notes)
    for got, want in zip(dataset.column("audio"), values):
        # Exact up to 24 bits.
        want = (want / 2 ** (bits - 1)).astype(np.float32)
        np.testing.assert_array_equal(got, want.reshape(got.shape))
    if bits in (16, 32):
        whole = client.push_dataset(
            None, sources.audio_folder(root, dtype=f"int{bits}")
        )
        for got, want in zip(whole.column("audio"), values):
            np.testing.assert_array_equal(got, want.reshape(got.shape))
    if channels == 2:
        mono = client.push_dataset(
            None, sources.audio_folder(root, mono=True)
        )
        for got, want in zip(mono.column("audio"), values):
            mean = (want / 2 ** (bits - 1)).mean(1)
            np.testing.assert_allclose(got, mean, atol=1e-7)


@pytest.mark.parametrize(
    "name, subtype, dtype",
    [
        ("a.flac", "PCM_16", "int16"),
        ("a.flac", "PCM_24", "float32"),
        ("a.flac", "PCM_S8", "int16"),
        ("a.wav", "FLOAT", "float32"),
        ("a.wav", "DOUBLE", "float32"),
        ("a.wav", "FLOAT", "float16"),
    ],
)
def test_flac_and_floats(client, tmp_path, name, subtype, dtype):
    values = (_integers(8, 500)[:, 0] / 128).astype(np.float32)
    for suffix in ("", "2"):
        (tmp_path / f"k{suffix}").mkdir()
        soundfile.write(
            tmp_path / f"k{suffix}" / name,
            values[: 400 + len(suffix)],
            8000,
            subtype,
        )
    dataset = client.push_dataset(
        None, sources.audio_folder(tmp_path, dtype=dtype, sample_rate=8000)
    )
    assert dataset.fields[0].dtype == dtype
    first, second = dataset.column("audio")
    want = values * (2**15 if dtype == "int16" else 1)
    np.testing.assert_array_equal(first, want[:400].astype(dtype))
    np.testing.assert_array_equal(second, want[:401].astype(dtype))


def _wav(rate=16000, bits=16, channels=1):
    return lambda path: _write_wav(
        path, bits, _integers(bits, 50, channels), rate
    )


def _text(text):
    return lambda path: path.write_bytes(text)


def _cut(path):
    _wav()(path)
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    "files, arguments, words",
    [
        ([_wav(), _wav(8000)], {}, "1.wav has 8000 samples.*0.wav 16000.*"
         "torchaudio.functional.resample"),
        ([_wav()], {"sample_rate": 44100}, "16000.*sample_rate is 44100"),
        ([_wav(), _wav(channels=2)], {}, "1.wav has 2 channels.*mono=True"),
        ([_wav(bits=24)], {"dtype": "int16"}, "PCM_24, which dtype='int16'"),
        ([_wav()], {"dtype": "float64"}, "dtype='float64'; expected one"),
        ([_wav()], {"dtype": "int16", "mono": True}, "mean is not an int"),
        ([_wav(), _text(b"RIFF")], {}, "1.wav"),
        ([_wav(), _text(b"")], {}, "1.wav: it is empty"),
        ([_wav(), _text(b"no sound" * 99)], {}, "1.wav"),
        ([_wav(), _cut], {}, "1.wav.*ends"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_wrong_audio_is_named(client, tmp_path, files, arguments, words):
    root = _folder(
        tmp_path,
        [("k", f"{i}.wav", write) for i, write in enumerate(files)],
    )
    with pytest.raises(datasetd.errors.Error, match=words):
        client.push_dataset("wrong", sources.audio_folder(root, **arguments))
    names = [d["name"] for d in client.list_datasets()]
    assert "wrong" not in names


def test_keyword_spotting(client, tmp_path):
    """The example of docs/sequences.md, with clips of several lengths."""
    clips = {
        (kind, i): _integers(16, int(_RANDOM.integers(3000, 17000)))
        for kind in ("down", "up")
        for i in range(20)
    }
    root = _folder(tmp_path, [
        (kind, f"{i:02}.wav", lambda p, v=v: _write_wav(p, 16, v))
        for (kind, i), v in clips.items()
    ])  # fmt: skip
    data = client.load_dataset("commands", "audio_folder", root)
    windows = datasetd.crops(16000, "random")
    seen = 0
    with datasetd.DataLoader(
        data, 8, shuffle=True, windows=windows, framework="numpy"
    ) as loader:
        for batch in loader:
            assert batch.audio.shape[1:] == (16000,)
            for audio, label, length, index in zip(
                batch.audio, batch.label, batch.lengths, batch.indices
            ):
                kind, i = list(clips)[index]
                want = clips[kind, i][:, 0] / 2**15
                assert data.class_names[label] == kind
                assert length == min(len(want), 16000)
                assert not audio[length:].any()
                starts = range(len(want) - length + 1)
                assert any(
                    np.array_equal(audio[:length], want[s : s + length])
                    for s in starts
                )
                seen += 1
    assert seen == 40


# -- Recordings among samples ---------------------------------------------------


_WAVES = [_RANDOM.integers(-9000, 9000, n, np.int16) for n in (50, 7, 90)]
_FLOATS = [(wave / 2**15).astype(np.float32) for wave in _WAVES]


def _encoded(steps, rate=16000, format="WAV", **arguments):
    file = io.BytesIO()
    soundfile.write(file, steps, rate, format=format, **arguments)
    return file.getvalue()


class _Decoder:
    """As torchcodec's AudioDecoder: channels first."""

    def __init__(self, steps):
        self.steps = steps

    def get_all_samples(self):
        import torch

        data = torch.from_numpy(self.steps)
        data = data.T if data.ndim == 2 else data[None]
        return types.SimpleNamespace(data=data, sample_rate=16000)


@pytest.mark.parametrize("make", [
    lambda wave, floats: {"array": floats.astype(np.float64),
                          "sampling_rate": 16000, "path": "a.wav"},
    lambda wave, floats: _Decoder(floats),
    lambda wave, floats: _encoded(wave),
    lambda wave, floats: {"bytes": _encoded(wave, format="FLAC"),
                          "path": "b.flac"},
], ids=["dict", "decoder", "bytes", "file"])  # fmt: skip
@pytest.mark.parametrize("form", ["dicts", "tuples", "columns"])
def test_recordings_are_sequences(client, make, form):
    heard = [make(*pair) for pair in zip(_WAVES, _FLOATS)]
    data = {
        "dicts": [{"audio": one, "label": i} for i, one in enumerate(heard)],
        "tuples": [(one, i) for i, one in enumerate(heard)],
        "columns": {"audio": heard, "label": [0, 1, 2]},
    }[form]
    names = ["audio", "label"] if form == "tuples" else None
    with client.push_dataset("heard", data, names) as dataset:
        audio, _ = dataset.fields
        assert (audio.dtype, audio.shape) == ("float32", (-1,))
        assert "16000 samples per second" in " ".join(dataset.notes)
        for got, want in zip(dataset.column("audio"), _FLOATS):
            np.testing.assert_array_equal(got, want)
        assert list(dataset.column("label")) == [0, 1, 2]


def test_channels_come_last(client):
    stereo = [np.stack([wave, -wave], 1) for wave in _FLOATS]
    for make in (
        _encoded,
        _Decoder,
        lambda steps: {"array": steps.T, "sampling_rate": 16000},
    ):
        samples = [{"audio": make(steps)} for steps in stereo]
        with client.push_dataset("stereo", samples) as dataset:
            assert dataset.fields[0].shape == (-1, 2)
            for got, want in zip(dataset.column("audio"), stereo):
                np.testing.assert_allclose(got, want, atol=1 / 2**15)


@pytest.mark.parametrize("samples, words", [
    ([_encoded(_WAVES[0]), _encoded(_WAVES[1], 8000)],
     "sample 1, field 'x' has 8000 .*first sample 16000.*resample"),
    ([_encoded(_WAVES[0]), _WAVES[1]], "sample 1.*ndarray.*a recording"),
    ([_encoded(_WAVES[0])[:60]], "sample 0, field 'x'.*ends after 16 of"),
    ([b"RIFF\0\0\0\0WAVE", b""], "sample 0, field 'x'"),
    ([_encoded(_WAVES[0]), _encoded(np.zeros((4, 2)))], "float32 .4, 2."),
], ids=["rate", "kind", "cut", "empty", "channels"])  # fmt: skip
def test_wrong_recordings_are_named(client, samples, words):
    with pytest.raises(datasetd.errors.Error, match=words):
        client.push_dataset("wrong", [{"x": one} for one in samples])


def test_webp_is_still_an_image(client):
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pixels = np.full((4, 5, 3), 77, np.uint8)
    image.fromarray(pixels).save(file, "webp", lossless=True)
    with client.push_dataset("webp", [{"image": file.getvalue()}]) as dataset:
        np.testing.assert_array_equal(dataset[0]["image"][:, :, 0], 77)


# -- Faces and voices -----------------------------------------------------------


_EMOTIONS = [
    "neutral", "calm", "happy", "sad", "angry", "fearful", "disgust",
    "surprised",
]  # fmt: skip


def test_faces_and_voices(client, tmp_path):
    """A recording and the frame of a face for each sample, as in RAVDESS, whose
    file names say the emotion. The frames have colour ops, the voice becomes a
    log-mel spectrogram."""
    image = pytest.importorskip("PIL.Image")
    faces = _RANDOM.integers(0, 256, (24, 20, 16, 3), np.uint8)
    voices = {}
    for i, face in enumerate(faces):
        name = f"03-01-{1 + i % 8:02}-01-01-01-{1 + i // 8:02}"
        voices[name] = _integers(16, int(_RANDOM.integers(900, 1500)))
        _write_wav(tmp_path / f"{name}.wav", 16, voices[name])
        image.fromarray(face).save(tmp_path / f"{name}.png")

    def samples():
        for path in sorted(tmp_path.glob("*.wav")):
            yield {
                "audio": path.read_bytes(),
                "image": sources.decode_image(
                    path.with_suffix(".png").read_bytes()
                ),
                "label": _EMOTIONS[int(path.name.split("-")[2]) - 1],
            }

    dataset = client.push_dataset(
        "ravdess", samples(), class_names=_EMOTIONS
    )
    assert [field.name for field in dataset.fields] == [
        "audio", "image", "label"
    ]
    assert dataset.class_names == _EMOTIONS
    ops = [
        T.Resize((12, 12)),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.05, 0.05, 0.05, 0.05),
        T.ToDtype("float32", scale=True),
    ]
    log_mel = [T.MelSpectrogram(n_fft=128, n_mels=16), T.AmplitudeToDB()]
    with datasetd.DataLoader(
        dataset, 5, shuffle=True, seed=1, framework="numpy",
        windows=datasetd.crops(1024, "random"),
        transforms={"image": ops, "audio": log_mel},
    ) as loader, datasetd.DataLoader(
        dataset, 5, shuffle=True, seed=1, framework="numpy",
        windows=datasetd.crops(1024, "random"), fields=["audio", "lengths"],
    ) as plain:  # fmt: skip
        seen = 0
        for batch, cut in zip(loader, plain):
            rows = len(batch.indices)
            assert batch.image.shape == (rows, 3, 12, 12)
            assert batch.audio.shape == (rows, 16, 17)
            for row, index in enumerate(batch.indices):
                name = sorted(voices)[index]
                want = (voices[name][:, 0] / 2**15).astype(np.float32)
                label = int(name.split("-")[2]) - 1
                assert batch.label[row] == label
                length = cut.lengths[row]
                assert length == min(len(want), 1024)
                part = cut.audio[row, :length]
                assert any(
                    np.array_equal(part, want[s : s + length])
                    for s in range(len(want) - length + 1)
                )
                seen += 1
        assert seen == 24
