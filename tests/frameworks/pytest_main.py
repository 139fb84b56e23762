"""Runs the test files named by the arguments with pytest."""

import os
import sys

import pytest

if __name__ == "__main__":
    directory = os.path.dirname(os.path.abspath(__file__))
    arguments = [os.path.join(directory, name) for name in sys.argv[1:]]
    # Processes that the tests start have reports of their own, or none.
    report = os.environ.pop("XML_OUTPUT_FILE", None)
    if report:
        arguments.append("--junitxml=" + report)
    sys.exit(
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "--confcutdir", directory]
            + arguments
        )
    )
