"""A daemon under attack: a victim that iterates and checks what it gets, a
prober that connects, loads, opens and lists, and attackers.

As root they are three users, who share a group with the daemon's sockets:
the daemon's, the victim's and prober's, and the attackers'. Without root they
are one user, and tests of what users may do to each other skip
(`needs_users`).

    with arena.Arena() as a:
        with a.attack() as measure:
            with a.attacker(_SOURCE, size=7) as worker:
                worker.hear()
        a.expect_unhurt(measure)
"""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

IS_ROOT = os.getuid() == 0
needs_users = pytest.mark.skipif(
    not IS_ROOT, reason="only root starts processes of several users")

_GROUP = 61000
DAEMON_UID = 61001 if IS_ROOT else os.getuid()
VICTIM_UID = 61002 if IS_ROOT else os.getuid()
ATTACKER_UID = 61003 if IS_ROOT else os.getuid()

NUM_SAMPLES = 600
BATCH_SIZE = 20
# Samples of a batch whose transforms are computed again in NumPy.
_NUM_REFERENCED = 2
_SAMPLE_SECONDS = 0.05

# An attack that stalls others does so for as long as it goes on, or longer.
MAX_STALL_SECONDS = 10.0
# More than the C library keeps for reuse: see docs/operations.md.
MAX_LEFT_BYTES = 128 << 20

# Compares every pixel of an untransformed loader with the source, and some
# samples of a transformed one with the NumPy reference.
_VICTIM = """
from tests.conformance import loader_reference as reference
records = np.fromfile(ARGUMENTS["path"] + "/test_batch.bin", np.uint8)
records = records.reshape(ARGUMENTS["num_samples"], -1)
planes = records[:, 1:].reshape(-1, 3, 32, 32)
pixels = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
client = datasetd.connect(ADDRESS)
dataset = load(client, "victim")
ops = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]
def loader(**options):
    return datasetd.DataLoader(
        dataset, batch_size=ARGUMENTS["batch_size"], shuffle=True, seed=7,
        framework="numpy", name="victim", prefetch=4, **options)
plain, cropped = loader(), loader(transforms=ops)
lock = threading.Lock()
state = {"num": 0, "wrong": [], "waits": [], "waiting_since": None}
def watch():
    while True:
        asked = hear()
        with lock:
            waits = state["waits"]
            since = state["waiting_since"]
            if since is not None:
                waits = waits + [time.monotonic() - since]
            answer = {"num": state["num"], "wrong": state["wrong"][:3],
                      "stall": max(waits, default=0.0),
                      "p50": float(np.percentile(waits or [0], 50)),
                      "p99": float(np.percentile(waits or [0], 99))}
            if asked.get("mark"):
                state["waits"] = []
                if since is not None:
                    state["waiting_since"] = time.monotonic()
        say(**answer)
def take(iterator):
    begin = time.monotonic()
    with lock:
        state["waiting_since"] = begin
    batch = next(iterator, None)
    with lock:
        state["waiting_since"], begin = None, state["waiting_since"]
        state["waits"].append(time.monotonic() - begin)
        state["num"] += batch is not None
    return batch
def check(is_right, what):
    if not is_right:
        with lock:
            state["wrong"].append(what)
say(started=True)
threading.Thread(target=watch, daemon=True).start()
pause = threading.Event()
while True:
    seen = [[], []]
    iterators = {0: iter(plain), 1: iter(cropped)}
    while iterators:
        # The step of a training. Without it the victim takes a processor.
        pause.wait(0.005)
        for kind in list(iterators):
            batch = take(iterators[kind])
            if batch is None:
                del iterators[kind]
                continue
            rows = batch.indices
            seen[kind] += rows.tolist()
            place = [kind, batch.epoch, batch.index]
            check((batch[1] == records[rows, 0]).all(), place + ["labels"])
            if kind == 0:
                check((batch[0] == planes[rows]).all(), place)
                continue
            for i in range(ARGUMENTS["num_referenced"]):
                draws = reference.Draws(7, batch.epoch, int(rows[i]))
                expected = reference.apply(ops, pixels[rows[i]], draws)
                check((batch[0][i].transpose(1, 2, 0) == expected).all(),
                      place + [i])
    for rows in seen:
        check(sorted(rows) == list(range(len(records))), "an epoch")
"""

