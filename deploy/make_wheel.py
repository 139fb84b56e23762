"""Packs a wheel: the same files give the same bytes.

    make_wheel.py OUT.whl VERSION TAG METADATA PATH=FILE_OR_FOLDER...
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file knows


def record_line(path, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"{path},sha256={digest.decode().rstrip('=')},{len(data)}\n"


def main(out, version, tag, metadata, *entries):
    files = {}
    for entry in entries:
        path, source = entry.split("=", 1)
        source = pathlib.Path(source)
        if source.is_dir():
            for file in source.rglob("*"):
                if file.is_file():
                    files[f"{path}/{file.relative_to(source)}"] = (
                        file.read_bytes())
        else:
            files[path] = source.read_bytes()
    info = f"datasetd-{version}.dist-info"
    files[f"{info}/METADATA"] = pathlib.Path(metadata).read_bytes()
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
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
