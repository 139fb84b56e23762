"""Health: the findings of datasetctl doctor, and the warnings of the daemon's
log where this user may read them."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import threading
import time
from typing import Any, Dict, List, Optional

_DOCTOR_SECONDS = 60.0
_DOCTOR_KEPT_SECONDS = 30.0
_DOCTOR_LEAST_SECONDS = 2.0
# Part of what journalctl prints when it hides messages from this user.
_NOT_SEEING = "not seeing messages"
_JOURNAL_SECONDS = 10.0
_MAX_WARNINGS = 50
_LOG_TAIL_BYTES = 256 << 10

# "2026-01-02T03:04:05.678Z WARN [load] ..."; see server/log.
_WARNING = re.compile(r"^\S+Z (WARN\w*|ERROR|CRIT\w*) ", re.IGNORECASE)

Message = Dict[str, Any]


def find_datasetctl() -> Optional[str]:
    """Returns the program of the wheel, beside the package or the daemon, or on
    PATH."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    beside = [os.path.join(package, "bin"), package]
    beside.append(os.path.dirname(os.path.realpath(package + "/datasetd")))
    daemon = os.environ.get("DATASETD_DAEMON")
    if daemon:
        beside.append(os.path.dirname(os.path.abspath(daemon)))
    path = os.pathsep.join([*beside, os.environ.get("PATH", os.defpath)])
    return shutil.which("datasetctl", path=path)


class Doctor:
    """Runs datasetctl doctor, at most every 30 s, or 2 s where somebody asks.
    Thread-safe."""

    def __init__(self, address: Optional[str]) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._findings: Optional[Message] = None
        self._time = 0.0

    def findings(self, is_asked_for: bool) -> Message:
        """Returns {"findings": [{severity, check, text, fix}], "error",
        "age_seconds"}. What somebody asks for is newer."""
        kept = _DOCTOR_LEAST_SECONDS if is_asked_for else _DOCTOR_KEPT_SECONDS
        with self._lock:
            if (
                self._findings is None
                or time.monotonic() - self._time > kept
            ):
                self._findings = self._run()
                self._time = time.monotonic()
            age = time.monotonic() - self._time
            return {**self._findings, "age_seconds": age}

    def _run(self) -> Message:
        program = find_datasetctl()
        if program is None:
            return _failed(
                "datasetctl is not on PATH, so nothing was checked: install "
                "the Debian package, or add its folder to PATH"
            )
        command = [program, "--json", "doctor", "--no_sharing"]
        if self._address:
            command.insert(1, f"--address={self._address}")
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_DOCTOR_SECONDS,
            )
            answer = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return _failed(
                f"{program} did not end within {_DOCTOR_SECONDS:.0f} s"
            )
        except (OSError, ValueError) as error:
            return _failed(f"{program}: {error}")
        return {"findings": answer["findings"], "error": ""}


def _failed(error: str) -> Message:
    return {"findings": [], "error": error}


def warnings(pid: int) -> Message:
    """Returns {"lines", "source", "error"}: the last warnings and errors of the
    daemon with this process number."""
    output = f"/proc/{pid}/fd/2"
    try:
        with open(f"/proc/{pid}/comm") as file:
            if not file.read().startswith("datasetd"):
                return _no_log(
                    f"process {pid} is not the daemon: it runs in another "
                    "container"
                )
        mode = os.stat(output).st_mode
        if stat.S_ISREG(mode):
            return _of_file(output)
        if not stat.S_ISSOCK(mode):
            return _no_log(
                "the daemon\u2019s log goes to a terminal or a pipe, and is "
                "kept nowhere that this page can read"
            )
        is_own = os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except PermissionError:
        is_own = False  # the journal may be readable
    except OSError as error:
        return _no_log(f"{error}")
    return _of_journal(pid, is_own)


def _no_log(error: str) -> Message:
    return {"lines": [], "source": "", "error": error}


def _of_file(path: str) -> Message:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LOG_TAIL_BYTES))
        tail = file.read().decode("utf-8", "replace").split("\n")
    if size > _LOG_TAIL_BYTES:
        del tail[0]
    lines = [line for line in tail if _WARNING.match(line)]
    return {
        "lines": lines[-_MAX_WARNINGS:],
        "source": os.path.realpath(path),
        "error": "",
    }


def _of_journal(pid: int, is_own: bool) -> Message:
    command: List[str] = [
        "journalctl",
        f"_PID={pid}",
        "--priority=warning",
        f"--lines={_MAX_WARNINGS}",
        "--output=short-iso",
        "--no-pager",
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_JOURNAL_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _no_log(f"the daemon\u2019s log is not readable here: {error}")
    text = done.stderr.decode("utf-8", "replace").strip()
    # It reads what it may, and hints at what it may not.
    if done.returncode != 0 or (_NOT_SEEING in text and not is_own):
        return _no_log(
            "this user may not read the daemon\u2019s log (journalctl: "
            f"{text[:500]}): ask for the group adm or systemd-journal"
        )
    lines = [
        line
        for line in done.stdout.decode("utf-8", "replace").splitlines()
        if not line.startswith("-- ")  # as "-- No entries --"
    ]
    return {"lines": lines, "source": " ".join(command[:3]), "error": ""}
