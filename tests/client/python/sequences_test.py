"""Ops on sequences from the loader to the batch: shapes, draws, windows,
pretransforms and refusals. tests/parity judges their values."""

import datasetd
import numpy as np
import pytest
from conftest import loader
from datasetd import transforms as T
from datasetd.errors import InvalidArgument

_RANDOM = np.random.default_rng(3)
_NUM_CLIPS = 20
_CLIPS = _RANDOM.integers(-9000, 9000, (_NUM_CLIPS, 1600), np.int16)
_STEREO = _RANDOM.standard_normal((_NUM_CLIPS, 800, 2)).astype(np.float32)
_STREAM = _RANDOM.standard_normal((3000, 2)).astype(np.float32)
_LOG_MEL = [
    T.ToDtype("float32", scale=True),
    T.MelSpectrogram(16000, n_fft=512, hop_length=160, n_mels=40),
    T.AmplitudeToDB(top_db=80),
]


@pytest.fixture(name="clips")
def fixture_clips(client):
    fields = {
        "audio": _CLIPS,
        "stereo": _STEREO,
        "label": np.arange(_NUM_CLIPS),
    }
    return client.push_dataset("clips", fields, if_exists="same")


@pytest.fixture(name="stream")
def fixture_stream(client):
    return client.push_dataset("signal", {"x": _STREAM}, if_exists="same")


def rows(dataset, transforms, **arguments):
    """{index: what the loader makes of a field} of an epoch."""
    with loader(
        dataset, transforms=transforms, framework="numpy", **arguments
    ) as job:
        return {
            int(index): {f: value[i].copy() for f, value in batch.items()}
            for batch in job
            for i, index in enumerate(batch.indices)
        }


def test_a_batch_has_the_shape_that_the_ops_make(clips):
    ops = {
        "audio": _LOG_MEL + [T.TimeMasking(4), T.FrequencyMasking(8)],
        "stereo": [T.Vol(0.5), T.MelSpectrogram(n_fft=400, n_mels=20),
                   T.ToDtype("float16")],
    }
    with loader(clips, transforms=ops, framework="numpy") as job:
        batch = job.peek()
        assert batch.audio.shape == (10, 40, 11)
        assert batch.audio.dtype == np.float32
        assert batch.stereo.shape == (10, 2, 20, 5)
        assert batch.stereo.dtype == np.float16
        assert batch.label.dtype == np.int64


_DRAWN = [
    T.Gain(-12, 12, p=1),
    T.PolarityInversion(),
    T.Shift(-0.1, 0.1, rollover=False, p=1),
]


def as_told(ops, steps):
    """What _DRAWN makes of a sequence, as explain tells it."""
    gain, polarity, moved = ops
    assert [gain.name, polarity.name, moved.name] == [
        "Gain", "PolarityInversion", "Shift"
    ]
    result = steps * np.float32(gain.parameters["gain"][0])
    if polarity.is_applied:
        result = -result
    shift = int(moved.parameters["shift"][0])
    assert abs(shift) <= len(steps) // 10
    result = np.roll(result, shift, axis=0)
    result[slice(0, shift) if shift >= 0 else slice(shift, None)] = 0
    return result


def test_explain_has_the_draws_of_a_batch(client, clips):
    ops = {"stereo": _DRAWN}
    found = rows(clips, ops)
    told = client.explain(clips, ops, seed=5, indices=range(_NUM_CLIPS))
    for index, drawn in enumerate(told):
        expected = as_told(drawn, _STEREO[index])
        assert (found[index]["stereo"] == expected).all()
    assert {drawn[1].is_applied for drawn in told} == {True, False}


@pytest.mark.parametrize("windows, shuffle", [
    (datasetd.blocks(300), True),
    (datasetd.blocks(300, 70, phase=9), False),
    (datasetd.random_windows(300, 40), False),
    (datasetd.random_windows(300, 40, targets="x"), False),
], ids=str)  # fmt: skip
def test_explain_has_windows_and_their_draws(client, stream, windows, shuffle):
    ops = {"x": _DRAWN}
    with loader(
        stream, shuffle=shuffle, windows=windows, transforms=ops,
        framework="numpy",
    ) as job:  # fmt: skip
        job.set_epoch(3)
        batches = [(b.indices.copy(), b.x.copy()) for b in job]
    starts = np.concatenate([b[0] for b in batches])
    found = np.concatenate([b[1] for b in batches])
    told = client.explain(
        stream, ops, 5, 3,
        range(len(starts)) if windows.is_random else starts, windows,
    )  # fmt: skip
    for start, row, (window, *drawn) in zip(starts, found, told):
        if windows.targets:
            later = drawn.pop(0)
            assert later.field == "targets"
            assert later.parameters["start"] == (start + 1,)
        assert (window.field, window.name) == ("x", "Window")
        assert window.parameters == {"start": (start,), "length": (300,)}
        expected = as_told(drawn, _STREAM[start : start + 300])
        assert (row == expected).all()


def test_explain_takes_ops_that_need_windows(client, stream):
    ops = {"x": [T.MelSpectrogram(n_fft=64, n_mels=8), T.TimeMasking(5)]}
    with pytest.raises(InvalidArgument, match="MelSpectrogram"):
        client.explain(stream, ops)
    ((window, *told),) = client.explain(stream, ops, windows=500)
    assert window.parameters == {"start": (0,), "length": (500,)}
    assert told[-1].name == "TimeMasking"
    assert 0 <= told[-1].parameters["mask_end"][0] <= 16


