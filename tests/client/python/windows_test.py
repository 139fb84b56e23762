"""Windows of streams: blocks, random windows, and a sampler's. NumPy's slices
are the judge."""

import datasetd
import numpy as np
import pytest
import torch
from conftest import loader
from datasetd import transforms as T
from datasetd.errors import FailedPrecondition, InvalidArgument, OutOfRange

_RANDOM = np.random.default_rng(8)
_LENGTH = 16
_NUM_BLOCKS = 60
# With targets, so many blocks and no step more.
_TOKENS = _RANDOM.integers(
    0, 2**16, _LENGTH * _NUM_BLOCKS + 1, dtype=np.uint16
)
_SIGNAL = _RANDOM.standard_normal((len(_TOKENS), 3)).astype(np.float32)


@pytest.fixture
def tokens(client):
    return client.push_dataset("stream", {"tokens": _TOKENS}, if_exists="same")


def windowed(dataset, windows, **arguments):
    return loader(
        dataset,
        **{"shuffle": False, "batch_size": 7, "windows": windows, **arguments},
    )


def checked(batches, length=_LENGTH, source=_TOKENS):
    """First steps of an epoch's windows, which NumPy cuts, too."""
    starts = []
    for batch in batches:
        rows = batch.indices.tolist()
        for field, shift in (("tokens", 0), ("targets", 1)):
            values = getattr(batch, field)
            assert values.dtype == torch.int64
            want = [source[s + shift : s + shift + length] for s in rows]
            np.testing.assert_array_equal(values.numpy(), want)
        starts += rows
    return starts


def steps(starts, length=_LENGTH):
    return sorted(s + i for s in starts for i in range(length))


