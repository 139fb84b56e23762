"""Sequences of several lengths, and crops of them. NumPy's slices are the
judge."""

import datasetd
import numpy as np
import pytest
import torch
from conftest import loader
from datasetd import transforms as T
from datasetd.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
)

from tests.conformance.random_reference import philox

_RANDOM = np.random.default_rng(12)
_COUNT = 61
_SIZES = _RANDOM.integers(1, 200, _COUNT)
_SIZES[[3, 10]] = 0, 400
_AUDIO = [_RANDOM.standard_normal(n).astype(np.float32) for n in _SIZES]
_STEREO = [_RANDOM.integers(-9, 9, (n, 2), np.int16) for n in _SIZES]
_TOKENS = [_RANDOM.integers(-(2**15), 2**15, n, np.int16) for n in _SIZES]


def samples():
    return [
        {"audio": _AUDIO[i], "stereo": _STEREO[i], "tokens": _TOKENS[i],
         "label": i % 7}
        for i in range(_COUNT)
    ]  # fmt: skip


@pytest.fixture
def recordings(client):
    return client.push_dataset(
        "recordings", samples(), ragged=True, if_exists="same"
    )


def cropped(dataset, *crop, fill=0, **arguments):
    windows = datasetd.crops(*crop, fill=fill)
    arguments = {"batch_size": 7, "windows": windows, **arguments}
    return loader(dataset, **arguments)


def start_of(size, length, place, seed=5, epoch=0, draw=0):
    """The first step of a crop, as docs/randomness.md has it."""
    left = size - length
    if left <= 0 or place == "start":
        return 0
    if place == "center":
        return left // 2
    word = philox([0, 0xFFFF0200, epoch, draw], seed)[0]
    return word * (left + 1) >> 32


def expected(values, length, start, fill=0):
    row = np.full((length, *values.shape[1:]), fill, values.dtype)
    part = values[start : start + length]
    row[: len(part)] = part
    return row


def check(batch, length, place, fill=0, names=("audio", "stereo", "tokens")):
    for row, i in enumerate(batch.indices.tolist()):
        start = start_of(_SIZES[i], length, place, epoch=batch.epoch, draw=i)
        for name, all_values in zip(
            ("audio", "stereo", "tokens"), (_AUDIO, _STEREO, _TOKENS)
        ):
            if name not in names:
                continue
            want = expected(all_values[i], length, start, fill)
            got = getattr(batch, name)[row].numpy()
            np.testing.assert_array_equal(got, want)
            lengths = getattr(batch, f"{name}_lengths")
            assert lengths.dtype == torch.int64
            assert lengths[row] == min(length, _SIZES[i])


@pytest.mark.parametrize("place", ["start", "center", "random"])
@pytest.mark.parametrize("length", [1, 64, 199, 400, 1000, None])
def test_crops_are_numpys_slices(recordings, length, place):
    with cropped(recordings, length, place, fill=3) as job:
        for _ in range(3):
            for batch in job:
                assert batch.audio.dtype == torch.float32
                assert batch.stereo.dtype == torch.int16
                assert batch.tokens.dtype == torch.int64
                check(batch, length or 400, place, 3)


def test_random_crops_differ_by_epoch_and_are_explained(client, recordings):
    crop = datasetd.crops(50, "random", fields="audio")
    long = [i for i in range(_COUNT) if _SIZES[i] > 100]
    starts = [
        [
            (op.field, op.name, op.parameters["start"][0])
            for sample in client.explain(
                recordings, {}, 5, epoch, long, windows=crop
            )
            for op in sample
        ]
        for epoch in range(2)
    ]
    assert starts[0] != starts[1]
    for epoch in range(2):
        assert starts[epoch] == [
            ("audio", "Crop", start_of(_SIZES[i], 50, "random", 5, epoch, i))
            for i in long
        ]
    (short,) = client.explain(recordings, {}, indices=[3], windows=crop)
    assert short[0].parameters == {"start": (0,), "length": (0,)}


