"""Reads the --help of a program of ours, for pages made of it."""

import dataclasses
import subprocess
from typing import List, Tuple

COLUMN = 30  # of the descriptions


@dataclasses.dataclass
class Help:
    description: str
    usage: str
    # (what to write, what it does)
    positionals: List[Tuple[str, str]]
    options: List[Tuple[str, str]]
    subcommands: List[Tuple[str, str]]

    def flags(self):
        """Every spelling of every option: "--json", "-h"."""
        return [flag for spec, _ in self.options
                for flag in spec.split()[0].split(",")]


def _items(lines):
    """Pairs of a section: "  SPEC   TEXT", or TEXT on the line below."""
    items = []
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if not line[:COLUMN].strip():
            continue
        if below and not below[:COLUMN].strip():
            items.append((line.strip(), below.strip()))
        else:
            items.append((line[:COLUMN].strip(), line[COLUMN:].strip()))
    return items


def parse(text):
    head, *sections = text.split("\n\n")
    description, usage = head.split("\nUsage: ")
    found = {"Positionals:": [], "Options:": [], "Subcommands:": []}
    for section in sections:
        title, *lines = section.rstrip("\n").split("\n")
        if title in found:
            found[title] = _items(lines)
    assert found["Options:"], text
    return Help(description.strip(), usage.strip(), found["Positionals:"],
                found["Options:"], found["Subcommands:"])


def ask(program, *command):
    """The help of `program`, or of its subcommand."""
    return parse(subprocess.run(
        [program, *command, "--help"], check=True, stdout=subprocess.PIPE,
        universal_newlines=True).stdout)
