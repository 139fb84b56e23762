"""fork() with a batch in hand: the child can do no harm, and the lease is the
parent's."""

import os

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 1000
_OPEN = """
sys.path.insert(0, ARGUMENTS["root"])
from tests.conformance import loader_harness as loaders
client = datasetd.connect(ADDRESS)
ds = load(client)
loader = datasetd.DataLoader(ds, batch_size=50, shuffle=True, seed=2,
                             framework=ARGUMENTS["framework"], prefetch=2)
iterator = iter(loader)
batch = next(iterator)
as_numpy = loaders.array
# The driver does not survive fork: a child cannot read a GPU's memory.
can_child_read = ARGUMENTS["framework"] != "dlpack"
copy = as_numpy(batch[0])
rows = as_numpy(batch.indices).tolist()
"""
_FORK_AND_EXIT = _OPEN + """
for round_number in range(3):
    pid = os.fork()
    if pid == 0:
        # The child sees the memory, frees what it has, and goes.
        if can_child_read:
            assert (as_numpy(batch[0]) == copy).all()
        if ARGUMENTS["exit"] == "_exit":
            os._exit(0)
        del batch, iterator, loader, ds, client
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert (as_numpy(batch[0]) == copy).all()
    following = next(iterator)
    rows += as_numpy(following.indices).tolist()
    assert (as_numpy(batch[0]) == copy).all()
say(names=len(client.list_feeds()), same=bool(
    (as_numpy(batch[0]) == copy).all()))
for following in iterator:
    rows += as_numpy(following.indices).tolist()
assert sorted(rows) == list(range(ARGUMENTS["num_samples"]))
loader.close()
del batch, following
say(done=True)
hear()
"""
_USE_IN_CHILD = _OPEN + """
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    errors = {}
    for name, call in {
        "next": lambda: next(iterator),
        "iter": lambda: next(iter(loader)),
        "status": lambda: client.status(),
        "get_dataset": lambda: client.get_dataset("d"),
        "load_dataset": lambda: load(client),
        "open": lambda: datasetd.DataLoader(ds, batch_size=5),
        "indices": lambda: as_numpy(batch.indices),
    }.items():
        try:
            call()
            errors[name] = "nothing"
        except datasetd.Error as error:
            errors[name] = [type(error).__name__, str(error)]
    loader.close()
    client.close()
    os.write(writer, json.dumps(errors).encode())
    os._exit(0)
os.close(writer)
with os.fdopen(reader) as pipe:
    errors = json.loads(pipe.read())
os.waitpid(pid, 0)
say(errors=errors)
rest = sum(b.num_samples for b in iterator)
say(rest=rest)
"""
# The child outlives the parent and keeps the batch's memory mapped.
_ORPHAN = _OPEN + """
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    hear()
    if can_child_read:
        values = as_numpy(batch[0])
        say(nonzero=int(np.count_nonzero(values)), shape=list(values.shape))
    else:
        say(alive=True)
    hear()
    os._exit(0)
say(child=pid, nonzero=int(np.count_nonzero(copy)), shape=list(copy.shape))
hear()
"""
_CHILD_CONNECTS = _OPEN + """
def fork_and_connect():
    pid = os.fork()
    if pid == 0:
        try:
            own = datasetd.connect(ADDRESS)
            mine = own.get_dataset("d")
            with datasetd.DataLoader(mine, batch_size=100,
                                     framework=ARGUMENTS["framework"]) as job:
                say(child=sum(b.num_samples for b in job))
        except datasetd.Error as error:
            say(error=type(error).__name__, text=str(error))
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)

say(code=fork_and_connect(), rest=sum(b.num_samples for b in iterator))
del batch
loader.close()
client.close()
say(code=fork_and_connect())
"""


@pytest.fixture(name="daemon", params=loaders.DEVICES)
def _daemon(request):
    loaders.require_device(request.param)
    with harness.Daemon(devices=[request.param]) as daemon:
        daemon.is_host = request.param == "cpu"
        daemon.write_dataset(_NUM_SAMPLES)
        yield daemon


def _worker(source, daemon, framework="numpy", **arguments):
    """On a GPU without a framework that has CUDA."""
    return harness.Worker(
        source, daemon.socket_path, path=daemon.path,
        root=harness.runfile(""),
        framework=framework if daemon.is_host else "dlpack", **arguments)


@pytest.mark.parametrize("how, framework", [
    ("_exit", "numpy"), ("exit", "numpy"), ("exit", "torch")])
def test_a_childs_exit_leaves_the_batch(daemon, how, framework):
    if framework == "torch" and not daemon.is_host:
        pytest.skip("the same as numpy on a GPU: both are DLPack")
    with _worker(_FORK_AND_EXIT, daemon, framework, exit=how,
                 num_samples=_NUM_SAMPLES) as worker:
        assert worker.hear() == {"names": 1, "same": True}
        worker.hear()
        # All were freed by the parent, which still lives.
        with daemon.connect() as client:
            harness.poll_until(
                lambda: client.status()["devices"][0]["slab_bytes"] == "0",
                "the slab's end")
        worker.tell()
        assert worker.wait() == 0


def test_use_in_the_child_is_the_stated_error(daemon):
    with _worker(_USE_IN_CHILD, daemon) as worker:
        errors = worker.hear()["errors"]
        for name, error in errors.items():
            assert error[0] == "UsedAfterFork", (name, error)
            assert "fork" in error[1]
        assert worker.hear() == {"rest": _NUM_SAMPLES - 50}


def test_the_lease_ends_with_the_parent_though_a_child_lives(daemon):
    with daemon.connect() as client:
        daemon.load(client)
        before = harness.Footprint(daemon, client)
        with _worker(_ORPHAN, daemon) as worker:
            said = worker.hear()
            assert said["nonzero"] > 0
            assert len(client.list_feeds()) == 1
            worker.kill()
            worker.wait()
            harness.poll_until(lambda: not client.list_feeds(),
                               "the lease's end")
            harness.poll_until(
                lambda: harness.Footprint(daemon, client).memory
                == before.memory, "the memory")
            # The child still maps what the daemon took back: zeros, no SIGBUS.
            worker.tell()
            assert worker.hear() == (
                {"nonzero": 0, "shape": said["shape"]} if daemon.is_host
                else {"alive": True})
            os.kill(said["child"], 0)
            assert int(client.status()["num_sessions"]) == 1
            # It holds the parent's gRPC connection, which ends with it.
            worker.tell()
            harness.expect_footprint(daemon, client, before)


def test_a_child_may_connect_only_if_the_parent_is_not_connected(daemon):
    with _worker(_CHILD_CONNECTS, daemon) as worker:
        said = worker.hear()
        assert said["error"] == "UsedAfterFork", said
        assert "fork before connecting" in said["text"]
        assert worker.hear() == {"code": 0, "rest": _NUM_SAMPLES - 50}
        said = worker.hear()
        if daemon.is_host:
            assert said == {"child": _NUM_SAMPLES}
        else:
            # The driver refuses a child of a process that has called it.
            assert said["error"] == "Unimplemented", said
            assert "CUDA_ERROR_NOT_INITIALIZED" in said["text"]
        assert worker.hear() == {"code": 0}


if __name__ == "__main__":
    harness.main(__file__)
