"""datasetctl run --per-node: processes of a job that share a daemon. `python -m
datasetd run` is the same program."""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

_NUM_SAMPLES = 300
_RUN = [harness.runfile("client/ctl/datasetctl"), "run", "--per-node"]
_PYTHON_RUN = [sys.executable, "-m", "datasetd", "run", "--per-node"]
_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
            signal.SIGUSR1, signal.SIGUSR2]
_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"

# Commands. $SAID is a file to which they append lines of JSON.
_PRELUDE = """
import json, os, signal, sys, time
def say(**message):
    with open(os.environ["SAID"], "a") as file:
        file.write(json.dumps(message) + "\\n")
def wait_for(name):
    while not os.path.exists(os.environ["SAID"] + "." + name):
        time.sleep(0.005)
def connect():
    import datasetd
    return datasetd.connect()
me = {"me": os.getpid(), "address": os.environ["DATASETD_ADDRESS"]}
"""
# Connects, and ends when the file `end` is there.
_USER = _PRELUDE + """
with connect() as client:
    say(daemon=client.status()["pid"], **me)
    wait_for(sys.argv[1])
    client.status()
"""


class Place:
    """A directory of this user's, with the processes started in it."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
        self.said = os.path.join(self.directory, "said")
        self.data = os.path.join(self.directory, "data")
        self.processes = []

    def start(self, source, *arguments, options=(), linger=60, stderr=None,
              **variables):
        environment = dict(
            os.environ,
            XDG_RUNTIME_DIR=self.directory,
            SAID=self.said,
            PYTHONDONTWRITEBYTECODE="1",
        )
        environment.update(variables)
        errors = os.path.join(self.directory, f"err{len(self.processes)}")
        with open(errors, "w") as file:
            process = subprocess.Popen(
                [*_RUN, "--device=cpu", f"--linger={linger}", *options, "--",
                 sys.executable, "-c", source, *arguments],
                env=environment, stdin=subprocess.DEVNULL,
                stderr=file if stderr is None else stderr)
        self.processes.append(process)
        return process

    def errors(self, process):
        """Returns what the process wrote to its standard error."""
        index = self.processes.index(process)
        with open(os.path.join(self.directory, f"err{index}")) as file:
            return file.read()

    def said_lines(self):
        try:
            with open(self.said) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def has_said(self, count):
        return len(self.said_lines()) >= count

    def hear(self, count):
        """The first messages, `count` at least."""
        harness.poll_until(lambda: self.has_said(count), f"{count} messages")
        return [json.loads(line) for line in self.said_lines()]

    def tell(self, name):
        open(f"{self.said}.{name}", "w").close()

    def jobs(self):
        """Directories of jobs."""
        return sorted(os.path.join(self.directory, name)
                      for name in os.listdir(self.directory)
                      if name.startswith("datasetd-"))

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in harness.daemons_of(self.directory):
            # A daemon that lingers may have ended by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            harness.await_end(pid)
        shutil.rmtree(self.directory)


@pytest.fixture
def place(monkeypatch):
    for name in ("DATASETD_ADDRESS", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID",
                 "PMIX_NAMESPACE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    made = Place()
    yield made
    made.close()


@pytest.mark.parametrize("run", [_RUN, _PYTHON_RUN])
def test_options(place, run):
    source = _PRELUDE + """
with connect() as client:
    say(daemon=client.status()["pid"], arguments=sys.argv[1:],
        budget=client.status()["devices"][0]["memory_budget_bytes"], **me)
