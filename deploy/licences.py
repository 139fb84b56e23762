"""The licences of the libraries that packed programs hold, as Debian has them.

    licences.py OWN ARCHIVES

Prints the file OWN, then the copyright files of the packages. ARCHIVES names,
with commas, the static libraries that the programs may hold.
"""

import pathlib
import subprocess
import sys

# Packages of headers, of the compiler's libraries, and of what is built from
# source.
ALWAYS = ["libcli11-dev", "libdlpack-dev", "libfmt-dev", "libgcc-s1",
          "libhwy-dev", "librust-blake3-dev", "libspdlog-dev", "libstdc++6",
          "nlohmann-json3-dev", "prometheus-cpp-dev"]
LIBRARY_FOLDER = pathlib.Path("/usr/lib/x86_64-linux-gnu")


def packages_of(archives):
    """Debian's packages with these static libraries."""
    found = set()
    for name in archives:
        archive = LIBRARY_FOLDER / f"lib{name}.a"
        if archive.exists():  # else it is the compiler's: libstdc++6
            owner = subprocess.run(
                ["dpkg-query", "-S", str(archive)], check=True,
                stdout=subprocess.PIPE, text=True).stdout
            found.add(owner.split(":")[0])
        else:
            assert name == "stdc++", f"no {archive}"
    return found


def main(own, archives):
    text = pathlib.Path(own).read_text(encoding="utf-8")
    for package in sorted({*ALWAYS, *packages_of(archives.split(","))}):
        path = pathlib.Path("/usr/share/doc") / package / "copyright"
        text += (f"\n{'=' * 78}\n{package}\n{'=' * 78}\n\n"
                 + path.read_text(encoding="utf-8"))
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
