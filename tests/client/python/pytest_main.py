"""Runs the test files among the arguments with pytest, and its other arguments."""

import os
import sys

import pytest

if __name__ == "__main__":
    directory = os.path.dirname(os.path.abspath(__file__))
    arguments = [
        os.path.join(directory, name) if name.endswith(".py") else name
        for name in sys.argv[1:]
    ]
    # Processes that the tests start have reports of their own, or none.
    report = os.environ.pop("XML_OUTPUT_FILE", None)
    if report:
        arguments.append("--junitxml=" + report)
    sys.exit(
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "--confcutdir", directory,
             "--durations=5"] + arguments
        )
    )