def test_explain_has_crops_and_the_draws_of_ops_on_them(client, recordings):
    crop = datasetd.crops(50, "random", fields="audio")
    ops = {"audio": [T.Gain(-12, 12, p=1), T.MelSpectrogram(n_fft=32, n_mels=4)]}
    plain = {"audio": ops["audio"][1:]}
    with pytest.raises(InvalidArgument, match="audio.*crop"):
        client.explain(recordings, ops)
    told = client.explain(recordings, ops, 5, 2, range(_COUNT), crop)
    made = []
    for transforms in (ops, plain):
        with loader(recordings, windows=crop, transforms=transforms,
                    fields="audio") as job:  # fmt: skip
            job.set_epoch(2)
            made.append({
                i: row.numpy().copy() for batch in job
                for i, row in zip(batch.indices.tolist(), batch.audio)
            })
    for i, (cut, gain, *rest) in enumerate(told):
        start = start_of(_SIZES[i], 50, "random", 5, 2, i)
        length = min(50, _SIZES[i])
        assert (cut.field, cut.name) == ("audio", "Crop")
        assert cut.parameters == {"start": (start,), "length": (length,)}
        # The power of what is louder.
        power = gain.parameters["gain"][0] ** 2
        np.testing.assert_allclose(
            made[0][i], made[1][i] * power, rtol=1e-4, atol=1e-6
        )




@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_ranks_share_an_epoch(recordings, world_size):
    seen = []
    for rank in range(world_size):
        with cropped(
            recordings, 64, "random", rank=rank, world_size=world_size,
            pad=False,
        ) as job:  # fmt: skip
            for batch in job:
                check(batch, 64, "random")
                seen += batch.indices.tolist()
    assert sorted(seen) == list(range(_COUNT))


@pytest.mark.parametrize("ranks, batch_size", [(1, 7), (1, 3), (2, 5), (4, 1)])
def test_an_epoch_is_continued_by_other_ranks(recordings, ranks, batch_size):
    with cropped(recordings, 64, "random") as job:
        batches = iter(job)
        seen = [i for _ in range(3) for i in next(batches).indices.tolist()]
        state = job.state_dict()
    for rank in range(ranks):
        with cropped(
            recordings, 64, "random", rank=rank, world_size=ranks,
            batch_size=batch_size, pad=False,
        ) as job:  # fmt: skip
            job.load_state_dict(state)
            for batch in job:
                check(batch, 64, "random")
                seen += batch.indices.tolist()
    assert sorted(seen) == list(range(_COUNT))


def test_other_crops_do_not_continue_an_epoch(recordings):
    with cropped(recordings, 64, "random") as job:
        next(iter(job))
        state = job.state_dict()
    with cropped(recordings, 65, "random") as job:
        with pytest.raises(datasetd.errors.Error, match="transforms"):
            job.load_state_dict(state)


def test_subsets_weights_groups_and_samplers_have_crops(recordings):
    some = [1, 5, 10, 20]
    with cropped(recordings, 64, "random", subset=some) as job:
        assert sorted(i for b in job for i in b.indices.tolist()) == some
        for batch in job:
            check(batch, 64, "random")
    with cropped(recordings, 64, shuffle=False, sampler=[10, 3, 10]) as job:
        (batch,) = list(job)
        assert batch.indices.tolist() == [10, 3, 10]
        check(batch, 64, "start")
    with cropped(
        recordings, 64, "center", shuffle=False, weights=np.ones(_COUNT)
    ) as job:
        for batch in job:
            check(batch, 64, "center")
    with cropped(
        recordings, 64, "start", shuffle=False, group_size=2, batch_size=3
    ) as job:
        batch = next(iter(job))
        assert batch.audio.shape == (3, 2, 64)
        assert batch.audio_lengths.shape == (3, 2)


def test_parts_of_a_mixture_have_crops(client, recordings):
    other = client.push_dataset("half", samples()[:30], ragged=True)
    with cropped(datasetd.concat([recordings, other]), 64, "center") as job:
        count = 0
        for batch in job:
            check(batch, 64, "center")
            count += batch.num_samples
    assert count == _COUNT + 30
    with pytest.raises(FailedPrecondition, match="push their data at once"):
        client.push_dataset("both", datasetd.concat([recordings, other]))


def test_samples_are_read_with_their_own_lengths(client, recordings):
    fields = {field.name: field for field in recordings.fields}
    assert fields["audio"].shape == (-1,) and fields["audio"].is_sequence
    assert fields["stereo"].shape == (-1, 2)
    assert fields["tokens"].smallest == (0,)
    assert fields["tokens"].largest == (400,)
    for i in (0, 3, 10):
        audio, stereo, tokens, label = recordings[i]
        np.testing.assert_array_equal(audio, _AUDIO[i])
        np.testing.assert_array_equal(stereo, _STEREO[i])
        np.testing.assert_array_equal(tokens.numpy(), _TOKENS[i])
        assert label == i % 7
    column = recordings.column("tokens")
    assert column.dtype == object
    for got, want in zip(column, _TOKENS):
        np.testing.assert_array_equal(got, want)
    batch = client.fetch(recordings, [10, 3], framework="numpy")
    np.testing.assert_array_equal(batch.stereo[0], _STEREO[10])
    assert batch.stereo[1].shape == (0, 2)
    with cropped(recordings, 64, "random") as job:
        check(job.fetch([10, 3, 3], epoch=0), 64, "random")


