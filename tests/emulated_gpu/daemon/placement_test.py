"""A job gets the same batches wherever samples lie: pinned, split, auto and
sharded datasets give those of one GPU, bit for bit. On emulated GPUs with
little memory."""

import contextlib
import os
import re
import subprocess

import numpy as np
import pytest
from PIL import Image

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 96
_BATCH_SIZE = 20  # the last batch has 16
_SAMPLE_BYTES = 3072 + 1
_MIB = 1 << 20

# Pipelines for the kernels of moves and of chains; "mix" reads another row.
_TRANSFORMS = {
    "nothing": [],
    "moves": [
        T.RandomCrop(32, padding=4),
        T.RandomHorizontalFlip(),
        T.ToDtype("float16", scale=True),
    ],
    "chain": [
        T.RandomResizedCrop(24),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.ToDtype("float32", scale=True),
    ],
    "mix": [
        T.ToDtype("float32", scale=True),
        T.CutMix(num_classes=10, per_sample=True),
    ],
}
_RAGGED = [
    T.RandomResizedCrop(16),
    T.ToDtype("float32", scale=True),
    T.MixUp(num_classes=10),
]


@contextlib.contextmanager
def _open(num_devices=1, devices=None, memory_mib=256, environment=None,
          **config):
    """(daemon, client); the data roots hold cifar10 in "d"."""
    names = devices or [f"cuda:{i}" for i in range(num_devices)]
    with harness.Daemon(
        devices=names,
        environment={
            "DATASETD_EMULATED_GPU_DEVICES": str(num_devices),
            "DATASETD_EMULATED_GPU_MEMORY_MIB": str(memory_mib),
            "DATASETD_EMULATED_GPU_MAX_DELAY_US": "20",
            **(environment or {}),
        },
        **{"memory_budget_mib": 64, "pinned_budget_mib": 64, **config},
    ) as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        with daemon.connect() as client:
            yield daemon, client


def _load(client, daemon, name="d", **options):
    return client.load_dataset(
        name, format="cifar10", split="test", path=daemon.path, **options)


def _rows(dataset, num_epochs=2, **options):
    """{(epoch, sample): bytes of all fields}."""
    rows = {}
    options = {"batch_size": _BATCH_SIZE, "shuffle": True, "seed": 5,
               "framework": "numpy" if dataset.device == "cpu" else "dlpack",
               "timeout": 60, **options}
    with datasetd.DataLoader(dataset, **options) as loader:
        for epoch in range(num_epochs):
            batches = loaders.take_epoch(loader)
            images = loaders.by_sample(batches)
            labels = loaders.by_sample(batches, field=1)
            for sample, image in images.items():
                rows[epoch, sample] = image + labels[sample]
    return rows


def _check_reads(client, dataset, rows, ragged):
    """Copies of samples are those of a loader, and raw ones those pushed."""
    for name in ("nothing", "moves", "chain"):
        for epoch in range(2):
            images, labels = client.fetch(
                dataset, range(_NUM_SAMPLES), _TRANSFORMS[name], seed=5,
                epoch=epoch, framework="numpy")
            for i, (image, label) in enumerate(zip(images, labels)):
                assert image.tobytes() + label.tobytes() == (
                    rows[name][epoch, i]), (name, epoch, i)
    want = _ragged_arrays(np.random.default_rng(7))
    column = ragged.column("image")
    for i, image in enumerate(want):
        assert (column[i] == image.transpose(2, 0, 1)).all()
    image, label = ragged[50]
    assert (np.asarray(image) == column[50]).all() and int(label) == 0


def _all(dataset):
    return {name: _rows(dataset, transforms=transforms)
            for name, transforms in _TRANSFORMS.items()}


def _ragged_arrays(generator):
    """Images of 96 sizes, one of which is most of a batch, and labels."""
    images = []
    for i in range(_NUM_SAMPLES):
        height, width = generator.integers(5, 40, 2)
        if i == 50:
            height, width = 300, 257
        images.append(generator.integers(
            0, 256, (height, width, 3), dtype=np.uint8))
    return images


def _push_ragged(client, name, **options):
    images = _ragged_arrays(np.random.default_rng(7))
    return client.push_dataset(
        name, [(image, i % 10) for i, image in enumerate(images)],
        ragged=True, **options)


