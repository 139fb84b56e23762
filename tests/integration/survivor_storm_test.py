"""A storm: clients are killed and stopped, the daemon is killed and restarted,
and survivors of every kind of loader go on.

A survivor draws from two daemons at once, one in the storm and one that nobody
disturbs, and compares every batch. It must not give up, lose, repeat or change
one. $DATASETD_STORM_SECONDS is how long, $DATASETD_STORM_SEED the seed of what
happens when.
"""

import contextlib
import os
import random
import signal
import time

import numpy as np

from tests.testing import daemon_harness as harness
from tests.testing.restart_world import World

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_SECONDS = float(os.environ.get("DATASETD_STORM_SECONDS",
                                "600" if _IS_FULL else "20"))
_SEED = int(os.environ.get("DATASETD_STORM_SEED", "20261122"))
_NUM_CLIENTS = 3
_RECONNECT_SECONDS = 50

_KINDS = ("shuffle", "single", "world", "drop_last", "sampler",
          "batch_sampler", "subset", "npy", "pushed", "fetch")

# Two daemons' loaders in step. `sampler` and the like give one order to each,
# from equal generators.
_SURVIVOR = """
kind = ARGUMENTS["kind"]
ops = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]
class Sampler:
    def __init__(self, size, batches):
        self.random = np.random.default_rng(5)
        self.size, self.batches = size, batches
    def __len__(self):
        return self.size // 40 if self.batches else self.size
    def __iter__(self):
        order = self.random.permutation(self.size)
        if self.batches:
            return iter(order[:len(self) * 40].reshape(-1, 40).tolist())
        return iter(order.tolist())
def open_dataset(address):
    client = datasetd.connect(address, timeout=60)
    if kind == "npy":
        return client, client.load_dataset(
            "npy", format="npy", path=ARGUMENTS["npy"])
    if kind == "pushed":
        rows = np.random.default_rng(3).integers(
            0, 256, (500, 3, 8, 8), np.uint8)
        samples = [{"image": row, "label": np.int64(i)}
                   for i, row in enumerate(rows)]
        return client, client.push_dataset("pushed", samples)
    return client, load(client)
def open_loader(address):
    client, dataset = open_dataset(address)
    size = len(dataset)
    options = {
        "shuffle": dict(batch_size=50, shuffle=True, seed=1, transforms=ops),
        "single": dict(batch_size=1, shuffle=True, seed=2),
        "world": dict(batch_size=7, shuffle=True, seed=3, rank=1,
                      world_size=3, transforms=ops),
        "drop_last": dict(batch_size=77, shuffle=True, seed=4, drop_last=True),
        "sampler": dict(batch_size=30, sampler=Sampler(size, False),
                        transforms=ops),
        "batch_sampler": dict(batch_sampler=Sampler(size, True),
                              batch_size=40),
        "subset": dict(batch_size=20, shuffle=True, seed=6,
                       subset=list(range(0, size, 3))),
        "npy": dict(batch_size=200, shuffle=True, seed=7),
        "pushed": dict(batch_size=33, shuffle=True, seed=8),
        "fetch": dict(batch_size=10),
    }[kind]
    return client, datasetd.DataLoader(
        dataset, framework="numpy", prefetch=4, name=kind,
        reconnect=ARGUMENTS["reconnect"], **options)
counts = np.memmap(ARGUMENTS["counts"], np.int64, mode="r+")
stop = threading.Event()
stormy_client, stormy = open_loader(ADDRESS)
calm_client, calm = open_loader(ARGUMENTS["calm"])
say(opened=True)
threading.Thread(target=lambda: (hear(), stop.set()), daemon=True).start()
num = 0
def batches(loader):
    random = np.random.default_rng(9)
    while not stop.is_set():
        if kind == "fetch":
            yield loader.fetch(random.integers(0, 500, 17).tolist())
        else:
            yield from loader
        if kind != "fetch":
            yield "epoch"
reference = batches(calm)
for batch in batches(stormy):
    expected = next(reference, None)
    if expected is None:
        break  # told to stop just now
    if isinstance(batch, str) or isinstance(expected, str):
        assert isinstance(batch, str) and isinstance(expected, str), (
            "an epoch of another length", batch, expected)
        continue
    place = (batch.epoch, batch.index)
    assert place == (expected.epoch, expected.index), (
        "another place", place, expected.epoch, expected.index)
    assert (batch.indices == expected.indices).all(), ("other samples", place)
    assert len(batch) == len(expected)
    for mine, its in zip(batch, expected):
        assert np.array_equal(mine, its), ("other pixels", place)
    num += 1
    counts[ARGUMENTS["number"]] = num
    del batch, expected, mine, its
    if stop.is_set():
        break
say(num=num)
os._exit(0)
"""

