#!/usr/bin/python3
"""Checks that the files which the documentation names are there.

    links.py FILE [FOLDER]

From the repository's root. Links must lead to a file, and so must `code` that
looks like a path below a folder of the repository. Writes a line of JSON for
each page to FILE, for count_cases.py.

With FOLDER the pages are those below it, as packed, and only links are checked,
which must lead to files in it; it ends with 1 if one does not.
"""

import glob
import json
import os
import re
import sys

_LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
_PATH = re.compile(
    r"`((?:client|cuda|deploy|docs|proto|server|tests|third_party)"
    r"/[\w./-]+)`")


def linked(page: str, text: str) -> list:
    return [
        os.path.join(os.path.dirname(page), link)
        for link in _LINK.findall(text)
        if "://" not in link
    ]


def missing(page: str) -> list:
    with open(page, encoding="utf-8") as file:
        text = file.read()
    names = linked(page, text) + _PATH.findall(text)
    return [name for name in names if not os.path.exists(name)]


def dangling(folder: str) -> list:
    """(page, file) of the links that lead to no file in the folder."""
    root = os.path.realpath(folder)
    pages = glob.glob(os.path.join(root, "**/*.md"), recursive=True)
    found = []
    for page in sorted(pages):
        with open(page, encoding="utf-8") as file:
            names = linked(page, file.read())
        for name in names:
            path = os.path.realpath(name)
            if not (path + "/").startswith(root + "/") or (
                    not os.path.exists(path)):
                found.append((os.path.relpath(page, root), name))
    return found


def main() -> None:
    if len(sys.argv) > 2:
        for page, name in (found := dangling(sys.argv[2])):
            print(page, "links to", name)
        sys.exit(1 if found else 0)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for page in sorted(glob.glob("*.md") + glob.glob("docs/*.md")):
            names = missing(page)
            result = "failed" if names else "passed"
            print(page, result, *names)
            file.write(json.dumps({"case": page, "result": result}) + "\n")


if __name__ == "__main__":
    main()
