"""AddNoise: noise of another dataset. NumPy is the judge of values, and
docs/randomness.md of draws; tests/parity judges more values."""

from concurrent.futures import ThreadPoolExecutor

import datasetd
import numpy as np
import pytest
from conftest import SlowSamples, loader
from datasetd import transforms as T
from datasetd.errors import (
    DatasetUnloaded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)

from tests.conformance.random_reference import philox

_RANDOM = np.random.default_rng(8)
_COUNT = 40
_SIZES = _RANDOM.integers(1, 900, _COUNT)
_SIZES[5] = 0
_CLIPS = [_RANDOM.standard_normal(n).astype(np.float32) for n in _SIZES]
_NOISES = [
    (3000 * _RANDOM.standard_normal(n)).astype(np.int16)
    for n in (7, 0, 250, 5000)
]
# All as long, which the daemon keeps without an index.
_EQUAL_NOISES = [
    (3000 * _RANDOM.standard_normal(250)).astype(np.int16) for _ in range(3)
]
_LENGTH = 300


@pytest.fixture(name="clips")
def fixture_clips(client):
    samples = [{"audio": x, "label": i} for i, x in enumerate(_CLIPS)]
    return client.push_dataset("clips-n", samples, ragged=True, if_exists="same")


@pytest.fixture(name="street")
def fixture_street(client):
    samples = [{"sound": x} for x in _NOISES]
    return client.push_dataset("street", samples, ragged=True, if_exists="same")


def noisy(dataset, *ops, **arguments):
    arguments = {
        "windows": datasetd.crops(_LENGTH, fill=0.5),
        "transforms": {"audio": list(ops)},
        "framework": "numpy",
        **arguments,
    }
    return loader(dataset, **arguments)


def rows(dataset, *ops, **arguments):
    """{index: a copy of the row} of an epoch."""
    with noisy(dataset, *ops, **arguments) as job:
        return {
            int(i): row.copy()
            for batch in job
            for i, row in zip(batch.indices, batch.audio)
        }


def drawn(index, steps, snr, noises=_NOISES, epoch=0, op_index=0):
    """(decibels, number of the noise, its first step)."""
    words = philox([1, op_index, epoch, index], 5)
    unit = np.float32(words[0] >> 8) / np.float32(2**24)
    decibels = np.float32(snr[0] + (snr[1] - snr[0]) * float(unit))
    noise = words[1] * len(noises) >> 32
    left = len(noises[noise]) - steps
    starts = left + 1 if left >= 0 else len(noises[noise])
    return decibels, noise, words[2] * starts >> 32


def expected(clip, index, snr, noises=_NOISES):
    """A row [_LENGTH] with noise in its valid steps."""
    row = np.full(_LENGTH, 0.5, np.float32)
    clip = clip[:_LENGTH]
    row[: len(clip)] = clip
    decibels, number, begin = drawn(index, len(clip), snr, noises)
    noise = noises[number].astype(np.float64)
    if not len(noise) or not len(clip):
        return row
    noise = noise[(begin + np.arange(len(clip))) % len(noise)]
    energies = [(x.astype(np.float64) ** 2).sum() for x in (clip, noise)]
    scale = 10 ** ((10 * np.log10(energies[0] / energies[1]) - decibels) / 20)
    row[: len(clip)] = clip + scale * noise
    return row


@pytest.mark.parametrize("noises", [_NOISES, _EQUAL_NOISES])
def test_rows_have_noise_within_their_lengths(client, clips, noises):
    street = client.push_dataset(
        f"street-{len(noises)}", [{"sound": x} for x in noises],
        ragged=noises is _NOISES,
    )  # fmt: skip
    found = rows(clips, T.AddNoise(street, (0, 20)))
    assert len(found) == _COUNT
    for index, row in found.items():
        want = expected(_CLIPS[index], index, (0, 20), noises)
        np.testing.assert_allclose(row, want, atol=1e-5 * abs(want).max())
        assert (row[_SIZES[index]:] == 0.5).all()


def test_explain_has_the_draws(client, clips, street):
    ops = {"audio": [T.AddNoise("street", (-5, 5), p=0.5)]}
    told = client.explain(
        clips, ops, 5, indices=range(_COUNT), windows=datasetd.crops(_LENGTH)
    )
    applied = 0
    for index, (_, op) in enumerate(told):
        assert op.name == "AddNoise"
        gate = philox([0, 0, 0, index], 5)[0] >> 8
        assert op.is_applied == (gate < 2**23)
        if not op.is_applied:
            continue
        applied += 1
        decibels, noise, begin = drawn(
            index, min(_LENGTH, _SIZES[index]), (-5, 5)
        )
        assert op.parameters == {
            "snr": (decibels,), "noise": (noise,), "start": (begin,)
        }  # fmt: skip
    assert 0 < applied < _COUNT


