"""Links that links.py finds missing."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from tests.testing.daemon_harness import runfile

_PAGE = """# The page

[file](b.md) [heading](b.md#two-words) [here](#parts-partitionnode)
[again](#again-1) [site](https://example.org/x.md#y) `base/clock.h`
`tests/a_test.py::test_one` `tests/a_test.cc::AThing.IsOne`

## Parts: `partition="node"`
## Again
## [Again](b.md)

```python
table[0](gone.md)
# No heading
```
"""


class LinksTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = directory.name
        self.write("docs/b.md", "## Two words\n")
        self.write("base/clock.h", "")
        self.write("tests/a_test.py", "def test_one():\n    pass\n")
        self.write("tests/a_test.cc", "TEST_F(AThing, IsOne) {}\n")
        self.run_in_root("git", "init", "--quiet")

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run_in_root(self, *command):
        return subprocess.run(command, cwd=self.root, check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def failed(self):
        """{page: what it names} of the pages that failed."""
        printed = self.run_in_root(
            sys.executable, os.path.abspath(runfile("tests/docs/links.py")),
            os.path.join(self.root, "result"))
        with open(os.path.join(self.root, "result")) as file:
            results = {case["case"]: case["result"]
                       for case in map(json.loads, file)}
        lines = [line.split() for line in printed.splitlines()]
        self.assertEqual(results, {line[0]: line[1] for line in lines})
        return {line[0]: line[2:] for line in lines if line[1] == "failed"}

    def test_what_is_there(self):
        self.write("docs/deep/er/a.md", _PAGE.replace("(b.md", "(../../b.md"))
        self.write("ignored.md", "[x](gone.md)\n")
        self.write(".gitignore", "ignored.md\n")
        self.assertEqual(self.failed(), {})

    def test_what_is_not(self):
        for part, wrong, name in (
                ("(b.md)", "(gone.md)", "docs/gone.md"),
                ("#two-words", "#two-word", "docs/b.md#two-word"),
                ("#again-1", "#no-heading", "docs/a.md#no-heading"),
                ("`base/clock.h`", "`base/clocks.h`", "base/clocks.h"),
                ("test_one`", "test_o`", "tests/a_test.py::test_o"),
                ("AThing.I", "Thing.I", "tests/a_test.cc::Thing.IsOne"),
                ("a_test.py:", "b_test.py:", "tests/b_test.py::test_one")):
            self.write("docs/a.md", _PAGE.replace(part, wrong, 1))
            self.assertEqual(self.failed(), {"docs/a.md": [name]})

    def test_folders_below_docs(self):
        self.write("docs/decisions/c.md", "[x](b.md)\n")
        self.assertEqual(self.failed(),
                         {"docs/decisions/c.md": ["docs/decisions/b.md"]})


if __name__ == "__main__":
    unittest.main()