def test_a_padded_feed_has_what_a_collate_function_pads(recordings):
    with loader(
        recordings,
        windows=datasetd.crops(fields="tokens", fill=-1),
        fields=["tokens", "lengths"],
    ) as job:
        for batch in job:
            rows = [torch.tensor(_TOKENS[i].astype(np.int64))
                    for i in batch.indices]  # fmt: skip
            want = torch.nn.utils.rnn.pad_sequence(
                [*rows, torch.zeros(400, dtype=torch.int64)], True, -1.0
            )[:-1]
            assert torch.equal(batch.tokens, want)
            assert batch.lengths.tolist() == [len(row) for row in rows]


def test_to_dtype_and_fill(recordings):
    fill = {"audio": float("nan"), "tokens": -1.5}
    with loader(
        recordings,
        windows=datasetd.crops(300, fields=["audio", "tokens"], fill=fill),
        fields=["tokens", "audio", "audio_lengths"],
        transforms={
            "audio": [T.ToDtype("float16")],
            "tokens": [T.ToDtype("float32")],
        },
    ) as job:
        for batch in job:
            names = [name for name, _ in batch.items()]
            assert names == ["tokens", "audio", "audio_lengths"]
            for row, i in enumerate(batch.indices.tolist()):
                want = expected(
                    _AUDIO[i].astype(np.float16), 300, 0, np.nan
                )
                np.testing.assert_array_equal(batch.audio[row].numpy(), want)
                want = expected(_TOKENS[i].astype(np.float32), 300, 0, -1.5)
                np.testing.assert_array_equal(batch.tokens[row].numpy(), want)


def test_ops_are_applied_to_crops_and_their_fill(client, recordings):
    """As to the arrays that NumPy cuts."""
    ops = [T.PolarityInversion(0.5), T.MelSpectrogram(n_fft=32, n_mels=4)]
    cut = [
        expected(x, 64, start_of(len(x), 64, "random", draw=i), 0.25)
        for i, x in enumerate(_AUDIO)
    ]
    arrays = client.push_dataset("by_numpy", {"audio": np.stack(cut)})
    crop = datasetd.crops(64, "random", fill=0.25, fields="audio")
    arguments = {"batch_size": 7, "transforms": {"audio": ops}}
    with loader(
        recordings, fields=["audio", "lengths"], windows=crop, **arguments
    ) as job, loader(arrays, **arguments) as other:
        for batch, want in zip(job, other):
            assert torch.equal(batch.indices, want.indices)
            assert batch.audio.shape[1:] == (4, 5)
            assert torch.equal(batch.audio, want.audio)
            assert batch.lengths.tolist() == [
                1 + min(64, _SIZES[i]) // 16 if _SIZES[i] else 0
                for i in batch.indices
            ]  # of frames


