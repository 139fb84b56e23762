"""The command `python -m datasetd bench`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from typing import Any, Dict, List, Sequence

from .. import errors
from .._loader.benchmark import (
    DIRECTORY_VARIABLE,
    ROUNDS_VARIABLE,
    STEPS_VARIABLE,
)
from .command_line import Option, UsageError, os_error, table, whole

DESCRIPTION = (
    "Runs COMMAND, a Python training program that uses datasetd.DataLoader, "
    "and reports the share of a step that is spent on data. Rounds of steps on "
    "the loader's batches alternate with rounds on one constant batch. The "
    "program is ended after the measurement; discard what it trained."
)

_LEGEND = """
Times are of one step, medians of the rounds. DATA is the part of STEP that a \
constant
batch saves. WAITED is the part of that in which the program asked for a batch \
and
had to wait; the rest is that each batch is new to the processor's caches, and \
that
the daemon works on the same cores or GPU at the same time. With WAITED near 0 \
more
prefetching does not help: fewer or cheaper transforms, or more cores, do.
"""


_NUMBER = whole(1, 2**32 - 1)
OPTIONS: Sequence[Option] = (
    ("--steps", _NUMBER, 50, "steps per round"),
    ("--rounds", _NUMBER, 5, "rounds of each kind"),
)


def run(arguments: argparse.Namespace, as_json: bool) -> str:
    """Returns what to print. Raises UsageError; FailedPrecondition if nothing
    was measured; the error of a command that cannot be started.

    Ignores Ctrl-C for good: it is called in a process of its own."""
    command = arguments.words[1:]
    if arguments.words[:1] != ["--"] or not command:
        raise UsageError(
            "expected -- COMMAND, with its arguments, behind the options"
        )
    parent = os.environ.get("TMPDIR") or "/tmp"
    try:
        directory = tempfile.mkdtemp(prefix="datasetd-", dir=parent)
    except OSError as error:
        raise os_error(
            f"no temporary directory can be made as {parent}/datasetd-XXXXXX; "
            "set TMPDIR",
            error,
        ) from None
    try:
        environment = {
            **os.environ,
            DIRECTORY_VARIABLE: directory,
            STEPS_VARIABLE: str(arguments.steps),
            ROUNDS_VARIABLE: str(arguments.rounds),
        }
        if getattr(arguments, "address", None):
            environment["DATASETD_ADDRESS"] = arguments.address
        ending = _run(command, environment)
        reports = _reports(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not reports:
        raise errors.FailedPrecondition(
            f"{command[0]} {ending} before anything was measured: it needs a "
            "datasetd.DataLoader in Python, an epoch of at least 2 batches, "
            f"and {2 * (arguments.rounds + 1)} rounds of {arguments.steps} "
            "steps; see --steps and --rounds"
        )
    if as_json:
        return json.dumps(reports, indent=2) + "\n"
    return _table(reports) + _LEGEND


def _run(command: List[str], environment: Dict[str, str]) -> str:
    """Runs the command, whose output goes to standard error; returns how it
    ended."""
    # A parent may have ignored it; then no end of a child would be reported.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            command, env=environment, stdout=2, close_fds=False
        )
    except OSError as error:
        raise os_error(f"cannot start {command[0]}", error) from None
    # The terminal signals the command, too; this process waits for its end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    code = process.wait()
    if code >= 0:
        return f"ended with code {code}"
    return f"was killed by signal {-code} ({signal.strsignal(-code)})"


def _reports(directory: str) -> List[Dict[str, Any]]:
    """Returns those of all loaders, sorted by pid."""
    reports = []
    for path in pathlib.Path(directory).glob("*.json"):
        with contextlib.suppress(ValueError):
            report = json.loads(path.read_text("utf-8"))
            if isinstance(report, dict):
                reports.append(report)
    return sorted(reports, key=lambda report: _number(report, "pid"))


def _number(report: Dict[str, Any], key: str) -> float:
    value = report.get(key, 0)
    # As another version of the package may have written it.
    if not isinstance(value, (int, float)):
        raise errors.Internal(
            f"a loader's report has {key}={value!r}: its type must be number"
        )
    return value


def _table(reports: List[Dict[str, Any]]) -> str:
    head = "PID,DATASET,BATCH,STEP,WITH A CONSTANT BATCH,WAITED,DATA"
    rows = [head.split(",")]
    for report in reports:
        share = _number(report, "data_share")
        times = ("loader_seconds", "constant_seconds", "waited_seconds")
        rows.append(
            [
                f"{_number(report, 'pid'):.0f}",
                str(report.get("dataset", "")),
                f"{_number(report, 'batch_size'):.0f}",
                *(f"{_number(report, key) * 1e3:.3f} ms" for key in times),
                # Below zero the noise of the measurement is larger than it.
                "not measurable" if share < 0 else f"{share:.1%}",
            ]
        )
    return table(rows)
