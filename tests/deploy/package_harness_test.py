"""The harness of the tests of packages."""

import pathlib
import tempfile
import unittest

from tests.deploy import package_harness as harness


class DaemonTest(unittest.TestCase):
    def test_a_program_that_ended_is_not_waited_for(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(AssertionError, "ended with 1"):
                harness.Daemon("/bin/false", pathlib.Path(directory))


if __name__ == "__main__":
    unittest.main(verbosity=2)
