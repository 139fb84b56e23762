#!/usr/bin/python3
"""Checks that the files and headings which the documentation names are there.

    links.py FILE [FOLDER]

From the repository's root, of all pages of the repository. Links must lead to a
file, and with an anchor to a heading of a page; `code` that looks like a path
below a folder of the repository must be one; and `FILE_test.py::test_name` and
`FILE_test.cc::Suite.Case` must be tests. Writes a line of JSON for each page
to FILE, for count_cases.py.

With FOLDER the pages are those below it, as packed, and only files are checked,
which must lie in it; it ends with 1 if one does not.
"""

import glob
import json
import os
import re
import subprocess
import sys

_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_PATH = re.compile(
    r"`((?:base|client|cuda|deploy|docs|proto|server|tests|third_party)"
    r"/[\w./-]+)`")
_TEST = re.compile(r"`(tests/[\w./-]+)::([\w.]+)`")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)


def pages() -> list:
    """Returns the pages in git, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others",
         "--exclude-standard", "*.md"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    return [page for page in listed.split("\0")
            if page and os.path.exists(page)]


def read(page: str) -> str:
    """Reads it without its blocks of code, whose brackets are no links."""
    with open(page, encoding="utf-8") as file:
        return _FENCED.sub("", file.read())


def linked(page: str, text: str) -> list:
    """(path, anchor) of the links, an anchor of "" being none."""
    return [
        (os.path.normpath(os.path.join(os.path.dirname(page), path))
         if path else page, anchor)
        for path, anchor in _LINK.findall(text)
        if "://" not in path and not path.startswith("mailto:")
        and (path or anchor)
    ]


def anchors(page: str) -> set:
    """Returns the anchors that GitHub gives to the headings."""
    found = set()
    for heading in _HEADING.findall(read(page)):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        number = 0
        while (anchor := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(anchor)
    return found


def is_test(path: str, test: str) -> bool:
    """Whether the file has the case: a function, or `Suite.Case` of C++."""
    if not os.path.exists(path):
        return False
    suite, _, case = test.rpartition(".")
    pattern = (rf"^TEST\w*\({suite},\s*{case}\)" if suite
               else rf"^\s*def {test}\(")
    with open(path, encoding="utf-8") as file:
        return bool(re.search(pattern, file.read(), re.MULTILINE))


def missing(page: str) -> list:
    text = read(page)
    names = [name for name in _PATH.findall(text) if not os.path.exists(name)]
    names += [f"{path}::{test}" for path, test in _TEST.findall(text)
              if not is_test(path, test)]
    for path, anchor in linked(page, text):
        if not os.path.exists(path):
            names.append(path)
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            names.append(f"{path}#{anchor}")
    return names


def dangling(folder: str) -> list:
    """(page, file) of the links that lead to no file in the folder."""
    root = os.path.realpath(folder)
    found = []
    for page in sorted(glob.glob(os.path.join(root, "**/*.md"),
                                 recursive=True)):
        for name, _ in linked(page, read(page)):
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
        for page in sorted(pages()):
            names = missing(page)
            result = "failed" if names else "passed"
            print(page, result, *names)
            file.write(json.dumps({"case": page, "result": result}) + "\n")


if __name__ == "__main__":
    main()