# -- Blocks ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "length, stride, phase",
    [
        (16, None, None),
        (16, None, 5),
        (16, 4, None),
        (16, 100, 3),
        (1, None, None),
        (len(_TOKENS) - 1, None, None),
        (len(_TOKENS) - 5, 2**62, 4),
        (len(_TOKENS) - 9, 3, None),
    ],
)
def test_blocks_are_slices_in_order(tokens, length, stride, phase):
    windows = datasetd.blocks(length, stride, phase=phase)
    with windowed(tokens, windows) as job:
        want = list(range(phase or 0, len(_TOKENS) - length, stride or length))
        assert checked(job, length) == want
        assert job.num_samples == len(want)
        assert len(job) == -(-len(want) // 7)


def test_shuffled_blocks_have_another_phase_in_each_epoch(tokens):
    with windowed(tokens, datasetd.blocks(_LENGTH), shuffle=True) as job:
        phases = set()
        for _ in range(40):
            starts = checked(job)
            phase = min(starts)
            assert sorted(starts) == list(
                range(phase, phase + len(starts) * _LENGTH, _LENGTH)
            )
            assert starts != sorted(starts)
            assert len(starts) == _NUM_BLOCKS - 1
            phases.add(phase)
        assert phases <= set(range(_LENGTH)) and len(phases) > 10


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_ranks_have_each_step_once(tokens, world_size):
    windows = datasetd.blocks(_LENGTH, phase=0)
    starts = []
    for rank in range(world_size):
        with windowed(
            tokens, windows, shuffle=True, rank=rank, world_size=world_size,
            pad=False,
        ) as job:  # fmt: skip
            starts += checked(job)
    assert steps(starts) == list(range(_LENGTH * _NUM_BLOCKS))


def test_an_order_is_a_function_of_seed_and_epoch(tokens):
    def order(windows, seed, epoch, batch_size=7):
        with windowed(
            tokens, windows, shuffle=not windows.is_random, seed=seed,
            batch_size=batch_size,
        ) as job:  # fmt: skip
            job.set_epoch(epoch)
            return checked(job, 9)

    for windows in (datasetd.blocks(9), datasetd.random_windows(9)):
        first = order(windows, 5, 0)
        assert first == order(windows, 5, 0, batch_size=11)
        assert first != order(windows, 6, 0)
        assert first != order(windows, 5, 1)


def test_length_and_batch_size_change_between_epochs(client, tokens):
    resident = client.get_dataset("stream").resident_bytes
    for epoch, length in enumerate((8, 32, 128)):
        with windowed(
            tokens, datasetd.blocks(length), shuffle=True,
            batch_size=256 // length,
        ) as job:  # fmt: skip
            job.set_epoch(epoch)
            assert len(checked(job, length)) == job.num_samples
    assert client.get_dataset("stream").resident_bytes == resident


# -- Random windows -------------------------------------------------------------


def test_random_windows_begin_anywhere(tokens):
    windows = datasetd.random_windows(4, num_windows=20_000)
    with windowed(tokens, windows, batch_size=500) as job:
        starts = checked(job, 4)
    assert len(starts) == 20_000
    num_starts = len(_TOKENS) - 4
    assert (min(starts), max(starts)) == (0, num_starts - 1)
    counts = np.bincount(starts, minlength=num_starts)
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    # 957 degrees of freedom: 6 standard deviations.
    assert abs(chi_square - num_starts) < 6 * np.sqrt(2 * num_starts)


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_divide_random_windows(tokens, world_size):
    windows = datasetd.random_windows(5, num_windows=64)
    with windowed(tokens, windows) as job:
        want = checked(job, 5)
    got = [None] * 64
    for rank in range(world_size):
        with windowed(
            tokens, windows, rank=rank, world_size=world_size
        ) as job:
            got[rank::world_size] = checked(job, 5)
    assert got == want


def test_an_epoch_of_random_windows_has_the_steps_of_the_stream(tokens):
    with windowed(tokens, datasetd.random_windows(10)) as job:
        assert job.num_samples == (len(_TOKENS) - 1) // 10
    with windowed(tokens, datasetd.random_windows(10, num_windows=0)) as job:
        assert (len(job), list(job)) == (0, [])


# -- Resuming -------------------------------------------------------------------


@pytest.mark.parametrize("windows", [
    datasetd.blocks(_LENGTH), datasetd.blocks(_LENGTH, 5, phase=2),
    datasetd.random_windows(_LENGTH, 77),
], ids=["blocks", "strides", "random"])  # fmt: skip
@pytest.mark.parametrize("seed", range(4))
def test_ranks_and_batch_size_may_change_within_an_epoch(
    tokens, windows, seed
):
    generator = np.random.default_rng(seed)
    shuffle = not windows.is_random
    with windowed(tokens, windows, shuffle=shuffle, seed=seed) as job:
        job.set_epoch(1)
        whole = checked(job)
    done, state = [], None
    for world_size in generator.choice([1, 2, 4, 8], 3, replace=False):
        batch_size = int(generator.integers(1, 9))
        num_batches = int(generator.integers(1, 4))
        taken = []
        for rank in range(world_size):
            with windowed(
                tokens, windows, shuffle=shuffle, seed=seed, pad=False,
                rank=rank, world_size=int(world_size), batch_size=batch_size,
            ) as job:  # fmt: skip
                if state is None:
                    job.set_epoch(1)
                else:
                    job.load_state_dict(state)
                batches = iter(job)
                taken.append(
                    checked(b for _, b in zip(range(num_batches), batches))
                )
                if rank == 0:
                    next_state = job.state_dict()
        rows = max(map(len, taken))
        done += [t[i] for i in range(rows) for t in taken if i < len(t)]
        if len(done) >= len(whole):
            break
        state = next_state
    assert done == whole[: len(done)] and len(done) > 7


def test_other_windows_are_refused_within_an_epoch(tokens):
    with windowed(tokens, datasetd.blocks(8), shuffle=True) as job:
        batches = iter(job)
        next(batches)
        within = job.state_dict()
        list(batches)
        between = job.state_dict()
    with windowed(tokens, datasetd.blocks(16), shuffle=True, seed=5) as job:
        with pytest.raises(
            FailedPrecondition,
            match="windows is 'blocks 8'.*has 'blocks 16'.*set_epoch",
        ):
            job.load_state_dict(within)
        job.load_state_dict(between)
        assert job.peek().epoch == 1
        checked(job, 16)
    with windowed(tokens, 8, shuffle=True) as job:
        job.load_state_dict(within)  # a length is blocks
    with loader(tokens) as job, pytest.raises(FailedPrecondition):
        job.load_state_dict(within)


# -- Fields ---------------------------------------------------------------------


def test_each_field_is_a_window(client):
    label = np.arange(len(_TOKENS), dtype=np.int32)
    data = {"signal": _SIGNAL, "label": label, "price": _SIGNAL[:, 0]}
    with client.push_dataset("signals", data) as dataset:
        windows = datasetd.blocks(10, targets="price")
        with windowed(dataset, windows, transforms={
            "signal": [T.ToDtype("float16")],
        }) as job:  # fmt: skip
            for batch in job:
                rows = batch.indices.numpy()[:, None] + np.arange(10)
                want = torch.from_numpy(_SIGNAL[rows]).half()
                assert torch.equal(batch.signal, want)
                assert batch.label.dtype == torch.int64
                np.testing.assert_array_equal(batch.label, rows)
                np.testing.assert_array_equal(batch.price, _SIGNAL[rows, 0])
                np.testing.assert_array_equal(
                    batch.targets, _SIGNAL[rows + 1, 0]
                )
        with windowed(dataset, windows) as job:
            names = ("signal", "label", "price", "targets")
            assert job.peek().keys() == names
        with windowed(dataset, 10, fields="signal") as job:
            assert list(job.peek().keys()) == ["signal"]


def test_fields_choose_targets(tokens):
    with windowed(tokens, 8, fields=["targets"]) as job:
        batch = job.peek()
        np.testing.assert_array_equal(batch[0][0], _TOKENS[1:9])
        assert len(batch) == 1
    with windowed(tokens, datasetd.blocks(8, targets="")) as job:
        assert len(job.peek()) == 1
        assert job.num_samples == len(_TOKENS) // 8


def test_a_sampler_and_fetch_name_first_steps(tokens):
    starts = [3, 900, 3, 0]
    with windowed(tokens, 8, sampler=starts, batch_size=3) as job:
        assert checked(job, 8) == starts
    with windowed(tokens, datasetd.random_windows(8)) as job:
        assert checked([job.fetch(starts)], 8) == starts
    last = len(_TOKENS) - 9
    with windowed(tokens, 8, sampler=[last]) as job:
        assert checked(job, 8) == [last]
    with windowed(tokens, 8, sampler=[last + 1]) as job:
        with pytest.raises(OutOfRange, match=str(last + 1)):
            list(job)


# -- Refusals -------------------------------------------------------------------


@pytest.mark.parametrize("make, words", [
    (lambda: datasetd.blocks(0), "length=0.*1"),
    (lambda: datasetd.blocks(-4), "length=-4"),
    (lambda: datasetd.blocks(2**63), "length"),
    (lambda: datasetd.blocks(8, 0), "stride=0"),
    (lambda: datasetd.blocks(8, phase=-1), "phase=-1"),
    (lambda: datasetd.blocks(8, targets=True), "targets=True.*name of a field"),
    (lambda: datasetd.random_windows(8, -1), "num_windows=-1"),
], ids=str)  # fmt: skip
def test_wrong_windows_are_named(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


@pytest.mark.parametrize("arguments, words", [
    ({"windows": len(_TOKENS)}, f"a field begins 1 later .*1..{len(_TOKENS) - 1}"),
    ({"windows": 2**62}, "length is 4611686018427387904"),
    ({"windows": 0}, "windows=0"),
    ({"windows": "8"}, "windows='8'.*datasetd.blocks"),
    ({"windows": datasetd.blocks(8, phase=2**62)}, "phase is .*can begin is 952"),
    ({"windows": datasetd.random_windows(8, 2**32 - 1)}, "num_windows is"),
    ({"windows": datasetd.blocks(8, targets="x")}, "targets='x'.*'tokens'"),
    ({"windows": datasetd.random_windows(8), "shuffle": True}, "shuffle="),
    ({"windows": datasetd.blocks(8), "sampler": [1]}, "is a length: windows=8"),
    ({"windows": 8, "subset": [1, 2]}, "windows= and subset="),
    ({"windows": 8, "weights": [1.0] * len(_TOKENS)}, "windows= and weights="),
    ({"windows": 8, "group_size": 7}, "windows= and group_size="),
    ({"windows": 8, "transforms": {"tokens": [T.RandomHorizontalFlip()]}},
     "'tokens'.*RandomHorizontalFlip.*not an image"),
], ids=str)  # fmt: skip
def test_a_loader_names_what_does_not_fit_its_windows(
    tokens, arguments, words
):
    with pytest.raises(InvalidArgument, match=words):
        windowed(tokens, **arguments)


def test_images_have_no_windows(dataset):
    with pytest.raises(InvalidArgument, match="'image' is an image.*fields="):
        windowed(dataset, 8)
    with windowed(dataset, 8, fields="label") as job:
        assert job.peek()[0].shape == (7, 8)


# -- Token files ----------------------------------------------------------------


def test_token_files_are_one_stream(client, data_root):
    for i, part in enumerate(np.split(_TOKENS, [100, 500])):
        with open(data_root / f"train_{i}.bin", "wb") as file:
            file.write(bytes(1024) + part.tobytes())
    np.save(data_root / "all.npy", _TOKENS.astype(np.int32))
    for name, path, options in (
        ("shards", "train_{0..2}.bin", {"header_bytes": "1024"}),
        ("array", "all.npy", {}),
    ):
        with client.load_dataset(
            name, format="tokens", path=data_root / path, options=options
        ) as dataset:
            assert len(dataset) == len(_TOKENS)
            with windowed(dataset, 20) as job:
                assert len(checked(job, 20)) == 48
