"""Links of packed pages, by deploy/make_pages.py."""

import pathlib
import sys
import tempfile
import unittest

from tests.deploy import package_harness as harness

_PAGE = """
[ops](operations.md), [its part](operations.md#a-part), [here](#below),
[site](https://example.org/x.md), [`client/c_api/datasetd.h`](../client/c_api/datasetd.h),
[a page](left-out.md), [left-out.md](left-out.md), ![plot](plot.png),
[package](../client/python/datasetd), [index](../README.md) and [a](b) [c](d.md)
"""
_PACKED = """
[ops](operations.md), [its part](operations.md#a-part), [here](#below),
[site](https://example.org/x.md), [`client/c_api/datasetd.h`](../include/datasetd.h),
a page (`docs/left-out.md` of the source tree), `docs/left-out.md` of the source tree, plot (`docs/plot.png` of the source tree),
[package](../python), [index](overview.md) and a (`docs/b` of the source tree) c (`docs/d.md` of the source tree)
"""


class MakePagesTest(unittest.TestCase):
    def test_links_lead_to_the_archives_files_or_become_text(self):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "docs").mkdir()
            (root / "docs/loading.md").write_text(_PAGE)
            for name in ("docs/operations.md", "README.md"):
                (root / name).write_text("# Page [ops](docs/operations.md)\n")
            harness.run(
                sys.executable, "-I", harness.runfile("deploy/make_pages.py"),
                root / "out", "docs/loading.md=docs/loading.md",
                "docs/operations.md=docs/operations.md",
                "README.md=docs/overview.md",
                "client/c_api/datasetd.h->include/datasetd.h",
                "client/python/datasetd->python", cwd=root)
            self.assertEqual(
                (root / "out/docs/loading.md").read_text(), _PACKED)
            self.assertEqual((root / "out/docs/overview.md").read_text(),
                             "# Page [ops](operations.md)\n")

    def test_a_dangling_link_is_found(self):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory) / "root"
            root.mkdir()
            page = root / "page.md"
            page.write_text("[self](page.md) [site](https://example.org)\n")
            harness.check_links(root, "page.md")
            for link in ("gone.md", "../outside.md"):
                (root.parent / "outside.md").touch()
                page.write_text(f"[x]({link})\n")
                with self.assertRaisesRegex(AssertionError, "page.md links to"):
                    harness.check_links(root, "page.md")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