@pytest.mark.parametrize("windows, indices, words", [
    (2800, [201], "201 is out of range; dataset 'signal' has 201 steps at"),
    (3001, [0], "'signal' has 3000 steps"),
    (datasetd.random_windows(9), [2**32], "rows at most in an epoch"),
    (datasetd.documents(9, starts=[0]), [0], "draw nothing by themselves"),
], ids=str)  # fmt: skip
def test_windows_that_are_not_explained(
    client, stream, windows, indices, words
):
    with pytest.raises(InvalidArgument, match=words):
        client.explain(stream, [], indices=indices, windows=windows)
    with pytest.raises(InvalidArgument, match="a subset exclude each other"):
        client.explain(stream.select([0, 1]), [], windows=8)


def test_masks_are_where_explain_says(client, clips):
    masks = [T.TimeMasking(9, mask_value=7), T.FrequencyMasking(20)]
    plain = rows(clips, {"audio": _LOG_MEL})
    masked = rows(clips, {"audio": _LOG_MEL + masks})
    told = client.explain(
        clips, {"audio": _LOG_MEL + masks}, seed=5, indices=range(_NUM_CLIPS)
    )
    for index, ops in enumerate(told):
        expected = plain[index]["audio"]
        time, frequency = (
            slice(*(int(op.parameters[end][0]) for end in ("mask_start",
                                                           "mask_end")))
            for op in ops[-2:]
        )
        expected[:, time] = 7
        expected[frequency] = 0
        assert (masked[index]["audio"] == expected).all()


def test_pretransforms_make_what_a_loader_makes(client, clips):
    resident = client.push_dataset(
        "features", {"audio": _CLIPS}, pretransforms={"audio": _LOG_MEL}
    )
    assert resident.fields[0].shape == (40, 11)
    whole = rows(clips, {"audio": _LOG_MEL})
    for index, row in rows(resident, None).items():
        assert (row["audio"] == whole[index]["audio"]).all()
    # A resident spectrogram takes masks.
    rows(resident, {"audio": [T.TimeMasking(5)]})
    with pytest.raises(InvalidArgument, match="pretransforms.*Gain"):
        client.push_dataset(
            "x", {"audio": _STEREO}, pretransforms={"audio": [T.Gain()]}
        )


def test_ops_get_windows(client, stream):
    ops = {"x": [T.Vol(0.25), T.MelSpectrogram(n_fft=64, n_mels=8)]}
    with loader(
        stream, shuffle=False, windows=datasetd.blocks(500, phase=0),
        transforms=ops, framework="numpy",
    ) as job:
        windows = np.concatenate([batch.x.copy() for batch in job])
    assert windows.shape == (6, 2, 8, 16)
    cut = client.push_dataset("cut", {"x": _STREAM.reshape(6, 500, 2)})
    for index, row in rows(cut, ops).items():
        assert (row["x"] == windows[index]).all()


def test_rows_of_documents_are_refused(stream):
    windows = datasetd.documents(8, starts=[0, 9])
    with pytest.raises(
        InvalidArgument, match="'x'.*Vol needs consecutive steps.*blocks"
    ):
        loader(stream, windows=windows, transforms={"x": [T.Vol(1)]})


@pytest.mark.parametrize("ops, words", [
    ({"audio": [T.Vol(2)]}, "'audio'.*Vol: .*int16 here: put ToDtype"),
    ({"audio": [T.RandomCrop(4)]}, "RandomCrop: .*not an image.*Vol"),
    ({"audio": [T.ToDtype("float32"), T.TimeMasking(3)]},
     "TimeMasking: .*spectrograms.*1600.*put MelSpectrogram"),
    ({"stereo": [T.MelSpectrogram(n_fft=2048)]}, "800 steps.*at least 1025"),
    ({"stereo": [T.MixUp(num_classes=20)]}, "MixUp: .*not an image"),
    ({"stereo": [T.Normalize([1, 2, 3], [1, 2, 3])]}, "800, 2. has 2 channels"),
], ids=str)  # fmt: skip
def test_what_does_not_fit_is_named(clips, ops, words):
    with pytest.raises(InvalidArgument, match=words):
        loader(clips, transforms=ops)


def test_images_take_no_ops_on_sequences(dataset):
    with pytest.raises(InvalidArgument, match="Vol: .*field is an image"):
        loader(dataset, transforms=[T.ToDtype("float32"), T.Vol(2)])


def test_torchaudios_ops_are_replaced_by_name(clips):
    class MelSpectrogram:
        __module__ = "torchaudio.transforms"

        def __call__(self, waveform):
            return waveform

    with pytest.raises(
        InvalidArgument, match="use datasetd.transforms.MelSpectrogram"
    ):
        loader(clips, transforms={"audio": [MelSpectrogram()]})


@pytest.mark.parametrize("make, words", [
    (lambda: T.Vol(-1), "gain=-1.*0 or more"),
    (lambda: T.Vol(0, "power"), "gain=0.*above 0"),
    (lambda: T.Gain(3, 2), "min_gain_in_db=3 is above max_gain_in_db=2"),
    (lambda: T.Shift(0.5, 0.25), "min_shift=0.5 is above max_shift=0.25"),
    (lambda: T.Shift(shift_unit="seconds"), "'fraction', 'samples'"),
    (lambda: T.MelSpectrogram(n_fft=1), "n_fft=1; .*2 to 65536"),
    (lambda: T.MelSpectrogram(mel_scale="bark"), "'htk', 'slaney'"),
], ids=str)  # fmt: skip
def test_bad_arguments_are_named(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()
