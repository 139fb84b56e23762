"""The daemon is restarted by SIGTERM under loaders of every kind: none gives
up, and every batch is that of a daemon that was left alone.

The number of restarts is $DATASETD_NUM_RESTARTS, the seed of their moments
$DATASETD_RESTART_SEED. A fifth of the restarts is by SIGKILL.
"""

import contextlib
import os
import random

import numpy as np

from tests.testing import daemon_harness as harness
from tests.testing.restart_world import NUM_SAMPLES, World

_NUM_RESTARTS = int(os.environ.get("DATASETD_NUM_RESTARTS", "5"))
_SEED = int(os.environ.get("DATASETD_RESTART_SEED", "1"))

# One client process has one session, and a thread for each loader.
_JOBS = [
    ["order", "sampler", "fetch", "jumps"],
    ["batch_sampler", "subset", "openings", "pushed", "states"],
]
_KINDS = [kind for kinds in _JOBS for kind in kinds]
# The count of a loader that raised.
_ENDED = 1 << 40

# Every kind is an endless sequence of batches, and runs until it is told to
# stop or, with `lengths`, to its end there. It counts its batches where the
# test sees them.
_JOB = """
import hashlib, traceback
N = ARGUMENTS["num_samples"]
kinds = ARGUMENTS["kinds"]
counts = np.memmap(ARGUMENTS["counts"], np.int64, mode="r+")
client = datasetd.connect(ADDRESS)
files = load(client)
pushed = client.get_dataset("pushed")
OPS = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]

def open_loader(dataset=files, **arguments):
    options = dict(seed=7, framework="numpy", prefetch=3, reconnect=55,
                   transforms=OPS)
    options.update(arguments)
    return datasetd.DataLoader(dataset, **options)

def epochs(loader):
    while True:
        yield from loader

class Sampler:
    def __init__(self):
        self.random = np.random.default_rng(3)
    def __iter__(self):
        return iter(self.random.permutation(N)[:N // 3].tolist())
    def __len__(self):
        return N // 3

class BatchSampler:
    batch_size = 40
    def __init__(self):
        self.random = np.random.default_rng(4)
    def __iter__(self):
        for _ in range(50):
            yield self.random.integers(
                0, N, self.random.integers(1, 41)).tolist()
    def __len__(self):
        return 50

def fetches():
    loader = open_loader(batch_size=10, shuffle=True)
    random = np.random.default_rng(5)
    for number in range(1 << 60):
        size = 1 + int(random.integers(60))
        yield loader.fetch(random.integers(0, N, size).tolist(),
                           epoch=number % 9)

def jumps():
    loader = open_loader(batch_size=60, shuffle=True)
    random = np.random.default_rng(6)
    while True:
        loader.set_epoch(int(random.integers(100)))
        for number, batch in enumerate(loader):
            yield batch
            if number >= random.integers(6):
                break

def openings():
    for number in range(1 << 60):
        with open_loader(batch_size=50, shuffle=True, seed=number) as loader:
            for index, batch in enumerate(loader):
                yield batch
                if index == number % 3:
                    break

def states():
    loader = open_loader(sampler=list(range(0, N, 3)), batch_size=33)
    random = np.random.default_rng(8)
    state = loader.state_dict()
    while True:
        loader.load_state_dict(state)
        for number, batch in enumerate(loader):
            yield batch
            state = loader.state_dict()
            if number >= random.integers(6):
                break
        else:
            state = loader.state_dict()

MAKE = {
    "order": lambda: epochs(open_loader(batch_size=29, shuffle=True)),
    "sampler": lambda: epochs(open_loader(batch_size=31, sampler=Sampler())),
    "batch_sampler": lambda: epochs(
        open_loader(batch_sampler=BatchSampler())),
    "subset": lambda: epochs(open_loader(
        batch_size=37, shuffle=True, drop_last=True,
        subset=range(0, N, 2), rank=1, world_size=3)),
    "fetch": fetches,
    "jumps": jumps,
    "openings": openings,
    "pushed": lambda: epochs(open_loader(
        pushed, batch_size=20, shuffle=True, transforms=())),
    "states": states,
}

stop = threading.Event()
digests = {kind: [] for kind in kinds}
errors = {}

def run(kind):
    number = ARGUMENTS["all_kinds"].index(kind)
    wanted = (ARGUMENTS["lengths"] or {}).get(kind)
    try:
        for batch in MAKE[kind]():
            digest = hashlib.blake2b(digest_size=16)
            digest.update(batch.indices.tobytes())
            digest.update(batch[0].tobytes())
            digest.update(batch[1].tobytes())
            digests[kind].append(
                (batch.epoch, batch.index, digest.hexdigest()))
            counts[number] += 1
            if wanted is None and stop.is_set():
                break
            if wanted is not None and len(digests[kind]) >= wanted:
                break
    except BaseException:
        errors[kind] = traceback.format_exc()
        traceback.print_exc()
        counts[number] += ARGUMENTS["ended"]  # it is waited for no more

threads = [threading.Thread(target=run, args=(kind,)) for kind in kinds]
for thread in threads:
    thread.start()
say(opened=True)
if ARGUMENTS["lengths"] is None:
    hear()
    stop.set()
for thread in threads:
    thread.join()
with open(ARGUMENTS["out"], "w") as out:
    json.dump(digests, out)
say(errors=errors)
"""


