"""Each limit of the configuration refuses what is one too many, and the error
names its key."""

import contextlib
import io
import os
import re
import tarfile
import threading

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # pylint: disable=wrong-import-position
from datasetd import transforms as T  # pylint: disable=wrong-import-position

_MIB = 1 << 20
_CLASS_NAMES = ["x" * 600] * 1000  # of one MiB there is room for one


def _refusal(call):
    with pytest.raises(datasetd.Error) as caught:
        call()
    return str(caught.value)


def _samples(num_bytes):
    return {"x": np.zeros((1, num_bytes), np.uint8)}


def _open(client, **options):
    loader = datasetd.DataLoader(client.get_dataset("d"), **{
        "batch_size": 1, "prefetch": 1, "framework": "numpy", **options})
    next(iter(loader))
    return loader


def _sessions(daemon, client, stack):
    stack.enter_context(daemon.connect())
    return _refusal(daemon.connect)


def _feeds(daemon, client, stack):
    client.push_dataset("d", _samples(1))
    stack.callback(_open(client).close)
    return _refusal(lambda: _open(client))


def _slabs(daemon, client, stack):
    client.push_dataset("d", _samples(_MIB))
    return _refusal(lambda: _open(client, prefetch=8))


def _feed_scratch(daemon, client, stack):
    client.push_dataset("d", _samples(1))
    # Three rows of eight bytes for each sample of a batch.
    return _refusal(lambda: _open(client, batch_size=1 << 16))


def _datasets(daemon, client, stack):
    client.push_dataset("a", _samples(1))
    client.push_dataset("b", _samples(1))
    return _refusal(lambda: client.push_dataset("c", _samples(1)))


def _dataset_bytes(daemon, client, stack):
    client.push_dataset("a", _samples(_MIB))
    return _refusal(lambda: client.push_dataset("b", _samples(1)))


def _texts(daemon, client, stack):
    client.push_dataset("a", _samples(1), class_names=_CLASS_NAMES)
    return _refusal(lambda: client.push_dataset(
        "b", _samples(1), class_names=_CLASS_NAMES))


