"""Copies pages of the documentation so that their links lead to files of the
archive.

    make_pages.py OUT_DIR PAGE=PATH... FILE->PATH...

PAGE is copied to OUT_DIR/PATH. FILE is another file or folder of the tree,
which lies at PATH in the archive. A link to anything else becomes text that
names the file of the source tree.
"""

import pathlib
import posixpath
import re
import sys

_LINK = re.compile(r"!?\[([^]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def rewritten(text, source, path, places):
    """The text of page `source` of the tree as it stands at `path`."""

    def replace(match):
        label, target, anchor = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        named = posixpath.normpath(
            posixpath.join(posixpath.dirname(source), target))
        if named not in places:
            place = f"`{named}` of the source tree"
            is_path = label.strip("`") in (named, target)
            return place if is_path else f"{label} ({place})"
        link = posixpath.relpath(places[named], posixpath.dirname(path) or ".")
        mark = "!" if match[0].startswith("!") else ""
        return f"{mark}[{label}]({link}{anchor or ''})"

    return _LINK.sub(replace, text)


def main(out, *arguments):
    pages = dict(a.split("=", 1) for a in arguments if "->" not in a)
    others = dict(a.split("->", 1) for a in arguments if "->" in a)
    places = {**others, **pages}
    for source, path in pages.items():
        target = pathlib.Path(out, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = pathlib.Path(source).read_text(encoding="utf-8")
        target.write_text(rewritten(text, source, path, places),
                          encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