sys.exit(7)
"""
    options = ["--job=one", "--device=cpu", "--memory_budget_mib=64",
               "--data_root=/tmp", "--host_threads=1", "--linger=60.5",
               "--timeout=50"]
    done = subprocess.run(
        [*run, *options, "--", sys.executable, "-c", source, "--json", "a b"],
        env=dict(os.environ, XDG_RUNTIME_DIR=place.directory, SAID=place.said),
        timeout=60)
    assert done.returncode == 7
    (said,) = place.hear(1)
    assert said["arguments"] == ["--json", "a b"]
    assert int(said["budget"]) == 64 << 20
    assert said["address"].startswith(place.directory)
    wrong = subprocess.run([*run[:-1], "--job=x", "--", "true"],
                           capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "--per-node" in wrong.stderr
    missing = subprocess.run(
        [*run, "--daemon=/nonexistent", "--", "true"],
        capture_output=True, text=True)
    assert missing.returncode == 3
    assert "/nonexistent" in missing.stderr


@pytest.mark.parametrize("run", [_RUN, _PYTHON_RUN])
def test_the_words_stay_as_they_are(place, run):
    words = ["[1,2]", "[]", "{}", "%%", "", "--", "--json", "[a]"]
    done = subprocess.run(
        [*run, "--device=cpu", "--", sys.executable, "-c",
         "import json, sys; print(json.dumps(sys.argv[1:]))", *words],
        env=dict(os.environ, XDG_RUNTIME_DIR=place.directory),
        stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == 0
    assert json.loads(done.stdout) == words


def test_without_datasetctl(tmp_path):
    program = tmp_path / "datasetd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = subprocess.run(
        [*_PYTHON_RUN, "--", "true"], capture_output=True, text=True,
        env=dict(os.environ, DATASETD_DAEMON=str(program), PATH=""))
    assert done.returncode == 3
    assert "no datasetctl program" in done.stderr
    assert f"{tmp_path}/datasetctl" in done.stderr


def test_processes_started_at_once_share_a_daemon_until_the_last(place):
    runs = [place.start(_USER, "end" if i else "first") for i in range(4)]
    said = place.hear(4)
    (pid,) = {message["daemon"] for message in said}
    (address,) = {message["address"] for message in said}
    (job,) = place.jobs()
    assert os.path.dirname(address) == job
    assert harness.daemons_of(place.directory) == [pid]
    assert os.stat(job).st_mode & 0o777 == 0o700
    place.tell("first")
    assert runs[0].wait(60) == 0
    assert harness.is_running(pid)
    place.tell("end")
    # The others do not wait for each other, and the last one for the daemon.
    assert [run.wait(60) for run in runs] == [0] * 4
    assert not harness.is_running(pid)
    assert place.jobs() == []
    assert [place.errors(run) for run in runs] == [""] * 4


def test_the_daemon_outlives_the_one_that_started_it(place):
    first = place.start(_USER, "end")
    (message,) = place.hear(1)
    second = place.start(_USER, "end")
    pid = message["daemon"]
    assert [m["daemon"] for m in place.hear(2)] == [pid, pid]
    first.kill()
    # The command does not outlive what its launcher knows.
    harness.await_end(message["me"])
    first.wait()
    place.tell("end")
    assert second.wait(60) == 0
    assert not harness.is_running(pid)


def test_killed_processes_leave_nothing_behind(place):
    runs = [place.start(_USER, "never", linger=1)
            for _ in range(2)]
    said = place.hear(2)
    for run in runs:
        run.kill()
        run.wait()
    for message in said:
        harness.await_end(message["me"])
    harness.await_end(said[0]["daemon"])
    assert place.jobs() == []


def test_a_daemon_killed_with_its_job_blocks_nobody(place):
    run = place.start(_USER, "never")
    (message,) = place.hear(1)
    os.kill(message["daemon"], signal.SIGSTOP)  # so that nobody revives it
    run.kill()
    run.wait()
    os.kill(message["daemon"], signal.SIGKILL)
    harness.await_end(message["daemon"])
    assert os.path.exists(message["address"])
    # Another job takes away what it left.
    assert place.start("", options=["--job=other"]).wait(60) == 0
    assert place.jobs() == []
    again = place.start(_USER, "end")
    assert place.hear(2)[1]["daemon"] != message["daemon"]
    place.tell("end")
    assert again.wait(60) == 0
    assert place.jobs() == []


def test_a_restarted_job_finds_its_daemon(place):
    """As torchrun restarts all workers when one has failed."""
    fails = _PRELUDE + """
with connect() as client:
    say(daemon=client.status()["pid"], **me)
sys.exit(5)
"""
    assert place.start(fails).wait(60) == 5
    (pid,) = harness.daemons_of(place.directory)
    assert place.start(fails).wait(60) == 5
    assert [message["daemon"] for message in place.hear(2)] == [pid] * 2
    place.tell("end")
    assert place.start(_USER, "end").wait(60) == 0
    assert place.hear(3)[2]["daemon"] == pid
    assert not harness.is_running(pid)


def test_after_a_failure_the_daemon_ends_by_itself(place):
    run = place.start(_PRELUDE + """
with connect() as client:
    say(daemon=client.status()["pid"])