def _cache(daemon, client, stack):
    # Half a MiB and the header fit, one MiB and the header do not.
    client.push_dataset("small", _samples(_MIB // 2))
    harness.poll_until(lambda: ".cache: stored" in daemon.log(), "an entry")
    client.push_dataset("large", _samples(_MIB))
    harness.poll_until(lambda: ".cache: not stored" in daemon.log(),
                       "the refusal")
    return daemon.log()


def _loads(daemon, client, stack):
    path = os.path.join(daemon.data_root, "slow")
    harness.write_slow_images(path)
    other = daemon.connect()
    stack.callback(other.close)

    def load():
        with contextlib.suppress(datasetd.Error):
            other.load_dataset("slow", format="image_folder", path=path)

    loader = threading.Thread(target=load)
    loader.start()
    stack.callback(loader.join)
    harness.poll_until(lambda: client.list_datasets(), "the load")
    refusal = _refusal(lambda: client.load_dataset(
        "second", format="image_folder", path=path))

    def is_over():
        # While its files are looked at, it is not there.
        with contextlib.suppress(datasetd.NotFound):
            client.unload_dataset("slow")
        return not loader.is_alive()

    harness.poll_until(is_over, "the end of the load")
    return refusal


def _max_side(daemon, client, stack):
    client.push_dataset("d", np.zeros((1, 64, 64, 3), np.uint8))
    _open(client, transforms=[T.Resize(100)]).close()
    return _refusal(lambda: _open(client, transforms=[T.Resize(101)]))


def _operations(daemon, client, stack):
    client.push_dataset("d", np.zeros((1, 64, 64, 3), np.uint8))
    return _refusal(lambda: _open(client, transforms=[T.Resize(101)]))


def _scratch(daemon, client, stack):
    client.push_dataset("d", np.zeros((1, 64, 64, 3), np.uint8))
    return _refusal(lambda: _open(
        client, transforms=[T.Resize(2000), T.Resize(64)]))


def _sample_memory(daemon, client, stack):
    path = os.path.join(daemon.data_root, "slow")
    harness.write_slow_images(path)
    return _refusal(lambda: client.load_dataset(
        "slow", format="image_folder", path=path))


def _inflated(daemon, client, stack):
    path = os.path.join(daemon.data_root, "a.tar.gz")
    with tarfile.open(path, "w:gz") as tar:
        for name, data in (("0.cls", b"7"), ("0.bin", bytes(2 * _MIB))):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return _refusal(lambda: client.load_dataset(
        "a", format="webdataset", path=path, options={"fields": "cls"}))


def _spool(daemon, client, stack):
    path = os.path.join(daemon.data_root, "images")
    harness.write_slow_images(path, num_images=1)
    with open(os.path.join(path, "class", "0.png"), "rb") as file:
        image = file.read()  # about a MiB
    return _refusal(lambda: client.push_dataset("d", {"image": [image] * 2}))


_USER_LIMITS = {
    "max_sessions": (2, _sessions),
    "max_feeds": (1, _feeds),
    "max_slab_mib": (2, _slabs),
    "max_scratch_mib": (1, _feed_scratch),
    "max_datasets": (2, _datasets),
    "max_dataset_mib": (1, _dataset_bytes),
    "max_text_mib": (1, _texts),
    "max_cache_mib": (1, _cache),
    "max_loads": (1, _loads),
}
_LIMITS = {
    "max_sessions": (2, _sessions),
    "max_feeds": (1, _feeds),
    "max_datasets": (2, _datasets),
    "memory_budget_mib": (1, _dataset_bytes),
    "text_budget_mib": (1, _texts),
    "max_inflated_mib": (1, _inflated),
    "cache.limit_mib": (1, _cache),
    "transform_limits.max_side": (100, _max_side),
    "transform_limits.max_scratch_mib": (1, _scratch),
    "transform_limits.max_operations": (1000, _operations),
    "max_sample_memory_mib": (1, _sample_memory),
    "push_spool_mib": (1, _spool),
}
# Limits that other tests cover.
_OTHER_LIMITS = {
    "decode_memory_mib": "samples wait and are not refused: decode_budget_test",
    "pinned_budget_mib": "takes a GPU: emulated_gpu/daemon/placement_test",
}
_OTHER_NUMBERS = {"host_threads", "max_batches_per_launch",
                  "max_unused_percent", "metrics_port"}
_CASES = [("user_limits." + key, value, refuse)
          for key, (value, refuse) in _USER_LIMITS.items()]
_CASES += [(key, value, refuse) for key, (value, refuse) in _LIMITS.items()]


@pytest.mark.parametrize("key,value,refuse", _CASES,
                         ids=[case[0] for case in _CASES])
def test_one_too_many_is_refused(tmp_path, key, value, refuse):
    config = {}
    if refuse is _cache:
        config["cache"] = {"directory": str(tmp_path / "cache"),
                           "limit_mib": 64}
    parent, _, child = key.rpartition(".")
    if parent:
        config.setdefault(parent, {})[child] = value
    else:
        config[key] = value
    with harness.Daemon(**config) as daemon, contextlib.ExitStack() as stack:
        client = stack.enter_context(daemon.connect())
        text = refuse(daemon, client, stack)
        assert key in text, text
        assert daemon.is_running()


def test_an_iterator_beside_another_is_explained():
    """It needs a feed of its own, and there is none left."""
    with harness.Daemon(max_feeds=1) as daemon, daemon.connect() as client:
        client.push_dataset("d", {"x": np.zeros((9, 1), np.uint8)})
        with _open(client) as loader:
            iterator = iter(loader)
            next(iterator)
            for more in (lambda: next(iter(loader)), loader.peek):
                with pytest.raises(datasetd.ResourceExhausted) as caught:
                    more()
                assert "max_feeds" in str(caught.value)
                assert "beside an iterator that has not ended" in str(
                    caught.value)
            # The one under way is as it was.
            assert len(list(iterator)) == 8
            assert len(list(loader)) == 9


def test_calls_wait_until_the_user_may_make_them():
    """Loaders are opened, and send orders of their own, at the same time."""
    orders = [np.random.default_rng(seed).permutation(400).tolist()
              for seed in range(6)]
    with harness.Daemon(user_limits={"max_calls": 2}) as daemon, \
            daemon.connect() as client:
        client.push_dataset("d", {"x": np.arange(400)})
        found = [None] * len(orders)
        begin = threading.Barrier(len(orders))

        def run(i):
            begin.wait()
            with _open(client, sampler=orders[i]) as loader:
                found[i] = [int(batch[0][0]) for _ in range(3)
                            for batch in loader]

        threads = [threading.Thread(target=run, args=(i,))
                   for i in range(len(orders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [3 * order for order in orders]


def _numbers(message, prefix=""):
    """The keys of a message's numbers."""
    with open(harness.runfile("proto/datasetd/v1/server.proto")) as file:
        text = file.read().split(f"message {message} {{")[1].split("\n}")[0]
    names = re.findall(r"(?m)^ *(?:optional )?uint\d+ (\w+) = \d+;", text)
    return {prefix + name for name in names}


def test_there_is_a_case_for_each_limit():
    # Calls wait: test_calls_wait_until_the_user_may_make_them.
    assert _numbers("UserLimits") == {*_USER_LIMITS, "max_calls"}
    numbers = (_numbers("Config") | _numbers("Cache", "cache.")
               | _numbers("TransformLimits", "transform_limits."))
    assert numbers == {*_LIMITS, *_OTHER_LIMITS, *_OTHER_NUMBERS}


if __name__ == "__main__":
    harness.main(__file__)
