"""Makes libdatasetd.so, or executables, independent of the system's libraries.

    bundle_library.py LIBRARY OUT_DIR NAME
    bundle_library.py --only SONAME OUT_DIR

Writes OUT_DIR/NAME, with that soname, and OUT_DIR/datasetd/, which holds every
shared library that it needs, but glibc's; or the latter alone, with the
system's library SONAME and what that needs. Each copy gets a name of its own,
so that the loader never takes another one that the process has mapped, nor
gives ours to somebody else. Debian's archives cannot be linked into a shared
library: they are not position-independent.

Needs patchelf and strip.
"""

import os
import pathlib
import shutil
import struct
import subprocess
import sys

# glibc's, which belong to the machine.
SYSTEM = {
    "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6",
    "libpthread.so.0", "libresolv.so.2", "librt.so.1",
}
# The client speaks over Unix sockets: without TLS it needs no OpenSSL.
WITHOUT_TLS = {
    "libgrpc++.so.1.51": "libgrpc++_unsecure.so.1.51",
    "libgrpc.so.29": "libgrpc_unsecure.so.29",
}
SHT_DYNSYM = 11
STB_GLOBAL = 1
STB_GNU_UNIQUE = 10
SYMBOL_BYTES = 24
SEARCH_PATH = [pathlib.Path("/usr/lib/x86_64-linux-gnu"),
               pathlib.Path("/lib/x86_64-linux-gnu")]


def run(*command):
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, universal_newlines=True
    ).stdout


def needed_by(path):
    return run("patchelf", "--print-needed", str(path)).split()


def find(soname):
    for directory in SEARCH_PATH:
        if (directory / soname).exists():
            return directory / soname
    sys.exit(f"bundle_library: no {soname} in {SEARCH_PATH}")


def closure(sonames):
    """{soname: path} of these libraries and of all that they need."""
    found = {}
    todo = list(sonames)
    while todo:
        soname = WITHOUT_TLS.get(todo[-1], todo[-1])
        todo.pop()
        if soname in found or soname in SYSTEM:
            continue
        found[soname] = find(soname)
        todo += needed_by(found[soname])
    return found


def private_name(soname):
    stem, _, version = soname.partition(".so")
    return f"{stem}-datasetd.so{version}"


def make_symbols_private(path):
    """STB_GNU_UNIQUE becomes STB_GLOBAL.

    The loader gives all libraries of a process one copy of a unique symbol,
    whatever they were linked with: statics of templates in std and protobuf.
    """
    data = bytearray(path.read_bytes())
    assert data[:6] == b"\x7fELF\x02\x01", f"{path} is no 64-bit ELF file"
    (sections,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    for header in range(sections, sections + size * count, size):
        (kind,) = struct.unpack_from("<I", data, header + 4)
        if kind != SHT_DYNSYM:
            continue
        offset, length = struct.unpack_from("<QQ", data, header + 0x18)
        for info in range(offset + 4, offset + length, SYMBOL_BYTES):
            if data[info] >> 4 == STB_GNU_UNIQUE:
                data[info] = STB_GLOBAL << 4 | data[info] & 0xF
    path.write_bytes(data)


def copy_private(source, copy, rpath):
    shutil.copyfile(os.path.realpath(source), copy)
    copy.chmod(0o755)
    run("strip", "--strip-unneeded", str(copy))
    # One change a run: patchelf 0.14 mixes up several.
    run("patchelf", "--set-soname", copy.name, str(copy))
    run("patchelf", "--set-rpath", rpath, str(copy))
    for soname in needed_by(copy):
        if soname not in SYSTEM:
            now = private_name(WITHOUT_TLS.get(soname, soname))
            run("patchelf", "--replace-needed", soname, now, str(copy))
    make_symbols_private(copy)


def bundle(sonames, out_dir):
    """The private copies."""
    private_dir = out_dir / "datasetd"
    private_dir.mkdir(parents=True, exist_ok=True)
    for soname, path in sorted(closure(sonames).items()):
        copy_private(path, private_dir / private_name(soname), "$ORIGIN")


def main(library, out_dir, name):
    bundle(needed_by(library), pathlib.Path(out_dir))
    copy_private(library, pathlib.Path(out_dir) / name, "$ORIGIN/datasetd")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    if sys.argv[1] == "--only":
        bundle([sys.argv[2]], pathlib.Path(sys.argv[3]))
    else:
        main(*sys.argv[1:])
