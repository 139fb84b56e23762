"""Runs the test files named by the arguments with pytest."""

import os
import sys

import pytest

if __name__ == "__main__":
    directory = os.path.dirname(os.path.abspath(__file__))
    files = [os.path.join(directory, name) for name in sys.argv[1:]]
    sys.exit(
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "--confcutdir", directory] + files
        )
    )
