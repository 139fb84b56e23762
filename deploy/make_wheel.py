"""Packs a wheel: the same files give the same bytes.

    make_wheel.py OUT.whl VERSION TAG METADATA ENTRY_POINTS PATH=SOURCE...

SOURCE is a file or a folder.

Fails if a file needs a newer glibc than TAG promises, or takes a C++ name from
whatever else is in the process. Needs readelf.
"""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file knows


def record_line(path, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"{path},sha256={digest.decode().rstrip('=')},{len(data)}\n"


def glibc_of(tag):
    """(major, minor) of a manylinux tag."""
    return tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", tag).groups()))


def check(path, tag):
    """Ends the program if an ELF file is not fit for a wheel."""
    text = subprocess.run(
        ["readelf", "-W", "-V", "--dyn-syms", str(path)], check=True,
        text=True, stdout=subprocess.PIPE).stdout
    # The newest version of glibc's symbols that it needs.
    needed = max((tuple(map(int, version.split(".")))
                  for version in re.findall(r"Name: GLIBC_([\d.]+)", text)),
                 default=(0,))
    if needed > glibc_of(tag):
        sys.exit(f"make_wheel: {path} needs glibc "
                 f"{'.'.join(map(str, needed))}, newer than {tag}")
    names = re.findall(r" UND (_Z\S+)", text)
    if names:
        sys.exit(f"make_wheel: {path} takes {' '.join(names)} from another "
                 "library; see the end of third_party/glibc/shim.c")


def read(source, tag):
    """The bytes of a file, checked."""
    data = source.read_bytes()
    if data[:4] == b"\x7fELF":
        check(source, tag)
    return data


def main(out, version, tag, metadata, entry_points, *entries):
    files = {}
    for entry in entries:
        path, source = entry.split("=", 1)
        source = pathlib.Path(source)
        if source.is_dir():
            for file in source.rglob("*"):
                if file.is_file():
                    name = pathlib.PurePosixPath(
                        path, file.relative_to(source))
                    files[str(name)] = read(file, tag)
        else:
            files[path] = read(source, tag)
    info = f"datasetd-{version}.dist-info"
    files[f"{info}/METADATA"] = pathlib.Path(metadata).read_bytes()
    files[f"{info}/entry_points.txt"] = pathlib.Path(entry_points).read_bytes()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: datasetd\nRoot-Is-Purelib: false\n"
        f"Tag: {tag}\n").encode()
    record = "".join(
        record_line(path, data) for path, data in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    # The archive's own files come last, as is the custom.
    order = sorted(files, key=lambda path: (path.startswith(info), path))
    with zipfile.ZipFile(out, "w") as archive:
        for path in order:
            entry = zipfile.ZipInfo(path, DATE)
            mode = 0o755 if files[path][:4] == b"\x7fELF" else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.create_system = 3  # Unix
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[path], compresslevel=9)


if __name__ == "__main__":
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
