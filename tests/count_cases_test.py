"""The counts of run_all.sh, and that it cannot overlook a failure."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

from tests import count_cases
from tests.count_cases import Count

GTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0">
  <testsuite name="A" tests="4">
    <testcase name="Passes" status="run" result="completed" classname="A" />
    <testcase name="Fails" status="run" result="completed" classname="A">
      <failure message="no" type=""></failure>
      <failure message="again" type=""></failure>
    </testcase>
    <testcase name="Skips" status="run" result="skipped" classname="A">
      <skipped message="no GPU" />
    </testcase>
    <testcase name="DISABLED_x" status="notrun" result="suppressed"/>
  </testsuite>
</testsuites>"""

PYTEST = """<testsuites><testsuite name="pytest" errors="1" tests="3">
  <testcase classname="t" name="a" time="0.1" />
  <testcase classname="t" name="b"><error message="x">y</error></testcase>
  <testcase classname="t" name="c"><skipped message="z"/></testcase>
</testsuite></testsuites>"""

BAZEL = """<testsuites><testsuite name="tests/a_test" tests="1">
  <testcase name="tests/a_test" status="run"></testcase>
</testsuite></testsuites>"""

UNITTEST = """noise
----------------------------------------------------------------------
Ran 12 tests in 1.757s

FAILED (failures=2, errors=1, skipped=3)
"""

_UNITTEST_TEST = """
import unittest
class T(unittest.TestCase):
    def test_a(self):
        self.assertEqual(1, 2)
    def test_b(self):
        raise ValueError("b")
    def test_c(self):
        pass
unittest.main()
"""

# Its process cannot see where the report goes.
_SOME_TEST = """
import os, pytest
@pytest.mark.parametrize("i", [1, 2])
def test_passes(i):
    assert "XML_OUTPUT_FILE" not in os.environ
def test_fails():
    assert False
@pytest.mark.skip(reason="no GPU")
def test_skips():
    pass
"""


class CountTest(unittest.TestCase):
    def test_googletest(self):
        self.assertEqual(
            count_cases.count_outputs(GTEST, "", False),
            Count(1, 1, 2, ("A.Fails\n  no\n  again",)))

    def test_pytest(self):
        self.assertEqual(count_cases.count_outputs(PYTEST, "", False),
                         Count(1, 1, 1, ("t.b\n  y",)))

    def test_unittest_by_what_it_printed(self):
        self.assertEqual(count_cases.count_outputs(BAZEL, UNITTEST, False),
                         Count(6, 3, 3))
        self.assertEqual(
            count_cases.count_unittest("Ran 1 test in 0.1s\n\nOK\n"), Count(1))

    def test_what_unittest_says(self):
        log = subprocess.run([sys.executable, "-c", _UNITTEST_TEST],
                             stderr=subprocess.PIPE, text=True).stderr
        passed, failed, _, failures = count_cases.count_unittest(log)
        self.assertEqual((passed, failed), (1, 2))
        b, a = sorted(failures, key=lambda said: "test_a" in said)
        self.assertIn("AssertionError: 1 != 2", a)
        self.assertIn("ValueError: b", b)
        self.assertNotIn("test_a", b)

    def test_what_tests_that_run_pytest_write(self):
        # The way of tests/testing, and the scripts of the client's tests.
        runs = {
            "a": [sys.executable, "-c",
                  "import sys; from tests.testing import pytest_file; "
                  "pytest_file.main(sys.argv.pop(1))"],
            "b": [sys.executable, "tests/client/python/pytest_main.py"],
            "c": [sys.executable, "tests/frameworks/pytest_main.py"],
        }
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "some_test.py")
            with open(file, "w") as test:
                test.write(_SOME_TEST)
            for name, command in runs.items():
                report = os.path.join(directory, name)
                done = subprocess.run(
                    [*command, file], stdout=subprocess.PIPE,
                    env=dict(os.environ, XML_OUTPUT_FILE=report))
                self.assertEqual(done.returncode, 1, done.stdout)
                with open(report) as xml:
                    count = count_cases.count_xml(xml.read())
                self.assertEqual(count[:3], (2, 1, 1))
                (said,) = count.failures
                self.assertRegex(
                    said, r"test_fails\n[\s\S]*AssertionError$")

    def test_another_test_is_one_case(self):
        self.assertEqual(count_cases.count_outputs(BAZEL, "", True), Count(1))

    def test_crash_without_a_failed_case_is_a_failure(self):
        passed = GTEST.replace("<failure", "<note").replace(
            "</failure", "</note")
        self.assertEqual(count_cases.count_outputs(passed, "", False).failed, 1)
        self.assertEqual(count_cases.count_outputs("", "", False),
                         Count(failed=1))
        self.assertEqual(count_cases.count_outputs("<cut off", "", False),
                         Count(failed=1))


class PassTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def write(self, name, *events):
        with open(os.path.join(self.directory, name), "w") as file:
            for event in events:
                file.write(json.dumps(event) + "\n")

    def result(self, label, status, xml):
        path = os.path.join(self.directory, label.replace("/", "_") + ".xml")
        with open(path, "w") as file:
            file.write(xml)
        return {
            "id": {"testResult": {"label": label, "run": 1, "shard": 1}},
            "testResult": {
                "status": status,
                "testActionOutput": [
                    {"name": "test.xml", "uri": "file://" + path}],
            },
        }

    def run_main(self, *passes):
        """(exit code, last line)."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = count_cases.main([self.directory, *passes])
        self.printed = out.getvalue()
        return code, self.printed.splitlines()[-1]

    def test_all_passed(self):
        self.write("all", self.result("//a", "PASSED", BAZEL),
                   self.result("//b", "PASSED", BAZEL))
        self.write("layers", {"case": "x", "result": "passed"})
        self.assertEqual(self.run_main("all", "layers"),
                         (0, "3 passed, 0 failed"))

    def test_failures_and_skips_are_said(self):
        self.write("all", self.result("//a", "FAILED", GTEST))
        self.assertEqual(self.run_main("all"),
                         (1, "1 passed, 1 failed, 2 skipped"))
        self.assertIn(
            "  FAILED //a: 1 passed, 1 failed, 2 skipped\n"
            "    A.Fails\n      no\n      again\n", self.printed)

    def test_targets_with_skipped_cases_are_named(self):
        skips = PYTEST.replace("<error", "<note").replace("</error", "</note")
        self.write("all", self.result("//a", "PASSED", skips),
                   self.result("//b", "PASSED", BAZEL))
        self.assertEqual(self.run_main("all"),
                         (0, "3 passed, 0 failed, 1 skipped"))
        self.assertIn("  skipped //a: 2 passed, 0 failed, 1 skipped\n",
                      self.printed)
        self.assertNotIn("//b", self.printed)

    def test_what_was_not_built_failed(self):
        self.write("all", self.result("//a", "PASSED", BAZEL), {
            "id": {"targetCompleted": {"label": "//b"}}, "completed": {}})
        self.assertEqual(self.run_main("all"), (1, "1 passed, 1 failed"))

    def test_broken_build_without_a_named_target_failed(self):
        self.write("all", self.result("//a", "PASSED", BAZEL))
        self.write("all.broken", "bazel ended with 1")
        self.assertEqual(self.run_main("all"), (1, "1 passed, 1 failed"))

    def test_reduced_counts_outlive_the_logs(self):
        result = self.result("//a", "FAILED", GTEST)
        self.write("all", result, {
            "id": {"targetCompleted": {"label": "//b"}}, "completed": {}})
        count_cases.main(["--reduce", os.path.join(self.directory, "all")])
        self.result("//a", "PASSED", BAZEL)
        self.assertEqual(self.run_main("all"),
                         (1, "1 passed, 2 failed, 2 skipped"))
        self.assertIn("    A.Fails\n      no\n      again\n", self.printed)

    def test_a_program_without_a_case_is_a_failure(self):
        self.write("all", self.result("//a", "PASSED", BAZEL),
                   self.result("//b", "PASSED", '<testsuites tests="0"/>'))
        self.assertEqual(self.run_main("all"), (1, "1 passed, 1 failed"))

    def test_nothing_run_is_a_failure(self):
        self.write("all")
        self.assertEqual(self.run_main("all"), (1, "0 passed, 1 failed"))
        self.assertEqual(self.run_main("absent"), (1, "0 passed, 1 failed"))


if __name__ == "__main__":
    unittest.main()