sys.exit(1)
""", linger=1, options=[f"--daemon_log={place.directory}/log"])
    assert run.wait(60) == 1
    harness.await_end(place.hear(1)[0]["daemon"])
    with open(os.path.join(place.directory, "log")) as log:
        assert "no client for 1s (exit_when_idle)" in log.read()
    assert place.jobs() == []


@pytest.mark.parametrize("variables, options", [
    ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "{}"}, []),
    ({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node{}"}, []),
    ({"TORCHELASTIC_RUN_ID": "run{}"}, []),
    ({"PMIX_NAMESPACE": "{}@1"}, []),
    ({"CUDA_VISIBLE_DEVICES": "{}"}, []),
    ({}, ["--job=job{}"]),
    ({}, ["--memory_budget_mib={}00"]),
], ids=["step", "node", "torchrun", "mpi", "gpus", "job", "options"])
def test_what_makes_another_daemon(place, variables, options):
    # The first test of processes tells that equals share a daemon.
    numbers = (1, 1, 2) if _IS_FULL or "SLURM_STEP_ID" in variables else (1, 2)
    for i in numbers:
        place.start(
            _USER, "end", options=[text.format(i) for text in options],
            **{name: text.format(i) for name, text in variables.items()})
    said = place.hear(len(numbers))
    assert len({message["daemon"] for message in said}) == 2
    assert len({message["address"] for message in said}) == 2
    place.tell("end")
    assert [run.wait(60) for run in place.processes] == [0] * len(numbers)
    assert place.jobs() == []


def test_signals_are_passed_on(place):
    run = place.start(_PRELUDE + """
came = []
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda number, _: came.append(number))
say(ready=1)
for count in range(len(sys.argv) - 1):
    while len(came) <= count:
        time.sleep(0.005)
    say(came=came)
wait_for("end")
sys.exit(40 + len(came))
""", *map(str, map(int, _SIGNALS)))
    place.hear(1)
    for count, number in enumerate(_SIGNALS, 1):
        run.send_signal(number)
        assert place.hear(1 + count)[count]["came"] == _SIGNALS[:count]
    place.tell("end")
    assert run.wait(60) == 40 + len(_SIGNALS)


def test_the_command_goes_on_after_a_stop(place):
    """As Ctrl-Z and fg do."""
    run = place.start(_USER, "end")
    place.hear(1)
    run.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, run.pid, os.WSTOPPED)
    run.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, run.pid, os.WCONTINUED)
    place.tell("end")
    assert run.wait(60) == 0
    assert place.errors(run) == ""


def test_a_command_killed_by_a_signal(place):
    for number in (signal.SIGKILL, signal.SIGSEGV):
        run = place.start(
            _PRELUDE + f"os.kill(os.getpid(), {int(number)})")
        assert run.wait(60) == 128 + number


def test_ctrl_c_reaches_the_command_once(place):
    source = _PRELUDE + """
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
say(ready=1)
wait_for("end")
sys.exit(40 + len(came))
"""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(XDG_RUNTIME_DIR=place.directory, SAID=place.said)
        os.execv(_RUN[0], [*_RUN, "--device=cpu", "--linger=60", "--",
                           sys.executable, "-c", source])
    with open(terminal, "r+b", buffering=0) as file:
        place.hear(1)
        file.write(b"\x03")
        # The terminal echoes it when it has sent the signal.
        assert select.select([file], [], [], 60)[0]
        assert b"^C" in os.read(terminal, 100)
        # One more signal in the same way, to know that the first was handled.
        place.tell("end")
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 41


def test_the_command_sees_ordinary_signals(place):
    """Nothing is blocked or ignored for it that was not for this process."""
    here = subprocess.run(
        [sys.executable, "-c", _masks()], capture_output=True, text=True,
        check=True).stdout
    run = place.start(
        "import sys\nsys.stdout = open(sys.argv[1], 'w')\n" + _masks(),
        os.path.join(place.directory, "masks"))
    assert run.wait(60) == 0
    with open(os.path.join(place.directory, "masks")) as file:
        assert file.read() == here


def _masks():
    # Without 32 and 33, which are the C library's own.
    return ("print([int(line[7:], 16) & ~(3 << 31)"
            " for line in open('/proc/self/status')"
            " if line.startswith(('SigBlk', 'SigIgn'))])")


def gated_daemon(place, monkeypatch):
    """A daemon that starts once a line is written to the gate, a pipe."""
    gate = os.path.join(place.directory, "gate")
    os.mkfifo(gate)
    program = os.path.join(place.directory, "program")
    with open(program, "w") as file:
        # It opens the gate before it says so, for reading and writing: that
        # waits for no writer, and each reader gets its line.
        file.write(f"#!/bin/sh\nexec 3<>{gate}\necho started "
                   f">>{program}.started\nread line <&3\nexec 3<&-\n"
                   f'exec {harness.daemon_program()} "$@"\n')
    os.chmod(program, 0o755)
    monkeypatch.setenv("DATASETD_DAEMON", program)
    return gate, program + ".started"


def test_a_signal_while_the_daemon_starts(place, monkeypatch):
    gate, started = gated_daemon(place, monkeypatch)
    run = place.start(_PRELUDE + "say(**me)")
    harness.poll_until(lambda: os.path.exists(started), "the start")
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 128 + signal.SIGTERM
    assert not os.path.exists(place.said)
    with pytest.raises(OSError):  # nothing waits at the gate
        os.open(gate, os.O_WRONLY | os.O_NONBLOCK)


def test_the_one_that_starts_it_is_killed(place, monkeypatch):
    gate, started = gated_daemon(place, monkeypatch)
    first = place.start(_USER, "end")
    harness.poll_until(lambda: os.path.exists(started), "the start")
    first.kill()
    first.wait()
    second = place.start(_USER, "end")
    harness.poll_until(
        lambda: open(started).read().count("started") == 2, "another start")
    with open(gate, "w") as file:
        file.write("go\ngo\n")
    (message,) = place.hear(1)
    harness.poll_until(
        lambda: harness.daemons_of(place.directory) == [message["daemon"]],
        "one daemon")
    place.tell("end")
    assert second.wait(60) == 0
    assert not harness.is_running(message["daemon"])


_EPOCHS = _PRELUDE + """
import datasetd
with connect() as client:
    dataset = client.load_dataset("test", "cifar10", sys.argv[1], "test")
    loader = datasetd.DataLoader(dataset, batch_size=10, shuffle=True, seed=3,
                                 framework="numpy", prefetch=2, reconnect=True)
    rows = []
    for batch in loader:
        rows += batch.indices.tolist()
        if len(rows) == 100:
            say(daemon=client.status()["pid"], **me)
            wait_for("go")
    say(rows=rows, daemon=client.status()["pid"])