# Acts as a new job, again and again.
_PROBER = """
lock = threading.Lock()
state = {"rounds": 0, "waits": [], "errors": [], "since": time.monotonic()}
def watch():
    while True:
        asked = hear()
        with lock:
            waits = state["waits"] + [time.monotonic() - state["since"]]
            answer = {"rounds": state["rounds"], "wait": max(waits),
                      "errors": state["errors"][:5]}
            if asked.get("mark"):
                state.update(rounds=0, waits=[], errors=[],
                             since=time.monotonic())
        say(**answer)
def probe():
    client = datasetd.connect(ADDRESS, timeout=60)
    try:
        client.status()
        dataset = client.load_dataset("victim", format="cifar10",
                                      split="test", path=ARGUMENTS["path"])
        with datasetd.DataLoader(dataset, batch_size=10, framework="numpy",
                                 name="prober", prefetch=2) as loader:
            assert len(next(iter(loader))[1]) == 10
        assert any(d["name"] == "victim" for d in client.list_datasets())
    finally:
        client.close()
say(started=True)
threading.Thread(target=watch, daemon=True).start()
pause = threading.Event()
while True:
    with lock:
        state["since"] = time.monotonic()
    error = None
    try:
        probe()
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    with lock:
        if error is not None:
            state["errors"].append(error)
        state["rounds"] += 1
        state["waits"].append(time.monotonic() - state["since"])
    pause.wait(0.02)
"""


class Measure:
    """Measurements during an attack; complete when its block ends.

    victim_batches: the batches that the victim got. victim_stall_seconds: its
    longest wait for a batch, also one that had not ended; victim_p50_seconds,
    victim_p99_seconds: percentiles of its waits.
    prober_wait_seconds: the longest round of a new job; prober_errors: what
    rounds failed with. before_bytes: resident memory of the daemon before;
    peak_bytes: what it had more.
    """

    def __init__(self):
        self.seconds = 0.0
        self.victim_batches = 0
        self.victim_stall_seconds = 0.0
        self.victim_p50_seconds = 0.0
        self.victim_p99_seconds = 0.0
        self.prober_rounds = 0
        self.prober_wait_seconds = 0.0
        self.prober_errors = []
        self.before_bytes = 0
        self.peak_bytes = 0

    def __repr__(self):
        return ", ".join(
            f"{key} {value:.3f}" if isinstance(value, float)
            else f"{key} {value}" for key, value in vars(self).items())


