#!/usr/bin/python3
"""Counts test cases, and closes with `N passed, N failed`.

    count_cases.py DIRECTORY PASS...
    count_cases.py --reduce FILE

DIRECTORY/PASS holds the build events of a `bazel test` (a JSON object a line,
--build_event_json_file), or lines of {"case": NAME, "result": "passed"}. What
stands in DIRECTORY/PASS.broken says that not all was built. Exits 1 if a case
failed or there was none.

--reduce replaces build events by a line of counts for each target. The logs
that the events name are read then: the next `bazel test` overwrites them.

A test that writes XML of GoogleTest or pytest counts by its cases, one of
Python's unittest by what it printed, any other as one. Targets with failed or
skipped cases are named, and each failed case with the end of its output. A test
that failed without a failed case (a crash, a time-out, a build that broke) is
one failure.
"""

import json
import os
import re
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

# Limits on what is printed of a failed case, and on cases of a target.
_MAX_LINES = 12
_MAX_COLUMNS = 200
_MAX_CASES = 10


class Count(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # A text for each failed case: its name, then the end of its output.
    failures: Tuple[str, ...] = ()

    def __add__(self, other: "Count") -> "Count":  # type: ignore[override]
        return Count(*(a + b for a, b in zip(self, other)))  # type: ignore

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return text + (f", {self.skipped} skipped" if self.skipped else "")


_UNITTEST = re.compile(
    r"^Ran (\d+) tests? in [\d.]+s\n\n"
    r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$",
    re.MULTILINE,
)


_UNITTEST_FAILURE = re.compile(
    r"^={70}\n(?:FAIL|ERROR): (.*)\n([\s\S]*?)(?=^={70}$|^-{70}\nRan )",
    re.MULTILINE,
)


def failure(name: str, said: str) -> str:
    """Returns the name, and the end of the output, where the error stands."""
    lines = said.strip().splitlines()[-_MAX_LINES:]
    return "\n".join([name, *("  " + line[:_MAX_COLUMNS] for line in lines)])


def count_unittest(log: str) -> Optional[Count]:
    """Returns the last result of Python's unittest; None if it did not run."""
    found = _UNITTEST.findall(log)
    if not found:
        return None
    total, details = found[-1]
    numbers = dict(re.findall(r"([a-z]+(?: [a-z]+)*)=(\d+)", details))
    get = lambda key: int(numbers.get(key, 0))
    failed = get("failures") + get("errors") + get("unexpected successes")
    skipped = get("skipped")
    return Count(
        max(int(total) - failed - skipped, 0),
        failed,
        skipped,
        tuple(failure(*found) for found in _UNITTEST_FAILURE.findall(log)),
    )


def count_xml(text: str) -> Count:
    """The cases of GoogleTest's, pytest's or Bazel's own test.xml."""
    count = Count()
    for case in ElementTree.fromstring(text).iter("testcase"):
        errors = [*case.iter("failure"), *case.iter("error")]
        if errors:
            said = "\n".join(
                error.text or error.get("message") or "" for error in errors)
            name = f"{case.get('classname')}.{case.get('name')}"
            count += Count(failed=1, failures=(failure(name, said),))
        elif (
            case.find("skipped") is not None
            or case.get("result") in ("skipped", "suppressed")
            or case.get("status") == "notrun"
        ):
            count += Count(skipped=1)
        else:
            count += Count(passed=1)
    return count


def is_bazels_own(text: str) -> bool:
    """Bazel writes one case per target where the test wrote no XML."""
    root = ElementTree.fromstring(text)
    cases = list(root.iter("testcase"))
    return len(cases) == 1 and "/" in cases[0].get("name", "")


def count_outputs(xml: str, log: str, has_passed: bool) -> Count:
    try:
        count = count_xml(xml)
        if is_bazels_own(xml):
            count = count_unittest(log) or count
    except ElementTree.ParseError:
        count = Count()
    if not has_passed and count.failed == 0:
        count += Count(failed=1)
    return count


def _events(path: str) -> Iterator[dict]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _read(outputs: List[dict], name: str) -> str:
    for output in outputs:
        if output.get("name") == name and output.get("uri"):
            path = urllib.parse.unquote(
                urllib.parse.urlparse(output["uri"]).path)
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    return file.read()
            except OSError:
                return ""
    return ""


def count_pass(path: str) -> Dict[str, Count]:
    """By target, or by case."""
    counts: Dict[str, Count] = {}
    # The last attempt of each shard and run is the one that counts.
    results: Dict[str, Dict[tuple, dict]] = {}
    for event in _events(path):
        if "target" in event:
            *numbers, failures = event["counts"]
            counts[event["target"]] = Count(*numbers, tuple(failures))
        if "case" in event:
            has_passed = event["result"] == "passed"
            counts[event["case"]] = Count(int(has_passed), int(not has_passed))
        event_id = event.get("id", {})
        if "testResult" in event_id and "testResult" in event:
            key = event_id["testResult"]
            results.setdefault(key["label"], {})[
                (key.get("run", 1), key.get("shard", 1))
            ] = event["testResult"]
        if "targetCompleted" in event_id and "aborted" not in event:
            if not event.get("completed", {}).get("success", False):
                # A test's failure to build; replaced below if it ran.
                counts[event_id["targetCompleted"]["label"]] = Count(failed=1)
    for label, runs in results.items():
        counts[label] = sum(
            (
                count_outputs(
                    _read(run.get("testActionOutput", []), "test.xml"),
                    _read(run.get("testActionOutput", []), "test.log"),
                    run.get("status") == "PASSED",
                )
                for run in runs.values()
            ),
            Count(),
        )
        # A program without a case tests nothing.
        if counts[label] == Count():
            counts[label] = Count(failed=1)
    return counts


def reduce_events(path: str) -> None:
    counts = count_pass(path)
    with open(path, "w", encoding="utf-8") as file:
        for label, count in sorted(counts.items()):
            print(json.dumps({"target": label, "counts": count}), file=file)


def main(arguments: List[str]) -> int:
    if arguments[0] == "--reduce":
        reduce_events(arguments[1])
        return 0
    directory, passes = arguments[0], arguments[1:]
    total = Count()
    for name in passes:
        path = os.path.join(directory, name)
        counts = count_pass(path) if os.path.exists(path) else {}
        if os.path.exists(path + ".broken"):
            if not any(count.failed for count in counts.values()):
                counts["the build"] = Count(failed=1)
        elif not counts:
            counts["no test was found"] = Count(failed=1)
        subtotal = sum(counts.values(), Count())
        print(f"{name}: {subtotal}")
        for label in sorted(counts):
            if counts[label].failed:
                print(f"  FAILED {label}: {counts[label]}")
                for said in counts[label].failures[:_MAX_CASES]:
                    print("    " + said.replace("\n", "\n    "))
            elif counts[label].skipped:
                print(f"  skipped {label}: {counts[label]}")
        total += subtotal
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