"""


def test_a_daemon_that_is_killed_is_started_again(place):
    harness.write_cifar10_test(place.data, _NUM_SAMPLES)
    runs = [place.start(_EPOCHS, place.data) for _ in range(2)]
    said = place.hear(2)
    first = said[0]["daemon"]
    os.kill(first, signal.SIGKILL)
    harness.await_end(first)
    place.tell("go")
    said = place.hear(4)[2:]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert len({message["daemon"] for message in said}) == 1
    assert said[0]["daemon"] != first
    for message in said:
        assert sorted(message["rows"]) == list(range(_NUM_SAMPLES))
    # The one that saw it first started another, with which a command may end
    # before the other run looks.
    assert any("the daemon has ended" in place.errors(run) for run in runs)
    assert place.jobs() == []


def test_a_daemon_that_ends_again_and_again(place):
    run = place.start(_PRELUDE + """
import datasetd
last = None
while not os.path.exists(os.environ["SAID"] + ".end"):
    try:
        with datasetd.connect(timeout=0) as client:
            status = client.status()
    except datasetd.Error:
        continue
    # The session of the process that started it is the other one.
    if status["pid"] != last and int(status["num_sessions"]) == 2:
        last = status["pid"]
        say(daemon=last)
""")

    def is_the_last():
        return "no other is started" in place.errors(run)

    # An end while the session is opened is not counted.
    count = 0
    while not is_the_last():
        daemon = place.hear(count + 1)[count]["daemon"]
        count += 1
        pidfd = os.pidfd_open(daemon)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [])
        os.close(pidfd)
        harness.poll_until(
            lambda: is_the_last() or place.has_said(count + 1),
            "the last word or another daemon")
    assert count >= 4
    assert place.errors(run).count("another one is started") == 3
    assert "4 have within 1m" in place.errors(run)
    place.tell("end")
    assert run.wait(60) == 0


@pytest.mark.parametrize("code", [0, 7])
def test_a_command_removes_the_directory(place, code):
    run = place.start(_PRELUDE + """
