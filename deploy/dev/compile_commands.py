#!/usr/bin/python3
"""Writes compile_commands.json at the top, for clangd and clang-tidy.

    deploy/dev/compile_commands.py [TARGETS]

TARGETS is a Bazel pattern; //... without one. Asks Bazel for the commands
and compiles nothing; headers that Bazel generates are there after a build.
"""

import glob
import json
import os
import subprocess
import sys


def bazel(*arguments: str) -> str:
    return subprocess.run(
        ["bazel", *arguments], check=True, capture_output=True, text=True
    ).stdout


def main() -> None:
    top = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
    os.chdir(top)
    targets = sys.argv[1] if len(sys.argv) > 1 else "//..."
    actions = json.loads(
        bazel("aquery", "--output=jsonproto", "--noshow_progress",
              "--define=apart=true",
              f'mnemonic("CppCompile", {targets})')
    ).get("actions", [])
    root = bazel("info", "execution_root").strip()
    commands = {}  # by source: Bazel compiles some twice
    for action in actions:
        arguments = action["arguments"]
        sources = [a for a in arguments if a.endswith((".cc", ".c"))]
        # A header that is compiled alone has no source.
        if not sources or sources[-1].startswith("external/"):
            continue
        commands[sources[-1]] = {
            "directory": root,
            "file": os.path.join(top, sources[-1])
            if os.path.exists(sources[-1]) else sources[-1],
            # Tools of clang stumble over what GCC alone knows.
            "arguments": [a for a in arguments
                          if not a.startswith(("-fno-canonical",
                                               "-Wno-free-nonheap"))],
        }
    # Tests that are compiled together, each with the command of all.
    for source, command in list(commands.items()):
        package, joined = os.path.split(source.partition("/bin/")[2])
        if not joined.endswith("_test_sources.cc"):
            continue
        del commands[source]
        for path in glob.glob(os.path.join(package, "*_test.cc")):
            own = [path if a == source else a for a in command["arguments"]]
            commands.setdefault(path, {
                **command, "file": os.path.join(top, path), "arguments": own})
    with open("compile_commands.json", "w", encoding="utf-8") as file:
        json.dump(list(commands.values()), file, indent=1)
    print(f"compile_commands.json: {len(commands)} commands")


if __name__ == "__main__":
    main()
