"""Runs a test file with pytest, and tells Bazel of each case."""

import os
import sys


def main(file):
    """Runs the tests of a file; exits with pytest's code."""
    import pytest

    arguments = [file, "-q", "-p", "no:cacheprovider", "-rs", "--durations=5"]
    # Processes that the tests start have reports of their own, or none.
    report = os.environ.pop("XML_OUTPUT_FILE", None)
    if report:
        arguments.append("--junitxml=" + report)
    sys.exit(pytest.main(arguments + sys.argv[1:]))