# All that a client does, without end; it may lose its daemon, too.
_CLIENT = """
random = np.random.default_rng(ARGUMENTS["seed"])
say(alive=True)
while True:
    try:
        client = datasetd.connect(ADDRESS, timeout=20)
        ds = load(client)
        for _ in range(random.integers(1, 4)):
            options = {"shuffle": True}
            if random.integers(2):
                options = {"sampler":
                           random.integers(0, len(ds), 500).tolist()}
            loader = datasetd.DataLoader(
                ds, batch_size=int(random.integers(1, 60)), framework="numpy",
                prefetch=int(random.integers(3, 9)), name="client", **options)
            held = []
            for batch in loader:
                held.append(batch)
                if len(held) > random.integers(1, 3):
                    del held[random.integers(len(held))]
                if batch.index > random.integers(1, 200):
                    break
            if random.integers(2):
                loader.close()
        if random.integers(4) == 0:
            rows = random.integers(0, 256, (300, 64), np.uint8)
            client.push_dataset(f"p{os.getpid()}", [{"x": r} for r in rows])
            client.unload_dataset(f"p{os.getpid()}")
        if random.integers(2):
            client.close()
    except datasetd.Error:
        pass
"""


class _Storm:
    def __init__(self, world, calm, stack):
        self.world = world
        self.random = random.Random(_SEED)
        self.clients = []
        self.stack = stack
        self.num = {"kills": 0, "stops": 0, "SIGKILL": 0, "SIGTERM": 0}
        counts = os.path.join(world.directory, "counts")
        np.zeros(len(_KINDS), np.int64).tofile(counts)
        self.counts = np.memmap(counts, np.int64, mode="r")
        npy = os.path.join(world.daemon.data_root, "npy")
        os.makedirs(npy)
        values = np.random.default_rng(2)
        np.save(os.path.join(npy, "image.npy"),
                values.integers(0, 256, (2000, 4, 4, 3), np.uint8))
        np.save(os.path.join(npy, "label.npy"), np.arange(2000))
        self.survivors = [
            stack.enter_context(harness.Worker(
                _SURVIVOR, world.daemon.socket_path, kind=kind, number=number,
                path=world.path, npy=npy, calm=calm.socket_path, counts=counts,
                reconnect=_RECONNECT_SECONDS))
            for number, kind in enumerate(_KINDS)
        ]
        for survivor in self.survivors:
            assert survivor.hear() == {"opened": True}

    def check(self):
        for kind, survivor in zip(_KINDS, self.survivors):
            assert survivor.process.poll() is None, (
                f"survivor {kind} gave up: {self.world.daemon.log()[-3000:]}")

    def await_progress(self):
        """Every survivor has got a batch since."""
        before = np.array(self.counts)

        def have_all_gone_on():
            self.check()
            return (self.counts > before).all()

        harness.poll_until(have_all_gone_on, "every survivor goes on",
                           _RECONNECT_SECONDS)

    def disturb_clients(self):
        while len(self.clients) < _NUM_CLIENTS:
            self.clients.append(harness.Worker(
                _CLIENT, self.world.daemon.socket_path,
                seed=self.random.randrange(1 << 30), path=self.world.path))
        client = self.clients.pop(self.random.randrange(len(self.clients)))
        with client:
            if self.random.random() < 0.15:
                client.stop()
                self.num["stops"] += 1
                harness.pause(self.random.uniform(0.05, 0.5))
            client.kill()
            self.num["kills"] += 1

    def restart_daemon(self):
        daemon = self.world.daemon
        number = self.random.choice([signal.SIGTERM, signal.SIGKILL])
        self.num[number.name] += 1
        daemon.terminate(number)
        code = daemon.wait()
        assert code == (0 if number == signal.SIGTERM else -9), (
            code, daemon.log()[-3000:])
        daemon.kill()
        daemon.start()

    def end(self):
        for client in self.clients:
            client.__exit__()
        self.check()
        for survivor in self.survivors:
            survivor.tell(stop=True)
        return [survivor.hear()["num"] for survivor in self.survivors]


def test_survivors_lose_nothing():
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(World(log_level="info"))
        calm = stack.enter_context(harness.Daemon(
            data_roots=[world.daemon.data_root], log_level="error"))
        storm = _Storm(world, calm, stack)
        storm.await_progress()
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            for _ in range(storm.random.randrange(1, 12)):
                storm.disturb_clients()
                harness.pause(storm.random.expovariate(4.0))
            storm.check()
            storm.restart_daemon()
            # Also again, before all have found the new one.
            if storm.random.random() < 0.8:
                storm.await_progress()
        storm.await_progress()
        nums = storm.end()
        print(f"seed {_SEED}, {_SECONDS:.0f} s: {storm.num}; batches compared: "
              f"{sum(nums)} ({dict(zip(_KINDS, nums))}); wrong, lost or "
              "repeated: 0; gave up: 0")
        assert min(nums) > 0
        # Nothing of the dead stays behind.
        with world.daemon.connect() as client:
            harness.poll_until(
                lambda: (client.status()["num_feeds"] == 0
                         and client.status()["num_sessions"] == 1),
                f"all gone: {client.status()}")


if __name__ == "__main__":
    harness.main(__file__)