def test_draws_are_uniform(client, clips):
    noises = [np.ones(1000, np.float32)] * 3
    client.push_dataset("three-noises", noises, {"data": "sequence"})
    ops = {"audio": [T.AddNoise("three-noises", (-10, 30))]}
    told = [
        op.parameters
        for epoch in range(100)
        for ops_of_sample in client.explain(
            clips, ops, 5, epoch, np.flatnonzero(_SIZES > 100),
            windows=datasetd.crops(100),
        )
        for op in ops_of_sample[1:]
    ]  # fmt: skip
    count = len(told)
    assert count > 3000
    for name, low, high in (
        ("snr", -10, 30), ("noise", -0.5, 2.5), ("start", -0.5, 900.5)
    ):  # fmt: skip
        values = (np.array([p[name][0] for p in told]) - low) / (high - low)
        # Within five standard deviations of the mean and of the quarters.
        assert abs(values.mean() - 0.5) < 5 * (1 / 12 / count) ** 0.5
        if name == "noise":
            assert set(np.bincount((3 * values).astype(int)) > 0) == {True}
            continue
        quarters = np.histogram(values, 4, (0, 1))[0] / count
        assert (abs(quarters - 0.25) < 5 * (3 / 16 / count) ** 0.5).all()


def test_draws_do_not_depend_on_ranks_and_batches(clips, street):
    op = T.AddNoise(street)
    whole = rows(clips, op)
    shares = {}
    for rank in range(2):
        shares.update(
            rows(clips, op, batch_size=3, rank=rank, world_size=2, pad=False)
        )
    assert whole.keys() == shares.keys()
    for index, row in whole.items():
        assert (shares[index] == row).all()


def test_fetch_and_the_same_dataset_as_noise(client, clips):
    op = T.AddNoise(clips, 10)
    found = rows(clips, op, shuffle=False)
    for index, row in found.items():
        want = expected(_CLIPS[index], index, (10, 10), _CLIPS)
        np.testing.assert_allclose(row, want, atol=1e-5 * abs(want).max())
    with noisy(clips, op) as job:
        batch = job.fetch(list(found), epoch=0)
        for row, want in zip(batch.audio, found.values()):
            assert (row == want).all()


def test_silence_and_channels(client):
    """Each channel has the ratio; one without energy stays as it is."""
    signal = _RANDOM.standard_normal((6, 80, 2)).astype(np.float32)
    signal[3, :, 1] = 0
    data = client.push_dataset("stereo-n", {"audio": signal})
    noise = _RANDOM.standard_normal((1, 80)).astype(np.float32)
    client.push_dataset("mono-n", {"audio": noise})
    silent = client.push_dataset(
        "silent-n", {"audio": np.zeros((2, 30, 2), np.float32)}
    )
    arguments = {"windows": None}
    for row, want in zip(
        rows(data, T.AddNoise(silent), shuffle=False, **arguments).values(),
        signal,
    ):
        assert (row == want).all()
    found = rows(data, T.AddNoise("mono-n", 6), shuffle=False, **arguments)
    for index, row in found.items():
        added = (row - signal[index]).astype(np.float64)
        for c in range(2):
            if not signal[index, :, c].any():
                assert (row[:, c] == 0).all()
                continue
            energies = (signal[index, :, c].astype(np.float64) ** 2).sum(), (
                added[:, c] ** 2).sum()
            ratio = 10 * np.log10(energies[0] / energies[1])
            assert abs(ratio - 6) < 1e-3


def test_noise_that_is_no_number_is_left_out(client):
    signal = np.ones((3, 50), np.float32)
    signal[1, 7] = np.nan
    data = client.push_dataset("nan-n", {"audio": signal})
    client.push_dataset(
        "inf-n", {"audio": np.full((1, 50), np.inf, np.float32)}
    )
    client.push_dataset("one-n", {"audio": np.ones((1, 50), np.float32)})
    kept = rows(data, T.AddNoise("inf-n"), windows=None)
    for index, row in kept.items():
        np.testing.assert_array_equal(row, signal[index])
    added = rows(data, T.AddNoise("one-n", 0), windows=None)
    assert (added[0] == 2).all()
    np.testing.assert_array_equal(added[1], signal[1])


def test_parts_of_a_mixture_have_noise(clips, street):
    both = datasetd.concat([clips, clips])
    found = rows(both, T.AddNoise(street), shuffle=False)
    assert len(found) == _COUNT
    own = rows(
        both, shuffle=False,
        transforms={clips: {"audio": [T.AddNoise(street)]}},
    )  # fmt: skip
    assert all((own[i] == found[i]).all() for i in found)