@pytest.fixture(scope="module", name="expected")
def _expected():
    """From samples that lie whole on one GPU."""
    with _open() as (daemon, client):
        dataset = _load(client, daemon)
        assert dataset.residency == "device"
        assert dataset.placements == [
            datasetd.Placement("cuda:0", dataset.resident_bytes, 0)]
        pretransformed = _load(
            client, daemon, "p", pretransforms=[T.Resize((20, 20))])
        ragged = _push_ragged(client, "r")
        rows = _all(dataset)
        _check_reads(client, dataset, rows, ragged)
        return {
            "hash": dataset.content_hash,
            "rows": rows,
            "pretransformed_hash": pretransformed.content_hash,
            "pretransformed": _rows(
                pretransformed, transforms=_TRANSFORMS["moves"][1:]),
            "ragged_hash": ragged.content_hash,
            "ragged": _rows(ragged, transforms=_RAGGED),
        }


_HALF = _NUM_SAMPLES // 2 * _SAMPLE_BYTES


@pytest.mark.parametrize("num_devices, options, residency", [
    (1, {"residency": "pinned"}, "pinned"),
    (1, {"residency": "split", "device_bytes": _HALF}, "split"),
    (1, {"residency": "split", "device_bytes": 1}, "pinned"),
    (1, {"residency": "auto"}, "device"),
    (2, {"device": "shard"}, "device"),
    (4, {"device": "shard"}, "device"),
    (8, {"device": "shard"}, "device"),
    (8, {"device": "each", "residency": "pinned"}, "pinned"),
    (4, {"device": "shard:cuda:1,cuda:3"}, "device"),
    (2, {"device": "shard", "residency": "split", "device_bytes": _HALF // 2},
     "split"),
    (2, {"device": "cuda:1", "residency": "pinned"}, "pinned"),
])
def test_batches_are_those_of_one_gpu(
        expected, num_devices, options, residency):
    with _open(num_devices) as (daemon, client):
        dataset = _load(client, daemon, **options)
        assert dataset.content_hash == expected["hash"]
        assert dataset.residency == residency
        assert sum(p.device_bytes + p.host_bytes
                   for p in dataset.placements) == dataset.resident_bytes
        assert _all(dataset) == expected["rows"]
        pretransformed = _load(
            client, daemon, "p", pretransforms=[T.Resize((20, 20))], **options)
        assert pretransformed.content_hash == expected["pretransformed_hash"]
        assert _rows(
            pretransformed, transforms=_TRANSFORMS["moves"][1:]
        ) == expected["pretransformed"]
        ragged = _push_ragged(client, "r", **options)
        assert ragged.content_hash == expected["ragged_hash"]
        assert _rows(ragged, transforms=_RAGGED) == expected["ragged"]
        _check_reads(client, dataset, expected["rows"], ragged)
        assert daemon.is_running()


def _write_folder(directory):
    """PNGs of 40 sizes in two classes, two of which are damaged."""
    generator = np.random.default_rng(11)
    for i in range(40):
        folder = os.path.join(directory, f"class{i % 2}")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{i:02}.png")
        height, width = generator.integers(5, 60, 2)
        Image.fromarray(generator.integers(
            0, 256, (height, width, 3), dtype=np.uint8)).save(path)
        if i in (3, 20):
            os.truncate(path, os.path.getsize(path) - 40)


def test_decoded_images_of_any_size():
    """Their sizes are found first, and bad ones are left out."""
    found = {}
    with _open(4) as (daemon, client):
        folder = os.path.join(daemon.data_root, "images")
        _write_folder(folder)
        for name, options in {
            "device": {},
            "pinned": {"residency": "pinned"},
            "split": {"residency": "split", "device_bytes": 50_000},
            "shard": {"device": "shard"},
        }.items():
            dataset = client.load_dataset(
                name, format="image_folder", path=folder, bad_samples="skip",
                **options)
            assert dataset.num_bad_samples == 2
            assert dataset.num_samples == 38
            assert dataset.residency == (
                name if name in ("pinned", "split") else "device")
            found[name] = dataset.content_hash, _rows(
                dataset, batch_size=7, transforms=[
                    T.Resize((24, 24)), T.RandomHorizontalFlip(),
                    T.ToDtype("float32", scale=True)])
        assert found["pinned"] == found["device"]
        assert found["split"] == found["device"]
        assert found["shard"] == found["device"]


def test_a_mixture_of_what_lies_in_several_places():
    """Samples of the parts are staged alike, and each has its transforms."""
    ops = _TRANSFORMS["moves"], [T.CenterCrop(32), T.ToDtype(
        "float16", scale=True)]
    seen = []
    for devices, options in (
            (["cpu"], [{}, {}]),
            (["cuda:0", "cuda:1"], [
                {"device": "cuda:0"},
                {"residency": "split", "device_bytes": _HALF}]),
    ):
        with _open(2, devices=devices) as (daemon, client):
            parts = [_load(client, daemon, name, **placed)
                     for name, placed in zip("ab", options)]
            for mixture in (datasetd.concat(parts), datasetd.mixture(
                    dict(zip(parts, (2, 1))), fixed_per_batch=True)):
                for transforms in (dict(zip(parts, ops)),
                                   _TRANSFORMS["mix"]):
                    with datasetd.DataLoader(
                            mixture, batch_size=_BATCH_SIZE, shuffle=True,
                            seed=5, framework="dlpack", timeout=60,
                            transforms=transforms) as loader:
                        seen += [(batch.bits(0).tobytes(),
                                  batch.bits(1).tobytes(),
                                  batch.indices.tolist())
                                 for batch in loaders.take_epoch(loader)]
            if len(devices) > 1:
                other = _load(client, daemon, "far", device="cuda:1")
                with pytest.raises(datasetd.InvalidArgument, match=(
                        "'far' is not on .*must be on one device")):
                    datasetd.DataLoader(datasetd.concat([parts[0], other]))
    half = len(seen) // 2
    assert half == 4 * 10 and seen[:half] == seen[half:]


def test_a_split_says_what_is_where():
    with _open() as (daemon, client):
        estimate = _load(client, daemon, residency="split",
                         device_bytes=_HALF, dry_run=True)
        dataset = _load(client, daemon, residency="split", device_bytes=_HALF)
        whole = _NUM_SAMPLES * _SAMPLE_BYTES
        assert dataset.placements == estimate.placements == [
            datasetd.Placement("cuda:0", _HALF, whole - _HALF)]
        assert estimate.residency == dataset.residency == "split"
        assert estimate.problem == ""
        status = client.status()["devices"][0]
        assert int(status["dataset_bytes"]) == _HALF
        assert int(status["pinned_bytes"]) == whole - _HALF


def test_a_shard_has_even_parts_and_feeds_on_each_device(expected):
    with _open(2) as (daemon, client):
        dataset = _load(client, daemon, device="shard")
        assert dataset.device == "shard:cuda:0,cuda:1"
        parts = [p.device_bytes for p in dataset.placements]
        assert parts == [_HALF, _HALF]
        devices = client.status()["devices"]
        assert [int(d["dataset_bytes"]) for d in devices] == parts
        assert [d["peers"] for d in devices] == [["cuda:1"], ["cuda:0"]]
        for device in ("cuda:0", "cuda:1"):
            for name, transforms in _TRANSFORMS.items():
                assert _rows(dataset, transforms=transforms, device=device) == (
                    expected["rows"][name]), (device, name)
        pinned = _load(client, daemon, "pinned", residency="pinned",
                       device="each")
        assert pinned.placements == [
            datasetd.Placement("cuda:0", 0, pinned.resident_bytes),
            datasetd.Placement("cuda:1", 0, 0)]
        assert _rows(pinned, transforms=_TRANSFORMS["chain"],
                     device="cuda:1") == expected["rows"]["chain"]


def test_peers_that_are_refused():
    with _open(2, environment={"DATASETD_EMULATED_GPU_PEERS": "0"}) as (
            daemon, client):
        with pytest.raises(datasetd.FailedPrecondition) as raised:
            _load(client, daemon, device="shard")
        assert re.search(
            "cuda:0 has no peer access to the memory of cuda:1: there is "
            "neither NVLink nor", str(raised.value))
        # A shard of one device has no peers.
        assert _load(client, daemon, device="shard:cuda:1").device == "cuda:1"


def _save_images(daemon, num_mib):
    """A field of that size, in 64 samples."""
    generator = np.random.default_rng(1)
    side = 128 * num_mib
    np.save(os.path.join(daemon.data_root, "image.npy"),
            generator.integers(0, 256, (64, 128, side, 1), dtype=np.uint8))
    return 64 * 128 * side


def test_auto_takes_the_device_as_far_as_the_budget_allows():
    with _open(memory_budget_mib=32) as (daemon, client):
        whole = _save_images(daemon, 40)
        arguments = {"format": "npy", "path": daemon.data_root}
        with pytest.raises(datasetd.ResourceExhausted) as raised:
            client.load_dataset("d", **arguments)
        assert str(whole) in str(raised.value)
        assert str(32 * _MIB) in str(raised.value)
        estimate = client.load_dataset(
            "d", residency="auto", dry_run=True, **arguments)
        dataset = client.load_dataset("d", residency="auto", **arguments)
        assert dataset.residency == estimate.residency == "split"
        assert dataset.placements == estimate.placements
        (placement,) = dataset.placements
        # Less a quarter, which is for feeds.
        assert 23 * _MIB < placement.device_bytes <= 24 * _MIB
        assert placement.device_bytes + placement.host_bytes == whole
        feed = _sums(dataset)
        client.unload_dataset("d")
        pinned = client.load_dataset("d", residency="pinned", **arguments)
        assert pinned.content_hash == dataset.content_hash
        assert pinned.placements[0].device_bytes == 0
        assert _sums(pinned) == feed


def _sums(dataset):
    with datasetd.DataLoader(
            dataset, batch_size=1, shuffle=True, seed=3, framework="dlpack",
            timeout=60, prefetch=1,
            transforms=[T.CenterCrop(8)]) as loader:
        images = loaders.by_sample(loaders.take_epoch(loader))
    assert len(images) == 64
    return images


def test_pinned_memory_has_a_budget_of_its_own():
    with _open(pinned_budget_mib=16) as (daemon, client):
        whole = _save_images(daemon, 20)
        arguments = {"format": "npy", "path": daemon.data_root,
                     "residency": "pinned"}
        estimate = client.load_dataset("d", dry_run=True, **arguments)
        assert (f"{whole} bytes, and the memory budget of pinned host memory "
                f"is {16 * _MIB}") in estimate.problem
        with pytest.raises(datasetd.ResourceExhausted) as raised:
            client.load_dataset("d", **arguments)
        message = str(raised.value)
        assert "dataset 'd' in pinned host memory needs" in message
        assert f"({whole} bytes)" in message
        assert f"({16 * _MIB} bytes)" in message
        assert "raise pinned_budget_mib" in message


def test_what_is_unused_makes_room_in_pinned_memory():
    with _open(pinned_budget_mib=30) as (daemon, client):
        _save_images(daemon, 20)
        arguments = {"format": "npy", "path": daemon.data_root,
                     "residency": "pinned"}
        with client.load_dataset("a", **arguments):
            with pytest.raises(datasetd.ResourceExhausted):
                client.load_dataset("b", **arguments)
        client.load_dataset("b", **arguments)
        assert [d["name"] for d in client.list_datasets()] == ["b"]


@pytest.mark.parametrize("residency, options, words", [
    ("split", {}, "'split' needs it"),
    ("pinned", {"device_bytes": 5}, "belongs to no other"),
    ("mapped", {}, "'mapped' is not for cuda:0"),
])
def test_what_is_not_allowed(residency, options, words):
    with _open() as (daemon, client):
        with pytest.raises(datasetd.InvalidArgument, match=words):
            _load(client, daemon, residency=residency, **options)


def test_the_host_has_no_choice():
    with harness.Daemon() as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        with daemon.connect() as client:
            for options in ({"residency": "pinned"},
                            {"residency": "split", "device_bytes": 5}):
                name = options["residency"]
                with pytest.raises(
                        datasetd.InvalidArgument,
                        match=f"residency: '{name}' is not for cpu"):
                    _load(client, daemon, **options)
            dataset = _load(client, daemon, residency="auto")
            assert dataset.residency == "device"


def test_the_residency_is_part_of_the_spec():
    with _open() as (daemon, client):
        first = _load(client, daemon, residency="pinned")
        assert _load(client, daemon, residency="pinned").spec_id == (
            first.spec_id)
        with pytest.raises(datasetd.AlreadyExists):
            _load(client, daemon)
        second = _load(client, daemon, "e")
        assert second.spec_id != first.spec_id
        assert second.content_hash == first.content_hash


def test_the_cache_and_a_restart_keep_it(expected, tmp_path):
    config = {
        "state_directory": str(tmp_path / "state"),
        "cache": {"directory": str(tmp_path / "cache"), "limit_mib": 256},
    }
    with _open(2, **config) as (daemon, client):
        cases = {
            "pinned": {"residency": "pinned"},
            "split": {"residency": "split", "device_bytes": _HALF},
            "shard": {"device": "shard"},
        }
        for name, options in cases.items():
            _load(client, daemon, name, **options)
        ragged = _push_ragged(client, "ragged", residency="pinned")
        before = {d["name"]: d["placements"] for d in client.list_datasets()}
        assert len(before) == 4
        harness.poll_until(
            lambda: len([f for f in os.listdir(tmp_path / "cache")
                         if f.endswith(".cache")]) == 4,
            "all are in the cache")
        assert ragged.content_hash == expected["ragged_hash"]
        client.close()
        daemon.kill()
        daemon.start()
        with daemon.connect() as client:
            harness.poll_until(
                lambda: all(d["state"] != "DATASET_STATE_LOADING"
                            for d in client.list_datasets())
                and len(client.list_datasets()) == 4,
                "they are loaded again")
            assert {d["name"]: d["error"] for d in client.list_datasets()} == {
                name: "" for name in before}
            after = {d["name"]: d["placements"]
                     for d in client.list_datasets()}
            # A push reserves what its header allows, which the cache need not.
            for name in cases:
                assert after[name] == before[name]
            assert client.get_dataset("ragged").residency == "pinned"
            for name in cases:
                dataset = client.get_dataset(name)
                assert dataset.content_hash == expected["hash"]
                assert _rows(
                    dataset, transforms=_TRANSFORMS["chain"]
                ) == expected["rows"]["chain"]
            assert _rows(
                client.get_dataset("ragged"), transforms=_RAGGED
            ) == expected["ragged"]


def _memory(client):
    return [(d["dataset_bytes"], d["slab_bytes"], d["scratch_bytes"],
             d["pinned_bytes"]) for d in client.status()["devices"]]


def test_memory_after_100_loads():
    with _open(2) as (daemon, client):
        at_start = _memory(client)
        cases = [
            {"residency": "pinned"},
            {"residency": "split", "device_bytes": _HALF},
            {"device": "shard"},
            {"device": "shard", "residency": "split", "device_bytes": 99_999},
        ]
        sizes = []
        for i in range(100):
            dataset = _load(client, daemon, **cases[i % len(cases)])
            # Feeds leave the process larger, but no device.
            if i < 40 and i % 10 < len(cases):
                with datasetd.DataLoader(
                        dataset, batch_size=8, framework="dlpack",
                        timeout=60) as loader:
                    next(iter(loader))
            # The feed was closed just now.
            client.unload_dataset("d")
            sizes.append(daemon.pss_bytes())
        harness.poll_until(
            lambda: _memory(client) == at_start, "the memory's return")
        # Less than a tenth of the samples of 60 loads.
        assert sizes[-1] - sizes[39] < 60 * dataset.resident_bytes / 10, sizes
        assert daemon.is_running()


_ENDLESS = """
client = datasetd.connect(ADDRESS)
dataset = client.load_dataset("d", format="cifar10", split="test",
                              path=ARGUMENTS["path"],
                              **ARGUMENTS["options"])
loader = datasetd.DataLoader(dataset, batch_size=8, framework="dlpack",
                             timeout=60)
while True:
    for batch in loader:
        say(num_samples=batch.num_samples)
        break
"""


@pytest.mark.parametrize("options", [
    {"residency": "pinned"}, {"device": "shard"}])
def test_a_client_is_killed_meanwhile(expected, options):
    with _open(2) as (daemon, client):
        at_start = _memory(client)
        with harness.Worker(_ENDLESS, daemon.socket_path, path=daemon.path,
                            options=options) as worker:
            assert worker.hear()["num_samples"] == 8
            dataset = _load(client, daemon, **options)
            worker.kill()
            worker.wait()
        assert _rows(dataset, transforms=_TRANSFORMS["chain"]) == (
            expected["rows"]["chain"])
        harness.poll_until(
            lambda: client.list_datasets()[0]["num_feeds"] == 0,
            "the end of the feed whose client was killed")
        dataset.close()
        client.unload_dataset("d")
        harness.poll_until(
            lambda: _memory(client) == at_start, "the memory's return")


def test_the_page_says_what_there_is():
    """The residencies of docs/loading.md are those that a GPU takes, and one
    of the host, and its commands do what it says."""
    with open(os.environ["LOADING_PAGE"], encoding="utf-8") as file:
        section = file.read().split("## Where the samples lie\n")[1]
    section = section.split("\n## ")[0]
    names = re.findall(r'^\| `"(\w+)"` \|', section, re.MULTILINE)
    assert names == ["device", "pinned", "split", "auto", "mapped"]
    names.remove("mapped")
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    with _open() as (daemon, client):
        for name in names:
            options = {"device_bytes": _HALF} if name == "split" else {}
            assert _load(client, daemon, name, residency=name,
                         **options).num_samples == _NUM_SAMPLES
        ctl = (harness.runfile("client/ctl/datasetctl"), "--address",
               daemon.socket_path)
        said = []
        for command in commands.splitlines():
            program, *arguments = command.split()
            assert program == "datasetctl"
            arguments[arguments.index("--format") + 1] = "cifar10"
            arguments[arguments.index("--path") + 1] = daemon.path
            said.append(subprocess.run(
                [*ctl, *arguments, "--split=test"],
                check=True, stdout=subprocess.PIPE, text=True).stdout)
        estimate, loaded = said
        assert "nothing was loaded" in estimate
        assert "residency     device" in estimate
        assert "train: ready on cuda:0" in loaded
        listed = subprocess.run(
            [*ctl, "datasets"], check=True, stdout=subprocess.PIPE,
            text=True).stdout
        assert re.search(r"^pinned +ready +cuda:0 +pinned ", listed,
                         re.MULTILINE), listed


def _fields(dataset, num_fields, **options):
    """{(epoch, first step): bytes of all fields} of rows that are windows."""
    options = {"batch_size": _BATCH_SIZE, "seed": 5, "timeout": 60,
               "framework": "numpy" if dataset.device == "cpu" else "dlpack",
               **options}
    with datasetd.DataLoader(dataset, **options) as loader:
        epochs = [loaders.take_epoch(loader) for _ in range(2)]
        return [[loaders.by_sample(batches, field=f)
                 for f in range(num_fields)] for batches in epochs]


def test_windows_are_the_same_bits_wherever_a_stream_lies():
    stream = np.random.default_rng(3).integers(0, 2**16, 30_001, np.uint16)
    signal = np.random.default_rng(4).standard_normal((30_001, 3)).astype("f4")
    data = {"tokens": stream, "signal": signal}
    halves = {"signal": [T.ToDtype("float16")]}
    orders = [(datasetd.blocks(257), True), (datasetd.blocks(5, 3), False),
              (datasetd.random_windows(1000, 100), False)]
    with _open(devices=["cuda:0", "cpu"]) as (_, client):
        datasets = [client.push_dataset(name, data, device=device,
                                        residency=residency)
                    for name, device, residency in (
                        ("host", "cpu", "device"), ("gpu", "cuda:0", "device"),
                        ("pinned", "cuda:0", "pinned"))]
        for windows, shuffle in orders:
            rows = [_fields(dataset, 3, transforms=halves, windows=windows,
                            shuffle=shuffle) for dataset in datasets]
            assert rows[0] == rows[1] == rows[2]
            assert len(rows[0][0][0]) > 90
        split = client.push_dataset(
            "split", data, device="cuda:0", residency="split",
            device_bytes=100_000)
        with pytest.raises(datasetd.errors.InvalidArgument,
                           match="'split' is in several memories.*pinned"):
            datasetd.DataLoader(split, 4, windows=8, framework="dlpack")
        documents = datasetd.documents(300, starts=range(0, 30_001, 70),
                                       ignore_ends=True)
        rows = [_fields(dataset, 5, transforms=halves, windows=documents,
                        shuffle=True) for dataset in datasets[:2]]
        assert rows[0] == rows[1] and len(rows[0][0][0]) > 90
        for dataset in (datasets[2], split):
            with pytest.raises(datasetd.errors.InvalidArgument,
                               match="not in the memory of the feed's device"):
                datasetd.DataLoader(dataset, 4, windows=documents,
                                    framework="dlpack")


def test_crops_are_the_same_bits_wherever_sequences_lie():
    generator = np.random.default_rng(6)
    data = [{"audio": generator.standard_normal(n).astype("f4"),
             "stereo": generator.integers(-9, 9, (n, 2), np.int16),
             "tokens": generator.integers(0, 2**16, n, np.uint16)}
            # In order, those of the first batch are staged in parts.
            for n in [0, 5000, 1, 0, *generator.integers(2500, 3000, 12),
                      *generator.integers(0, 60, 80), 0]]
    places = [("host", "cpu", {}), ("gpu", "cuda:0", {}),
              ("pinned", "cuda:0", {"residency": "pinned"}),
              ("split", "cuda:0", {"residency": "split",
                                   "device_bytes": 300_000}),
              ("shard", "shard:cuda:0,cuda:1", {})]
    with _open(2, devices=["cuda:0", "cuda:1", "cpu"]) as (_, client):
        datasets = [client.push_dataset(name, data, device=device,
                                        ragged=True, **options)
                    for name, device, options in places]
        assert len({dataset.content_hash for dataset in datasets}) == 1
        for dataset in datasets:
            for got, sample in zip(dataset.column("stereo"), data):
                np.testing.assert_array_equal(got, sample["stereo"])
        for windows, shuffle in (
                (datasetd.crops(700, "random", fill=3), False),
                (datasetd.crops(1, "center"), True),
                (datasetd.crops(), True)):
            rows = [_fields(dataset, 6, windows=windows, shuffle=shuffle,
                            transforms={"audio": [T.ToDtype("float16")]})
                    for dataset in datasets]
            assert all(one == rows[0] for one in rows[1:])
            assert len(rows[0][0][0]) == len(data)


def test_noise_adds_the_same_bits_wherever_the_signals_lie():
    """It has to be whole in the memory of the feed's device."""
    generator = np.random.default_rng(8)
    signals = [{"audio": generator.standard_normal(n).astype("f4")}
               for n in generator.integers(0, 900, 50)]
    noise = [{"audio": generator.integers(-99, 99, n, np.int16)}
             for n in (7, 400, 5000)]
    rest = [T.Shift(), T.MelSpectrogram(n_fft=64, n_mels=5), T.TimeMasking(9)]
    options = {"windows": datasetd.crops(600, "random"), "shuffle": True}
    with _open(2, devices=["cuda:0", "cuda:1", "cpu"]) as (_, client):
        def push(name, data, device, **options):
            return client.push_dataset(
                name, data, device=device, ragged=True, **options)

        def refused(dataset, name, words):
            ops = {"audio": [T.AddNoise(name)]}
            with pytest.raises(datasetd.errors.InvalidArgument, match=words):
                datasetd.DataLoader(
                    dataset, 4, framework="dlpack", transforms=ops, **options)

        push("street", noise, "each")
        push("street-cpu", noise, "cpu")
        push("far", noise, "cuda:1")
        push("pinned", noise, "cuda:0", residency="pinned")
        push("shards", noise, "shard:cuda:0,cuda:1")
        datasets = [
            push("s-host", signals, "cpu"), push("s-gpu", signals, "cuda:0"),
            push("s-other", signals, "cuda:1"),
            push("s-pinned", signals, "cuda:0", residency="pinned"),
            push("s-shards", signals, "shard:cuda:0,cuda:1"),
        ]
        rows = [
            _fields(dataset, 2, **options, transforms={"audio": [
                T.AddNoise(name), *rest]})
            for dataset, name in zip(datasets, ["street-cpu", *["street"] * 4])
        ]
        assert all(one == rows[0] for one in rows[1:])
        refused(datasets[1], "far", "noise 'far'.*not on.*cuda:0.*on the device "
                "of the feed, cuda:0")
        refused(datasets[1], "pinned", "'pinned' is not whole in the memory of "
                "cuda:0.*residency device")
        refused(datasets[1], "shards", "'shards' is not whole in the memory")
        refused(datasets[0], "far", "noise 'far'.*not on.*cpu")


if __name__ == "__main__":
    harness.main(__file__)
