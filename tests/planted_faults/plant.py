#!/usr/bin/python3
"""Plants faults in the sources, one at a time, and prints which tests fail.

    plant.py [--seed N] [--count N] [--rooms ROOM,...] TREE [TABLE]
    plant.py --again TABLE TREE [TABLE]

TREE is a worktree that nothing else uses: the faults are written into it, and
removed again. TABLE gets a line of JSON for each fault. --again plants the
faults of an earlier table, and ends with 1 if one that was found then is missed
now: run it before and after tests are moved, merged or deleted. The seed
decides which faults are planted. $BAZEL is the command for `bazel`.

A fault in Python is found by pytest, with the daemon that was built in TREE; one
in C++ by the Bazel targets of its room. The tests of a room end at the first
failure.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys

_CLIENT = "client/python/datasetd/"
_PYTEST = "tests/client/python/"
_LOADER = "tests/integration/data_loader/"

# Room -> what runs: files for pytest, or targets of Bazel.
_ROOMS = {
    _CLIENT + "_loader": [
        *(_PYTEST + name + "_test.py" for name in (
            "state", "loader", "iterators", "elastic", "held",
            "weights", "seeds", "groups", "mix", "mixture", "wait",
            "scenarios", "explain", "partition", "views", "from_torch",
            "windows", "documents")),
        _LOADER + "fields_test.py", _LOADER + "resume_test.py",
        _LOADER + "sampling_test.py",
    ],
    _CLIENT + "_feed": [
        *(_PYTEST + name + "_test.py" for name in (
            "loader", "iterators", "state", "elastic", "held", "weights",
            "views", "mix", "interrupt", "connect")),
        _LOADER + "resume_test.py", _LOADER + "sampling_test.py",
    ],
    _CLIENT + "_order": [
        *(_PYTEST + name + "_test.py" for name in (
            "weights", "groups", "partition", "elastic", "iterators",
            "loader", "windows", "documents")),
        _LOADER + "sampling_test.py",
    ],
    _CLIENT + "_batches": [
        *(_PYTEST + name + "_test.py" for name in (
            "batch", "held", "loader", "views", "fields", "masks")),
        _LOADER + "fields_test.py", _LOADER + "resume_test.py",
    ],
    _CLIENT + "_datasets": [
        *(_PYTEST + name + "_test.py" for name in (
            "dataset", "mixture", "views", "concat", "groups", "weights")),
    ],
    "server/order": ["//tests/server/order:order_test"],
    "server/feed": ["//tests/server/feed:feed_test",
                    "//tests/server/feed:plan_test"],
    "server/registry": ["//tests/server/registry:registry_test"],
    "cuda/kernels/host": ["//tests/cuda/kernels:kernels_test",
                          "//tests/cuda/kernels:augment_test"],
    "cuda/kernels/program": ["//tests/cuda/kernels:kernels_test",
                             "//tests/cuda/kernels:augment_test"],
    "cuda/kernels/ops": ["//tests/cuda/kernels/ops:ops_test"],
}  # fmt: skip

# (what is replaced, by what); one place of one line is one fault.
_SWAPS = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "),
    (r" == ", " != "), (r" != ", " == "), (r" \+ 1\b", ""), (r" - 1\b", ""),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" % ", " / "),
    (r"\bmin\(", "max("), (r"\bmax\(", "min("),
]  # fmt: skip
_PYTHON = [
    (r" and ", " or "), (r" or ", " and "), (r"\bis not None", "is None"),
    (r"\bis None", "is not None"), (r"\bnot ", ""), (r"\bTrue\b", "False"),
    (r"\bFalse\b", "True"), (r" in ", " not in "),
    (r"^(\s+)(?:self\.)?[\w.]+(?:\(.*\)| [+|-]?= .*)$", r"\1pass"),
]  # fmt: skip
_CPP = [
    (r" && ", " || "), (r" \|\| ", " && "), (r"\(!", "("),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"\+\+", "--"),
    (r"^(\s+)[\w.>-]+(?:\[.*\])?(?:\(.*\)| [+|-]?= .*);$", r"\1;"),
]  # fmt: skip


def compiles(lines, number, changed):
    try:
        compile("\n".join([*lines[:number], changed, *lines[number + 1:]]),
                "fault", "exec")
    except SyntaxError:
        return False
    return True


def faults_of(tree, path):
    """Yields every fault of a source, as (line's number, line, new line)."""
    is_python = path.suffix == ".py"
    in_text = False
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines):
        if is_python and line.count('"""') % 2:
            in_text = not in_text
            continue
        # What is printed, declared or only for the reader is not behaviour.
        if in_text or re.search(
            r'"|^\s*(#|//|import|from|def|class|using|template|static_assert)'
            r"| for .* in |\bTYPE_CHECKING\b", line
        ):
            continue
        for before, after in _SWAPS + (_PYTHON if is_python else _CPP):
            for found in re.finditer(before, line):
                changed = (line[:found.start()] + found.expand(after)
                           + line[found.end():])
                if is_python and not compiles(lines, number, changed):
                    continue
                yield str(path.relative_to(tree)), number, line, changed


