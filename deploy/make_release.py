"""Packs a release: the same files give the same bytes.

    make_release.py OUT.tar.gz NAME PATH_IN_RELEASE=FILE... LINK->TARGET...

Files below bin/, lib/ and libexec/ that begin with an ELF header or "#!" are
executable. NAME is the one folder of the archive.
"""

import gzip
import io
import pathlib
import sys
import tarfile


def add(archive, name, data=b"", link=None):
    entry = tarfile.TarInfo(name)
    entry.uname = entry.gname = "root"
    if link is not None:
        entry.type = tarfile.SYMTYPE
        entry.linkname = link
        entry.mode = 0o777
        archive.addfile(entry)
        return
    entry.size = len(data)
    is_program = data[:4] == b"\x7fELF" or data[:2] == b"#!"
    entry.mode = 0o755 if is_program else 0o644
    archive.addfile(entry, io.BytesIO(data))


def main(out, name, *entries):
    files = {}
    links = {}
    for entry in entries:
        if "->" in entry:
            path, target = entry.split("->", 1)
            links[path] = target
        else:
            path, source = entry.split("=", 1)
            source = pathlib.Path(source)
            if source.is_dir():
                for file in source.rglob("*"):
                    if file.is_file():
                        inside = pathlib.PurePosixPath(
                            path, file.relative_to(source))
                        files[str(inside)] = file
            else:
                files[path] = source
    with open(out, "wb") as raw, gzip.GzipFile(
            "", "wb", 9, raw, mtime=0) as packed, tarfile.open(
                fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted({**files, **links}):
            if path in links:
                add(archive, f"{name}/{path}", link=links[path])
            else:
                add(archive, f"{name}/{path}", files[path].read_bytes())


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
