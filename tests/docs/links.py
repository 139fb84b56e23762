#!/usr/bin/python3
"""Checks that the files which the documentation names are there.

    links.py FILE

From the repository's root. Links must lead to a file, and so must `code` that
looks like a path below a folder of the repository. Writes a line of JSON for
each page to FILE, for count_cases.py.
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


def missing(page: str) -> list:
    with open(page, encoding="utf-8") as file:
        text = file.read()
    names = [
        os.path.join(os.path.dirname(page), link)
        for link in _LINK.findall(text)
        if "://" not in link
    ] + _PATH.findall(text)
    return [name for name in names if not os.path.exists(name)]


def main() -> None:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for page in sorted(glob.glob("*.md") + glob.glob("docs/*.md")):
            names = missing(page)
            result = "failed" if names else "passed"
            print(page, result, *names)
            file.write(json.dumps({"case": page, "result": result}) + "\n")


if __name__ == "__main__":
    main()