def draw(tree, rooms, count, seed):
    """As many faults of each room, in a random order."""
    drawn = []
    for room in rooms:
        found = [
            fault
            for path in sorted(tree.glob(room + ("" if "." in room else "/*")))
            if path.suffix in (".py", ".cc", ".h", ".cu")
            for fault in faults_of(tree, path)
        ]
        random.Random(f"{seed} {room}").shuffle(found)
        drawn.append(found[: -(-count // len(rooms))])
    return sum(drawn, [])[:count]


def run(command, **options):
    """Its code and output. Its processes end with it, within half an hour."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, **options,
    ) as process:  # fmt: skip
        try:
            output = process.communicate(timeout=1800)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "hangs", process.communicate()[0]
    return process.returncode, output


def find_by_pytest(tree, tests):
    """As find(). A test that fails must also fail by itself: on a machine that
    is busy some do for the time that they take."""
    command = [
        "/usr/bin/python3", "-m", "pytest", "-x", "-q", "--tb=line",
        "-p", "no:cacheprovider", "--import-mode=importlib",
    ]  # fmt: skip
    options = {
        "cwd": tree,
        "env": dict(
            os.environ, PYTHONDONTWRITEBYTECODE="1",
            PYTHONPATH=f"{tree}/client/python:{tree}:{tree}/{_PYTEST}",
            DATASETD_DAEMON=f"{tree}/bazel-bin/server/datasetd",
            DATASETD_LIBRARY=f"{tree}/bazel-bin/client/c_api/libdatasetd.so",
        ),
    }  # fmt: skip
    passed = []
    while True:
        code, output = run(command + passed + tests, **options)
        if code in (0, "hangs"):
            return "" if code == 0 else code
        found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output,
                          re.MULTILINE)
        assert found, output
        if run([*command, found[1]], **options)[0] != 0:
            return found[1]
        passed.append(f"--deselect={found[1]}")


def find(tree, path):
    """The first test that fails; "" if none does, None if it is no program."""
    room = os.path.dirname(path)
    tests = _ROOMS[room]
    if path.endswith(".py"):
        return find_by_pytest(tree, [t for t in tests if (tree / t).exists()])
    bazel = shlex.split(os.environ.get("BAZEL", "bazel"))
    code, output = run(
        [*bazel, "test", "--test_output=errors", "--notest_keep_going",
         "--test_timeout=200", "--test_env=GTEST_FAIL_FAST=1",
         "--test_tag_filters=-full", "--build_tag_filters=-full",
         "--test_sharding_strategy=disabled", *tests], cwd=tree)
    if code == 1:
        return None  # it does not compile
    found = re.search(r"^\[  FAILED  \] ([\w./]+)", output, re.MULTILINE)
    return "" if code == 0 else found[1] if found else "crashes or hangs"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    # Or files of rooms.
    parser.add_argument("--rooms", default=",".join(_ROOMS))
    parser.add_argument("--again")
    parser.add_argument("tree", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("table", nargs="?", default="/dev/stdout")
    given = parser.parse_args()
    earlier = {}
    if given.again:
        with open(given.again, encoding="utf-8") as file:
            for row in map(json.loads, file):
                earlier[tuple(row["fault"])] = row["found"]
    faults = list(earlier) or draw(
        given.tree, given.rooms.split(","), given.count, given.seed)
    missed = 0
    with open(given.table, "a", encoding="utf-8") as table:
        for fault in faults:
            name, number, before, after = fault
            path = given.tree / name
            text = path.read_text()
            lines = text.split("\n")
            assert lines[number] == before, f"{name}:{number + 1} has changed"
            lines[number] = after
            try:
                path.write_text("\n".join(lines))
                found = find(given.tree, name)
            finally:
                path.write_text(text)
            if found is not None:
                table.write(
                    json.dumps({"fault": fault, "found": found}) + "\n")
                table.flush()
            missed += bool(earlier.get(fault)) and not found
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