# -- Lengths of what the ops make ------------------------------------------------


@pytest.mark.parametrize("center, pad", [(True, 0), (False, 0), (False, 9)])
def test_masks_are_within_the_frames_of_a_crop(client, clips, center, pad):
    mel = T.MelSpectrogram(
        16000, n_fft=32, hop_length=10, n_mels=4, center=center, pad=pad
    )
    masks = [T.TimeMasking(20, mask_value=-1), T.FrequencyMasking(4)]
    plain, masked = (rows(clips, mel, *ops) for ops in ([], masks))
    told = client.explain(
        clips, {"audio": [mel, *masks]}, 5, indices=range(_COUNT),
        windows=datasetd.crops(_LENGTH),
    )  # fmt: skip
    with noisy(clips, mel) as job:
        for batch in job:
            for i, length in zip(batch.indices, batch.lengths):
                steps = min(_LENGTH, _SIZES[i]) + 2 * pad
                frames = (
                    1 + steps // 10 if center else max(0, 1 + (steps - 32) // 10)
                )
                assert length == (frames if _SIZES[i] else 0)
                want = plain[i].copy()
                time, frequency = told[i][-2:]
                begin, end = (int(time.parameters[f"mask_{end}"][0])
                              for end in ("start", "end"))  # fmt: skip
                want[:, max(begin, 0) : min(end, length)] = -1
                words = [np.float32(word >> 8) / np.float32(2**24)
                         for word in philox([1, 1, 0, i], 5)]  # fmt: skip
                size = words[0] * np.float32(20)
                first = int(words[1] * (np.float32(length) - size))
                assert (begin, end) == (first, first + int(size))
                begin, end = (int(frequency.parameters[f"mask_{end}"][0])
                              for end in ("start", "end"))  # fmt: skip
                want[begin:end, :length] = 0
                assert (masked[i] == want).all()


def test_shifts_are_within_the_steps_of_a_crop(client, clips):
    for rollover in (True, False):
        op = T.Shift(-0.5, 0.5, rollover=rollover, p=1)
        told = client.explain(
            clips, {"audio": [op]}, 5, indices=range(_COUNT),
            windows=datasetd.crops(_LENGTH),
        )  # fmt: skip
        for index, row in rows(clips, op).items():
            want = np.full(_LENGTH, 0.5, np.float32)
            clip = _CLIPS[index][:_LENGTH]
            steps = int(told[index][-1].parameters["shift"][0])
            assert abs(steps) <= round(len(clip) / 2)
            moved = np.roll(clip, steps)
            if not rollover:
                moved[slice(0, steps) if steps >= 0 else slice(steps, None)] = 0
            want[: len(clip)] = moved
            assert (row == want).all()


# -- What the loader holds and compares ------------------------------------------


def test_a_feed_uses_the_dataset_of_noise(client, clips):
    noise = client.push_dataset("held-n", {"audio": np.ones((2, 9), np.int16)})
    with noisy(clips, T.AddNoise(noise), batch_size=1, prefetch=1) as job:
        batches = iter(job)
        next(batches)
        noise.close()
        (listed,) = (
            d for d in client.list_datasets() if d["name"] == "held-n"
        )
        assert listed["num_feeds"] == 1
        with pytest.raises(FailedPrecondition, match="'held-n'.*feed"):
            client.unload_dataset("held-n")
        client.unload_dataset("held-n", force=True)
        with pytest.raises(DatasetUnloaded):
            list(batches)


def test_a_state_is_of_its_noise(client, clips, street):
    op = T.AddNoise("street")
    with noisy(clips, op) as job:
        want = [batch.audio.copy() for batch in job]
        batches = iter(job)
        job.set_epoch(0)
        next(batches)
        state = job.state_dict()
    assert list(state["noise"]) == ["street"]
    with noisy(clips, op) as job:
        job.load_state_dict(state)
        for batch, row in zip(job, want[1:]):
            np.testing.assert_array_equal(batch.audio, row)
    other = client.push_dataset("other-n", {"sound": np.ones((3, 9), np.int16)})
    with noisy(clips, T.AddNoise(other)) as job:
        with pytest.raises(FailedPrecondition, match="noise is.*'street'.*"
                           "'other-n'.*noise of other datasets"):  # fmt: skip
            job.load_state_dict(state)
    with noisy(clips) as job:
        with pytest.raises(FailedPrecondition, match="state_dict"):
            job.load_state_dict(state)
    # The same noise by another name.
    samples = [{"sound": x} for x in _NOISES]
    again = client.push_dataset("street-2", samples, ragged=True)
    with noisy(clips, T.AddNoise(again)) as job:
        job.load_state_dict(state)
        np.testing.assert_array_equal(next(iter(job)).audio, want[1])


