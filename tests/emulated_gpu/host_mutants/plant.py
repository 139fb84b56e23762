"""Plants a fault: copies a source with one piece of its text replaced.

    plant.py SOURCE OUT BEFORE AFTER
"""

import sys


def main():
    source, out, before, after = sys.argv[1:]
    with open(source) as file:
        text = file.read()
    if text.count(before) != 1:
        sys.exit(f"{source} has {text.count(before)} times, not once: "
                 f"{before!r}")
    with open(out, "w") as file:
        file.write(text.replace(before, after))


if __name__ == "__main__":
    main()