import shutil
with connect() as client:
    say(daemon=client.status()["pid"])
shutil.rmtree(os.path.dirname(me["address"]))
sys.exit(int(sys.argv[1]))
""", str(code), linger=1)
    assert run.wait(60) == code
    harness.await_end(place.hear(1)[0]["daemon"])
    assert place.jobs() == []


# Says when SIGTERM can come, and ends with 9 once it has.
_TERMINATED = _PRELUDE + """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with connect() as client:
    say(daemon=client.status()["pid"], **me)
signal.sigwait([signal.SIGTERM])
sys.exit(9)
"""


def test_signals_are_passed_on_when_no_daemon_can_be_started(place):
    run = place.start(_TERMINATED)
    (message,) = place.hear(1)
    (job,) = place.jobs()
    os.kill(message["daemon"], signal.SIGSTOP)
    shutil.rmtree(job)
    open(job, "w").close()
    os.kill(message["daemon"], signal.SIGKILL)
    harness.poll_until(
        lambda: "it is no directory" in place.errors(run)
        and "no other is started" in place.errors(run), "the last word")
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 9


def test_nobody_reads_what_it_says(place):
    reader, writer = os.pipe()
    run = place.start(_PRELUDE + """
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
first = None
while not came:
    import datasetd
    try:
        with datasetd.connect(timeout=0) as client:
            daemon = client.status()["pid"]
    except datasetd.Error:
        continue
    if daemon != first:
        say(daemon=daemon)
        first = first or daemon
sys.exit(9)
""", stderr=writer)
    os.close(writer)
    os.close(reader)
    daemon = place.hear(1)[0]["daemon"]
    os.kill(daemon, signal.SIGKILL)
    assert place.hear(2)[1]["daemon"] != daemon
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 9


@pytest.mark.parametrize("arguments, code, words", [
    (["--", "no-such-command"], 127,
     "cannot start no-such-command: No such file or directory"),
    (["--", "/etc"], 126, "cannot start /etc: Permission denied"),
    (["--daemon=/bin/false", "--", "true"], 3,
     "/bin/false ended with code 1: it printed nothing"),
    (["--daemon=/nonexistent", "--", "true"], 3,
     "no datasetd program at /nonexistent"),
    (["true"], 2, "expected -- COMMAND"),
    (["--"], 2, "expected -- COMMAND"),
    (["--linger=0", "--", "true"], 2,
     "--linger: '0': expected a number above 0"),
    (["--host_threads=x", "--", "true"], 2,
     "--host_threads: 'x': expected a whole number"),
])
def test_exit_codes(place, arguments, code, words):
    run = subprocess.run(
        [*_RUN, "--device=cpu", *arguments], stderr=subprocess.PIPE,
        text=True, env=dict(os.environ, XDG_RUNTIME_DIR=place.directory))
    assert (run.returncode, words in run.stderr) == (code, True), run.stderr
    assert place.jobs() == []


def test_errors_as_json(place):
    run = subprocess.run(
        [*_PYTHON_RUN[:3], "--json", *_PYTHON_RUN[3:], "--device=cpu",
         "--daemon=/nowhere", "--", "true"],
        stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, XDG_RUNTIME_DIR=place.directory))
    assert run.returncode == 3
    assert json.loads(run.stderr)["error"]["code"] == "NOT_FOUND"


def test_the_daemons_log(place):
    log = os.path.join(place.directory, "log")
    for _ in range(2):
        run = place.start(_PRELUDE, options=[f"--daemon_log={log}"])
        assert run.wait(60) == 0
    with open(log) as file:
        assert file.read().count("ready") == 2


def test_many_come_and_go(place):
    """Starts and ends of a daemon cross each other."""
    source = _PRELUDE + """
with connect() as client:
    say(daemon=client.status()["pid"], **me)
"""
    num_runs = 24 if _IS_FULL else 12
    runs = []
    for _ in range(num_runs):
        runs.append(place.start(source))
        if len(runs) % 4 == 0:
            runs[-4].wait(60)
    assert [run.wait(60) for run in runs] == [0] * num_runs, [
        place.errors(run) for run in runs]
    assert len(place.hear(num_runs)) == num_runs
    # Two that end at once do not wait for the daemon.
    harness.poll_until(
        lambda: not harness.daemons_of(place.directory), "the daemon's end")
    assert place.jobs() == []


if __name__ == "__main__":
    harness.main(__file__)