def test_arrays_of_one_length_have_crops_if_named(client):
    signal = _RANDOM.standard_normal((40, 100, 3)).astype(np.float32)
    dataset = client.push_dataset("recorded", {"signal": signal})
    with loader(
        dataset, windows=datasetd.crops(30, "random", fields=["signal"])
    ) as job:
        for batch in job:
            for row, i in enumerate(batch.indices.tolist()):
                start = start_of(100, 30, "random", draw=i)
                np.testing.assert_array_equal(
                    batch.signal[row], signal[i, start : start + 30]
                )
            assert set(batch.lengths.tolist()) == {30}
    with pytest.raises(InvalidArgument, match="none of the fields.*fields="):
        loader(dataset, windows=datasetd.crops(30))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({}, "'audio' has sequences of 0 to 400 steps.*crops.*fields="),
        ({"windows": 8}, "windows are of one stream.*crops"),
        ({"windows": datasetd.crops(2**30 - 1)}, "length is 1073741823.*1..5"),
        ({"windows": datasetd.crops(8, fields=["x"])}, "there is no 'x'"),
        (
            {"windows": datasetd.crops(8, fields=["label"]),
             "fields": ["label"]},
            "crop of 'label'.*one number",
        ),
        ({"windows": datasetd.crops(8, fields=["audio"])}, "'stereo' has seq"),
        ({"windows": datasetd.crops(8, fill={"label": 1})}, "fill has 'label'"),
        ({"windows": datasetd.crops(8, fill=0.5)}, "fill is 0.5.*int16"),
        ({"windows": datasetd.crops(8, fill={"stereo": 2**15})}, "fill is 32"),
        (
            {"windows": datasetd.crops(8), "transforms": {
                "audio_lengths": [T.ToDtype("float32")]}},
            "lengths, without transforms",
        ),
        (
            {"windows": datasetd.crops(8), "transforms": {
                "audio": [T.CenterCrop(8)]}},
            "'audio'.*CenterCrop",
        ),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_wrong_crops(recordings, arguments, words):
    with pytest.raises(InvalidArgument, match=words):
        loader(recordings, **arguments)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: datasetd.crops(0), "length.*0"),
        (lambda: datasetd.crops(5, "middle"), "place='middle'.*start, center"),
        (lambda: datasetd.crops(5, fill="x"), "fill='x'"),
        (lambda: datasetd.crops(5, fill={"a": True}), "expected a number"),
        (lambda: datasetd.crops(5, fields=[]), "fields.*each once"),
        (lambda: datasetd.crops(5, fields=["a", "a"]), "each once"),
    ],
)
def test_crops_are_checked(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


# -- Pushes ---------------------------------------------------------------------


def test_lists_of_several_lengths(client):
    lists = [[1, 2, 3], [], [4], [5, 6]]
    columns = {"tokens": lists, "y": [0, 1, 0, 1]}
    one = client.push_dataset("lists", columns, fields={
        "tokens": "sequence", "y": "auto"})  # fmt: skip
    assert one.fields[0].shape == (-1,) and one.fields[0].dtype == "int64"
    assert [row.tolist() for row in one.column("tokens")] == lists
    rows = [{"tokens": t, "y": y} for t, y in zip(lists, columns["y"])]
    same = client.push_dataset("rows", rows, ragged=True)
    assert same.content_hash == one.content_hash
    tensors = [(torch.tensor(t, dtype=torch.int64), y)
               for t, y in zip(lists, columns["y"])]  # fmt: skip
    tuples = client.push_dataset("tuples", tensors, {
        "tokens": "sequence", "y": "auto"})  # fmt: skip
    assert tuples.content_hash == one.content_hash


def test_a_list_of_lists_is_of_sequences_if_ragged(client):
    dataset = client.push_dataset("list", [[1, 2], [], [3]], ragged=True)
    assert [row.tolist() for row in dataset.column("data")] == [[1, 2], [], [3]]


def test_ragged_keeps_what_is_of_one_length(client):
    rows = [{"x": np.arange(n), "y": np.arange(3.0)} for n in (2, 2, 2)]
    dataset = client.push_dataset("one-length", rows, ragged=True)
    assert [field.shape for field in dataset.fields] == [(2,), (3,)]
    dataset = client.push_dataset(
        "declared", rows, {"x": "sequence", "y": "array"}
    )
    assert [field.shape for field in dataset.fields] == [(-1,), (3,)]


def test_pushes_of_sequences_are_compared(client, recordings):
    again = client.push_dataset("recordings", samples(), ragged=True)
    assert again.content_hash == recordings.content_hash
    other = samples()
    other[5] = {**other[5], "audio": np.append(_AUDIO[5], np.float32(0))}
    with pytest.raises(AlreadyExists, match="differs|other"):
        client.push_dataset("recordings", other, ragged=True)
    unnamed = client.push_dataset(None, samples(), ragged=True)
    assert unnamed.content_hash == recordings.content_hash


@pytest.mark.parametrize(
    "rows, arguments, words",
    [
        ([np.zeros(3), np.zeros(4)], {}, "ragged=True"),
        ([{"x": [1, 2]}, {"x": [3]}], {}, "ragged=True"),
        ([np.zeros((1, 30)), np.zeros((1, 40))], {"ragged": True},
         "differ in T alone.*waveform.T"),
        ([np.zeros(3), np.zeros(4, np.float32)], {"ragged": True}, "float32"),
        ([np.zeros(0), np.zeros(0)], {"fields": {"data": "sequence"}},
         "'data'.*no steps at all"),
        ([np.float64(1)], {"fields": {"data": "sequence"}},
         "expected a sequence"),
        ([np.zeros((2, 2, 2))], {"fields": {"data": "sequence"}},
         "expected a sequence"),
        ([np.zeros(3), np.zeros(4)], {"ragged": True, "pretransforms":
         {"data": [T.ToDtype("float32")]}}, "differ in size"),
    ],
)  # fmt: skip
def test_what_cannot_be_pushed(client, rows, arguments, words):
    with pytest.raises(InvalidArgument, match=words):
        client.push_dataset("refused", rows, **arguments)
