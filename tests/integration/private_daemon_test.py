"""datasetd --private: of starters of one directory, whoever is killed, one
becomes the daemon, and nothing is left after its last client."""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_LOCK = "datasetd.lock"
# A start that does not end by itself: the device never comes.
_WAITING = ["--device=cuda:0", "--set=device_wait=600s"]


@pytest.fixture(name="place")
def _place(monkeypatch):
    """An empty directory of this user's for the directories of daemons."""
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    monkeypatch.delenv("DATASETD_ADDRESS", raising=False)
    yield directory
    for pid in _processes(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        harness.await_end(pid)
    shutil.rmtree(directory)


def _start(directory, *flags, device="--device=cpu", **more):
    return subprocess.Popen(
        [harness.daemon_program(), f"--private={directory}", device,
         "--host_threads=1", *flags],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, **more)


def _run(directory, *flags, **more):
    """Runs a starter; returns its exit code, output and errors."""
    process = _start(directory, *flags, **more)
    output, errors = process.communicate(timeout=harness.DEADLINE_SECONDS)
    return process.returncode, output, errors


def _processes(directory):
    """Pids of starters and daemons of directories below this one."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read()
            if (f"--private={directory}/".encode() in line
                    and harness.is_running(name)):
                found.append(int(name))
    return found


def _await_nothing(place):
    def left():
        return _processes(place) + os.listdir(place)

    try:
        harness.poll_until(lambda: not left(), "no process and no file", 20.0)
    except AssertionError:
        assert left() == []
        raise


def _shared_memory():
    """But for the semaphores of Python, which any program may have."""
    return {name for name in os.listdir("/dev/shm")
            if not name.startswith("sem.mp-")}


def _opens(process, path):
    return path in harness.ProcessView(process.pid).descriptor_targets()


# -- Any starter is killed ------------------------------------------------------


def _python(directory):
    """A job; its directory is another one, of the same user."""
    return subprocess.Popen(
        [sys.executable, "-c", """
import datasetd
from datasetd._daemon import shared
shared._SYSTEM_ADDRESS = "/nonexistent/d.sock"
print(datasetd.connect_or_start("cpu", idle_seconds=0.3).status()["pid"])
"""], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)


def _per_node(directory):
    return subprocess.Popen(
        [harness.runfile("client/ctl/datasetctl"), "run", "--per-node",
         "--device=cpu", "--host_threads=1", "--linger=0.3", "--",
         harness.runfile("client/ctl/datasetctl"), "--json", "status"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)


def _own(directory):
    return _start(directory, "--exit_when_idle=300ms")


def _connect(directory):
    """As jobs do: again, if the daemon has been idle for too long meanwhile."""
    while True:
        code, output, errors = _run(directory, "--exit_when_idle=300ms")
        assert code == 0, errors
        with contextlib.suppress(datasetd.DaemonGone, datasetd.DaemonDraining):
            client = datasetd.connect(f"{directory}/datasetd.sock", timeout=0)
            assert client.status()["pid"] > 0
            return client


@pytest.mark.parametrize("start, num_rounds, num_starters", [
    (_own, 200 if _IS_FULL else 20, 6),
    (_python, 30 if _IS_FULL else 2, 4),
    (_per_node, 30 if _IS_FULL else 2, 4),
], ids=["datasetd", "python", "per_node"])
def test_any_of_many_starters_is_killed(place, start, num_rounds,
                                        num_starters):
    """At random points, and sometimes with the daemon."""
    before = _shared_memory()
    for seed in range(num_rounds):
        draw = random.Random(seed)
        directory = os.path.join(place, f"datasetd-test-{seed}")
        starters = [start(directory) for _ in range(num_starters)]
        # One is never killed.
        victims = draw.sample(starters[1:], draw.randrange(1, num_starters))
        kills_daemon = draw.random() < 0.3
        span = 0.1 if start is _own else 1.0
        for victim in victims:
            harness.pause(draw.random() * span / len(victims))
            victim.kill()
        killed = []
        if kills_daemon:
            killed = harness.daemons_of(place)
            for pid in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for starter in starters:
            output, errors = starter.communicate(
                timeout=harness.DEADLINE_SECONDS)
            if starter not in victims and not killed:
                assert starter.returncode == 0, (seed, errors)
        if start is _own:
            with _connect(directory) as client:
                harness.poll_until(
                    lambda: _processes(place) == [client.status()["pid"]],
                    f"one daemon (seed {seed})")
        elif killed:
            start(directory).communicate(timeout=harness.DEADLINE_SECONDS)
        _await_nothing(place)
    assert _shared_memory() <= before


def test_a_lock_that_is_no_longer_at_its_path_makes_no_daemon(place):
    """The daemon before has removed the directory, and the next one, which made
    it again, is starting."""
    directory = f"{place}/d"
    path = f"{directory}/{_LOCK}"

    def lock():
        os.mkdir(directory, 0o700)
        file = open(path, "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    before = lock()
    process = _start(directory, "--exit_when_idle=300ms")
    harness.poll_until(lambda: _opens(process, path), "its wait")
    os.unlink(path)
    os.rmdir(directory)
    following = lock()
    before.close()
    harness.poll_until(lambda: _opens(process, path), "its next wait")
    assert os.listdir(directory) == [_LOCK]
    assert process.poll() is None
    following.close()
    assert process.communicate(timeout=60)[0] and process.returncode == 0
    _await_nothing(place)


def test_a_starter_waits_for_the_one_that_has_the_lock(place):
    directory = f"{place}/d"
    first = _start(directory, *_WAITING)
    harness.poll_until(
        lambda: harness.daemons_of(place), "the daemon's start")
    second = _start(directory)
    harness.poll_until(
        lambda: _opens(second, f"{directory}/{_LOCK}"), "its wait")
    # Without its starter a daemon that does not serve yet ends.
    first.kill()
    first.communicate()
    pid = int(second.communicate(timeout=60)[0])
    harness.poll_until(lambda: _processes(place) == [pid], "one daemon")
    os.kill(pid, signal.SIGTERM)
    _await_nothing(place)


def test_a_starter_relies_on_no_daemon_that_may_end_with_its_own_starter(
        place):
    """One that listens, and has not told its starter yet."""
    directory = f"{place}/d"
    os.mkdir(directory, 0o700)
    with open(f"{directory}/{_LOCK}", "w", buffering=1) as lock, (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as listener:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("boot-id")
        lock.flush()
        listener.bind(f"{directory}/datasetd.sock")
        listener.listen()
        process = _start(directory)
        harness.poll_until(
            lambda: _opens(process, f"{directory}/{_LOCK}"), "its wait")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        lock.write("\n")
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, f"{os.getpid()}\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_ends_before_it_serves(place, number):
    directory = f"{place}/d"
    process = _start(directory, *_WAITING)
    (pid,) = harness.poll_until(
        lambda: harness.daemons_of(place), "the daemon's start")
    harness.poll_until(
        lambda: "waiting for devices" in _log(directory), "its wait")
    os.kill(pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "waiting for devices" in errors
    if number == signal.SIGKILL:
        assert "the daemon was killed by signal 9 (Killed)" in errors
    _await_nothing(place)


def _log(directory):
    with contextlib.suppress(FileNotFoundError):
        with open(f"{directory}/datasetd.log") as file:
            return file.read()
    return ""


# -- Its end --------------------------------------------------------------------


def test_what_killed_daemons_left_is_removed_by_the_next_one(place):
    for name in "datasetd-1-a", "datasetd-1-b", "datasetd-2-a":
        code, pid, _ = _run(f"{place}/{name}")
        assert code == 0
        if name != "datasetd-1-b":
            os.kill(int(pid), signal.SIGKILL)
            harness.await_end(int(pid))
    os.mkdir(f"{place}/datasetd-1-empty", 0o700)
    kept = {"datasetd-1-b", "datasetd-2-a"}
    for name, contents in (("data", "kept.npy"), ("machine", _LOCK)):
        kept.add(f"datasetd-1-{name}")
        os.mkdir(f"{place}/datasetd-1-{name}", 0o700)
        with open(f"{place}/datasetd-1-{name}/{contents}", "w") as file:
            file.write("of another boot")
    os.symlink(f"{place}/datasetd-2-a", f"{place}/datasetd-1-link")
    kept.add("datasetd-1-link")
    code, pid, _ = _run(f"{place}/datasetd-1-c")
    assert set(os.listdir(place)) == kept | {"datasetd-1-c"}
    os.kill(int(pid), signal.SIGTERM)
    harness.poll_until(lambda: set(os.listdir(place)) == kept, "its directory")


def test_nothing_but_its_own_files_is_removed(place):
    directory = f"{place}/d"
    os.mkdir(directory, 0o700)
    with open(f"{directory}/notes", "w") as file:
        file.write("mine")
    _, pid, _ = _run(directory, "--exit_when_idle=100ms")
    harness.await_end(int(pid))
    assert os.listdir(directory) == ["notes"]


def test_it_ends_with_a_process(place):
    parent = subprocess.Popen(["sleep", "1000"])
    code, pid, errors = _run(
        f"{place}/d", f"--exit_with_parent={parent.pid}",
        "--set=drain_timeout=100ms")
    assert code == 0, errors
    with datasetd.connect(f"{place}/d/datasetd.sock") as client:
        assert client.status()["pid"] == int(pid)
        parent.kill()
        parent.wait()
        harness.await_end(int(pid))
    _await_nothing(place)
    code, _, errors = _run(
        f"{place}/d", f"--exit_with_parent={parent.pid}")
    assert code == 1 and "the parent process has ended" in errors
    _await_nothing(place)


def test_a_client_that_comes_while_it_ends(place):
    """Is served, or finds another daemon."""
    draw = random.Random(1)
    pids = set()
    for _ in range(100 if _IS_FULL else 20):
        with datasetd.connect_or_start("cpu", idle_seconds=0.05) as client:
            dataset = client.push_dataset("d", {"x": [1, 2]})
            pids.add(client.status()["pid"])
            dataset.close()
        harness.pause(0.04 + 0.02 * draw.random())
    assert pids
    _await_nothing(place)


def test_sigusr1_ends_it_if_it_has_no_client(place):
    _, pid, _ = _run(f"{place}/d")
    with wire.Session(f"{place}/d/datasetd.sock"):
        os.kill(int(pid), signal.SIGUSR1)
        with wire.Session(f"{place}/d/datasetd.sock"):
            pass
    os.kill(int(pid), signal.SIGUSR1)
    harness.await_end(int(pid))
    _await_nothing(place)


# -- The process ------------------------------------------------------------------


def test_the_daemon_has_nothing_of_its_starter(place):
    read, write = os.pipe()
    with open(f"{place}/file", "w") as file:
        code, pid, errors = _run(
            f"{place}/d", cwd=place, umask=0, pass_fds=[write, file.fileno()],
            env={**os.environ, "NOTIFY_SOCKET": f"{place}/notify",
                 "LISTEN_FDS": "1", "WATCHDOG_USEC": "1000"})
    os.close(write)
    assert code == 0, errors
    assert os.read(read, 1) == b""  # nobody else has the other end
    os.close(read)
    pid = int(pid)
    assert os.getsid(pid) == pid and os.getpgid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    log = f"{place}/d/datasetd.log"
    for number, path in enumerate(["/dev/null", log, log]):
        assert os.readlink(f"/proc/{pid}/fd/{number}") == path
    assert f"{place}/file" not in (
        harness.ProcessView(pid).descriptor_targets())
    assert stat.S_IMODE(os.stat(f"{place}/d").st_mode) == 0o700
    for name in os.listdir(f"{place}/d"):
        assert os.stat(f"{place}/d/{name}").st_mode & 0o077 == 0, name
    # Also where the starter has no standard streams.
    again = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', harness.daemon_program(),
         f"--private={place}/e", "--device=cpu"], timeout=60)
    assert again.returncode == 0
    (other,) = set(harness.daemons_of(place)) - {pid}
    assert os.readlink(f"/proc/{other}/fd/2") == f"{place}/e/datasetd.log"


def test_directories_of_somebody_else_are_refused(place):
    os.mkdir(f"{place}/open", 0o750)
    os.mkdir(f"{place}/own", 0o700)
    os.symlink(f"{place}/own", f"{place}/link")
    os.symlink(f"{place}/nowhere", f"{place}/dangling")
    problems = {"open": "mode 0750", "link": "it is no directory",
                "dangling": "it is no directory"}
    if os.geteuid() == 0:
        os.mkdir(f"{place}/theirs", 0o700)
        os.chown(f"{place}/theirs", 65534, 65534)
        problems["theirs"] = "it belongs to uid 65534"
    for name, problem in problems.items():
        code, _, errors = _run(f"{place}/{name}")
        assert code == 3 and problem in errors, errors
        assert f"{place}/{name} " in errors and "XDG_RUNTIME_DIR" in errors
    assert os.listdir(f"{place}/own") == []


@pytest.mark.parametrize("flags, code, problem", [
    (["--device=tape"], 2, "tape"),
    (["--set=nonsense=1"], 2, "nonsense"),
    (["--set=nonsense"], 2, "--set 'nonsense': expected KEY=VALUE"),
    (["--exit_when_idle=soon"], 2, "soon"),
    (["--socket_path=/tmp/x.sock"], 2, "--socket_path"),
    (["--metrics_nothing"], 2, "--metrics_nothing"),
    (["--device=cuda:7"], 1, "cuda:7"),
    (["--log_path=/nonexistent/log"], 1, "the log /nonexistent/log cannot be"),
])
def test_a_start_that_fails(place, flags, code, problem):
    device = next((f for f in flags if f.startswith("--device")),
                  "--device=cpu")
    flags = [flag for flag in flags if flag != device]
    returned, output, errors = _run(f"{place}/d", *flags, device=device)
    assert (returned, output) == (code, "")
    assert problem in errors
    _await_nothing(place)
    for where in ("/sys/d", f"{place}/no/d"):
        returned, _, errors = _run(where)
        assert returned == 1 and f"{where} is for a private daemon" in errors


def test_a_path_that_is_too_long_for_a_socket(place):
    code, _, errors = _run(f"{place}/{'x' * 100}")
    assert code == 2 and "x" * 100 in errors and "at most 107 bytes" in errors
    _await_nothing(place)


def test_a_log_of_its_own(place):
    log = f"{place}/log"
    for _ in range(2):
        _, pid, _ = _run(f"{place}/d", f"--log_path={log}")
        os.kill(int(pid), signal.SIGTERM)
        harness.await_end(int(pid))
    with open(log) as file:
        assert file.read().count("ready") == 2
    assert os.listdir(place) == ["log"]
    # What a failed start logged is not looked for in what was there before.
    _, _, errors = _run(f"{place}/d", f"--log_path={log}",
                        device="--device=cuda:7")
    assert "cuda:7" in errors and "ready" not in errors
    os.unlink(log)
    os.mkfifo(log)
    code, _, errors = _run(f"{place}/d", f"--log_path={log}")
    assert code == 1 and log in errors  # nobody reads it
    pipe = os.open(log, os.O_RDWR)
    code, _, errors = _run(f"{place}/d", f"--log_path={log}",
                           device="--device=cuda:7")
    os.close(pipe)
    assert code == 1 and f"see {log}" in errors


if __name__ == "__main__":
    harness.main(__file__)