def test_a_name_is_not_held_by_the_loader(client, clips):
    client.push_dataset("named-n", {"audio": np.ones((1, 9), np.int16)}).close()
    with noisy(clips, T.AddNoise("named-n")):
        (listed,) = (
            d for d in client.list_datasets() if d["name"] == "named-n"
        )
        assert (listed["num_holders"], listed["num_feeds"]) == (0, 1)


def test_noise_that_is_loading(daemon, client, clips):
    """The daemon refuses it, and a loader waits for it."""
    slow = SlowSamples()
    with daemon.connect() as other, ThreadPoolExecutor(2) as pool:
        pushed = pool.submit(other.push_dataset, "slow-n", slow)
        assert slow.is_begun.wait(60)
        op = T.AddNoise("slow-n")
        with pytest.raises(FailedPrecondition, match="AddNoise.*'slow-n'.*load"):
            client.explain(
                clips, {"audio": [op]}, windows=datasetd.crops(9)
            )
        waiting = pool.submit(noisy, clips, op)
        slow.go_on.set()
        waiting.result(60).close()
        pushed.result(60)


@pytest.mark.parametrize(
    "op, error, words",
    [
        (T.AddNoise("nothing"), NotFound, "AddNoise.*'nothing'"),
        (T.AddNoise("images-n"), InvalidArgument, "'images-n'.*0 fields"),
        (T.AddNoise("images-n", field="image"), InvalidArgument,
         "'image' of the noise 'images-n' has images"),
        (T.AddNoise("images-n", field="label"), InvalidArgument,
         r"'label'.*shape \[\].*recordings"),
        (T.AddNoise("images-n", field="x"), InvalidArgument,
         "no field 'x'.*one of image, label"),
        (T.AddNoise("two-n"), InvalidArgument, "2 fields.*one of a, b, c"),
        (T.AddNoise("two-n", field="b"), InvalidArgument,
         "2 channels, and the waveform has 1.*push it with one"),
        (T.AddNoise("two-n", field="c"), InvalidArgument,
         "'c'.*uint8.*no negative numbers.*int16 or float32"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_noise(client, clips, op, error, words):
    client.push_dataset("images-n", {
        "image": np.zeros((2, 8, 8, 3), np.uint8), "label": np.zeros(2, int),
    }, if_exists="same")  # fmt: skip
    client.push_dataset("two-n", {
        "a": np.zeros((2, 8), np.int16), "b": np.zeros((2, 8, 2), np.int16),
        "c": np.zeros((2, 8, 1, 1), np.uint8),
    }, if_exists="same")  # fmt: skip
    if op.field == "c":
        client.push_dataset("two-n2", {"c": np.zeros((2, 8), np.uint8)})
        op = T.AddNoise("two-n2")
    for attempt in (
        lambda: noisy(clips, op),
        lambda: client.explain(
            clips, {"audio": [op]}, windows=datasetd.crops(9)
        ),
    ):
        with pytest.raises(error, match=words):
            attempt()


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: T.AddNoise(3), "noise=3; expected a Dataset, or its name"),
        (lambda: T.AddNoise(""), "noise=''; expected a Dataset"),
        (lambda: T.AddNoise("x", (3, 1)), "snr=.*in that order"),
        (lambda: T.AddNoise("x", float("nan")), "snr=.*nan"),
        (lambda: T.AddNoise("x", (0, float("inf"))), "snr=.*from -200 to 200"),
        (lambda: T.AddNoise("x", 201), "snr=.*from -200 to 200"),
        (lambda: T.AddNoise("x", p=2), "p=2; expected a number from 0 to 1"),
    ],
)
def test_arguments_are_checked(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


def test_noise_of_others(daemon, client, clips, street):
    with pytest.raises(InvalidArgument, match="Subset of 'street'.*push it"):
        noisy(clips, T.AddNoise(street.select([0])))
    want = rows(clips, T.AddNoise(street))
    with daemon.connect() as other:
        theirs = other.get_dataset("street")
        found = rows(clips, T.AddNoise(theirs))
        assert all((found[i] == want[i]).all() for i in want)
    with datasetd.start_local(device="cpu") as local, local.connect() as other:
        theirs = other.push_dataset("street", {"sound": np.ones((1, 9))})
        with pytest.raises(
            InvalidArgument, match="'street' is of the daemon at.*into one"
        ):
            noisy(clips, T.AddNoise(theirs))
    with pytest.raises(InvalidArgument, match="AddNoise"):
        client.push_dataset(
            "x-n", {"audio": np.ones((2, 9), np.float32)},
            pretransforms={"audio": [T.AddNoise("street")]},
        )  # fmt: skip