class _Jobs:
    """The client processes."""

    def __init__(self, world, lengths=None):
        self._world = world
        self._counts_path = os.path.join(world.directory, "counts")
        np.zeros(len(_KINDS), np.int64).tofile(self._counts_path)
        self._outs = [os.path.join(world.directory, f"job{number}")
                      for number in range(len(_JOBS))]
        self._workers = [
            harness.Worker(
                _JOB, world.daemon.socket_path, kinds=kinds, out=out,
                path=world.path, counts=self._counts_path,
                all_kinds=_KINDS, lengths=lengths, num_samples=NUM_SAMPLES,
                ended=_ENDED)
            for kinds, out in zip(_JOBS, self._outs)]
        for worker in self._workers:
            assert worker.hear() == {"opened": True}
        self.counts = np.memmap(self._counts_path, np.int64, mode="r")

    def stop(self):
        for worker in self._workers:
            worker.tell(stop=True)

    def digests(self):
        """Waits for the end."""
        for worker in self._workers:
            said = worker.hear(timeout=180)
            assert said == {"errors": {}}, "\n".join(
                f"{kind}: {error}" for kind, error in said["errors"].items())
        digests = {}
        for out in self._outs:
            with open(out) as file:
                digests.update(harness.json.load(file))
        return digests

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self._workers:
            worker.__exit__()


def test_no_loader_gives_up_or_sees_another_batch():
    print(f"seed {_SEED}, {_NUM_RESTARTS} restarts")
    moments = random.Random(_SEED)
    with World(drain_timeout="2s") as world, contextlib.ExitStack() as stack:
        client = stack.enter_context(world.daemon.connect())
        world.load(client)
        pushed = np.random.default_rng(2).integers(
            0, 256, (500, 8, 8, 3), np.uint8)
        client.push_dataset("pushed", [(image, number) for number, image
                                       in enumerate(pushed)])
        world.await_stored(2)
        with _Jobs(world) as jobs:
            counts = jobs.counts
            for number in range(_NUM_RESTARTS):
                # Also at once: while they reconnect, open, or load.
                job = moments.randrange(len(_KINDS))
                wanted = counts[job] + moments.choice([0, 1, 3, 20])
                harness.poll_until(
                    lambda: counts[job] >= wanted or counts[job] >= _ENDED,
                    f"{_KINDS[job]} goes on", 120)
                world.restart(is_graceful=number % 5 != 4)
            after = counts.copy()
            harness.poll_until(
                lambda: ((counts > after + 3) | (counts >= _ENDED)).all(),
                f"more batches of all of {_KINDS}", 120)
            jobs.stop()
            disturbed = jobs.digests()
        lengths = {kind: len(batches) for kind, batches in disturbed.items()}
        print(f"batches: {lengths}")
        with _Jobs(world, lengths) as jobs:
            undisturbed = jobs.digests()
        for kind in _KINDS:
            assert len(disturbed[kind]) == len(undisturbed[kind]), kind
            for number, (one, other) in enumerate(
                    zip(disturbed[kind], undisturbed[kind])):
                assert one == other, f"{kind}: batch {number}"


if __name__ == "__main__":
    harness.main(__file__)