class Arena:
    """`config` overrides keys of the daemon's configuration."""

    def __init__(self, environment=None, arguments=(), **config):
        self.directory = tempfile.mkdtemp(prefix="ar", dir="/tmp")
        self._environment_before = dict(os.environ)
        self._processes = []
        self.daemon = None
        try:
            self._install()
            self.daemon = harness.Daemon(
                directory=self.directory, program=self.program,
                user=DAEMON_UID, group=_GROUP if IS_ROOT else None,
                environment=environment, arguments=arguments,
                **{"log_level": "info", **self._stores(), **config})
            self._begin()
        except BaseException:
            self.close()
            raise

    def _install(self):
        """Copies the programs of other users to where they can read them."""
        os.chmod(self.directory, 0o755)
        shutil.copytree(harness.runfile("client/python/datasetd"),
                        self.path("datasetd"))
        for name in ("client/c_api/libdatasetd.so",
                     "tests/testing/attach_wire.py"):
            shutil.copy(harness.runfile(name), self.directory)
        os.makedirs(self.path("tests/conformance"))
        for name in ("tests/conformance/loader_reference.py",
                     "tests/conformance/random_reference.py"):
            shutil.copy(harness.runfile(name), self.path(name))
        self.program = self.path("datasetd-daemon")
        shutil.copy(harness.daemon_program(), self.program)
        os.chmod(self.program, 0o755)
        os.environ["PYTHONPATH"] = self.directory
        os.environ["DATASETD_LIBRARY"] = self.path("libdatasetd.so")
        # Holds no files of root alone.
        os.environ.pop("HOME", None)
        self.data_root = self.path("data")
        os.makedirs(self.data_root)
        # Any user puts files there, and nobody removes another's.
        os.chmod(self.data_root, 0o1777)
        self.planes, self.labels = harness.write_cifar10_test(
            self.path("data/victim"), NUM_SAMPLES)
        if IS_ROOT:
            os.chown(self.directory, DAEMON_UID, _GROUP)

    def _stores(self):
        return {
            "socket_mode": "0660",
            "cache": {"directory": self.path("cache"), "limit_mib": 1024},
            "state_directory": self.path("state"),
        }

    def _begin(self):
        self._victim = self._start(
            _VICTIM, VICTIM_UID, path=self.path("data/victim"),
            num_samples=NUM_SAMPLES, batch_size=BATCH_SIZE,
            num_referenced=_NUM_REFERENCED)
        self._victim.hear()
        self._prober = self._start(_PROBER, VICTIM_UID,
                                   path=self.path("data/victim"))
        self._prober.hear()

        def have_both_begun():
            return (self._ask(self._victim)["num"] > 2
                    and self._ask(self._prober)["rounds"] > 0)

        harness.poll_until(have_both_begun, "victim and prober at work")

    def path(self, name):
        return os.path.join(self.directory, name)

    def _start(self, source, uid, **arguments):
        worker = harness.Worker(
            f"import os; os.chdir({self.directory!r})\n" + source,
            self.daemon.socket_path, user=uid if IS_ROOT else None,
            group=_GROUP if IS_ROOT else None, **arguments)
        self._processes.append(worker)
        return worker

    def attacker(self, source, uid=ATTACKER_UID, **arguments):
        """A client process of the attackers' user; see harness.Worker. Besides
        it has `attach_wire`."""
        return self._start("import attach_wire\n" + source, uid, **arguments)

    def session(self, uid=ATTACKER_UID):
        """A session of the attackers' user: see harness.Session. The test has
        tests/integration:rpc_probe among its data."""
        if not IS_ROOT:
            return harness.Session(self.daemon.socket_path)
        os.setegid(_GROUP)
        os.seteuid(uid)
        try:
            return harness.Session(self.daemon.socket_path)
        finally:
            os.seteuid(0)
            os.setegid(os.getgid())

    def attack(self):
        return _Attack(self)

    @staticmethod
    def _ask(worker, **message):
        worker.tell(**message)
        return worker.hear()

    def daemon_bytes(self):
        """Resident memory of the daemon that is not files'."""
        total = 0
        with open(f"/proc/{self.daemon.pid}/status") as status:
            for line in status:
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
        return total

    def mark(self):
        """Begins a measure."""
        self._num_before = self._ask(self._victim, mark=True)["num"]
        self._ask(self._prober, mark=True)

    def report(self, measure):
        victim = self._ask(self._victim)
        prober = self._ask(self._prober)
        measure.victim_batches = victim["num"] - self._num_before
        measure.victim_stall_seconds = victim["stall"]
        measure.victim_p50_seconds = victim["p50"]
        measure.victim_p99_seconds = victim["p99"]
        measure.prober_rounds = prober["rounds"]
        measure.prober_wait_seconds = prober["wait"]
        measure.prober_errors = prober["errors"]
        assert not victim["wrong"], victim

    def expect_well(self, prober_wait_seconds=10.0):
        """The daemon runs, the victim gets right batches, and a new job is
        served."""
        assert self.daemon.is_running(), self.daemon.log()[-4000:]
        assert self._victim.process.poll() is None, "the victim ended"
        assert self._prober.process.poll() is None, "the prober ended"
        before = self._ask(self._victim, mark=True)
        assert not before["wrong"], before
        self._ask(self._prober, mark=True)

        def is_served():
            prober = self._ask(self._prober)
            return prober["rounds"] - len(prober["errors"]) > 1

        harness.poll_until(is_served, "a new job is served",
                           prober_wait_seconds)
        harness.poll_until(
            lambda: self._ask(self._victim)["num"] > before["num"],
            "the victim gets batches", prober_wait_seconds)

    def expect_unhurt(self, measure, max_stall_seconds=MAX_STALL_SECONDS,
                      max_left_bytes=MAX_LEFT_BYTES,
                      timeout=harness.DEADLINE_SECONDS):
        """After an attack whose processes have ended: the victim was not
        stalled, all is well, and the daemon's memory comes back within the
        timeout."""
        assert measure.victim_stall_seconds < max_stall_seconds, measure
        self.expect_well()
        harness.poll_until(
            lambda: (self.daemon_bytes() - measure.before_bytes
                     < max_left_bytes),
            f"the daemon's memory is back after {measure}", timeout)

    def pause_victims(self):
        """The victim and the prober end; the daemon may be restarted."""
        for worker in (self._victim, self._prober):
            worker.__exit__()
            self._processes.remove(worker)

    def resume_victims(self):
        self._begin()

    def close(self):
        # The last is called first, and each of them whatever another raises.
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            stack.callback(os.environ.update, self._environment_before)
            stack.callback(os.environ.clear)
            if self.daemon is not None:
                stack.callback(self.daemon.kill)
            for worker in self._processes:
                stack.push(worker)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.daemon.log()[-6000:], file=sys.stderr)
        self.close()


class _Attack:
    def __init__(self, arena):
        self._arena = arena
        self._measure = Measure()
        self._end = threading.Event()

    def _sample(self):
        while not self._end.is_set():
            try:
                self._peak = max(self._peak, self._arena.daemon_bytes())
            except (FileNotFoundError, ProcessLookupError):
                return
            self._end.wait(_SAMPLE_SECONDS)

    def __enter__(self):
        self._peak = self._arena.daemon_bytes()
        self._measure.before_bytes = self._peak
        self._arena.mark()
        self._begin = time.monotonic()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self._measure

    def __exit__(self, kind, *_):
        self._end.set()
        self._thread.join()
        measure = self._measure
        measure.seconds = time.monotonic() - self._begin
        measure.peak_bytes = self._peak - measure.before_bytes
        if kind is not None:
            return
        assert self._arena.daemon.is_running(), (
            "the attack ended the daemon: " + self._arena.daemon.log()[-4000:])
        self._arena.report(measure)
        print(f"attack: {measure}")
