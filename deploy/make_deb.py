"""Packs a Debian package: the same files give the same bytes.

    make_deb.py OUT.deb DEBIAN/NAME=FILE... PATH=FILE_OR_FOLDER...
                LINK->TARGET...

DEBIAN/changelog and DEBIAN/copyright go where Debian keeps them; the former
names version and date. In DEBIAN/control @VERSION@, @INSTALLED_SIZE@ and
@SHLIBS@, what dpkg-shlibdeps finds, are filled in. A PATH that ends with .gz is
packed. Programs are what begins with "#!" or lies in usr/bin; files below etc
are configuration.
"""

import email.utils
import gzip
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE,
                          universal_newlines=True, **options).stdout


def read_changelog(text):
    version = re.match(r"\S+ \((\S+)\)", text)[1]
    date = re.search(r"^ -- .*>  (.*)$", text, re.MULTILINE)[1]
    return version, int(email.utils.parsedate_to_datetime(date).timestamp())


class Tree:
    """The package's files, in a directory."""

    def __init__(self, root):
        self.root = root
        self.root.chmod(0o755)

    def place(self, path):
        target = self.root / path
        for parent in reversed(target.relative_to(self.root).parents):
            directory = self.root / parent
            if not directory.exists():
                directory.mkdir()
                directory.chmod(0o755)
        return target

    def write(self, path, data, mode=None):
        if path.endswith(".gz"):
            data = gzip.compress(data, 9, mtime=0)
        target = self.place(path)
        target.write_bytes(data)
        if mode is None:
            is_program = path.startswith("usr/bin/") or data[:2] == b"#!"
            mode = 0o755 if is_program else 0o644
        target.chmod(mode)

    def files(self):
        return sorted(
            path for path in self.root.rglob("*")
            if path.is_file() and not path.is_symlink()
            and path.relative_to(self.root).parts[0] != "DEBIAN")

    def installed_kib(self):
        return sum(-(-path.stat().st_size // 1024) for path in self.files())

    def shared_library_dependencies(self):
        """As dpkg-shlibdeps knows them, of everything that is ELF."""
        with tempfile.TemporaryDirectory() as scratch:
            debian = pathlib.Path(scratch) / "debian"
            debian.mkdir()
            (debian / "control").write_text(
                "Source: datasetd\nMaintainer: x <x@x>\n\n"
                "Package: datasetd\nArchitecture: amd64\nDescription: x\n")
            programs = []
            for path in self.files():
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        programs.append("-e" + str(path))
            out = run(
                "dpkg-shlibdeps", "-O", "--ignore-missing-info", "--warnings=0",
                *programs, cwd=scratch)
        return re.search(r"^shlibs:Depends=(.*)$", out, re.MULTILINE)[1]


def main(out, *entries):
    sources = {}
    links = {}
    for entry in entries:
        if "->" in entry:
            path, target = entry.split("->", 1)
            links[path] = target
            continue
        path, source = entry.split("=", 1)
        source = pathlib.Path(source).resolve()
        if source.is_dir():
            for file in source.rglob("*"):
                if file.is_file():
                    name = pathlib.PurePosixPath(
                        path, file.relative_to(source))
                    sources[str(name)] = file
        else:
            sources[path] = source

    changelog = sources.pop("DEBIAN/changelog").read_bytes()
    version, date = read_changelog(changelog.decode())
    copyright_text = sources.pop("DEBIAN/copyright").read_bytes()
    control = sources.pop("DEBIAN/control").read_text()
    with tempfile.TemporaryDirectory() as directory:
        tree = Tree(pathlib.Path(directory))
        for path, source in sources.items():
            tree.write(path, source.read_bytes())
        doc = "usr/share/doc/datasetd"
        tree.write(f"{doc}/changelog.Debian.gz", changelog)
        tree.write(f"{doc}/copyright", copyright_text)
        for path, target in links.items():
            tree.place(path).symlink_to(target)
        names = [path.relative_to(tree.root) for path in tree.files()]
        control = control.replace("@VERSION@", version)
        control = control.replace("@INSTALLED_SIZE@", str(tree.installed_kib()))
        control = control.replace("@SHLIBS@",
                                  tree.shared_library_dependencies())
        tree.write("DEBIAN/control", control.encode(), 0o644)
        tree.write("DEBIAN/conffiles", "".join(
            f"/{name}\n" for name in names if name.parts[0] == "etc").encode())
        tree.write("DEBIAN/md5sums", "".join(
            f"{hashlib.md5((tree.root / name).read_bytes()).hexdigest()}"
            f"  {name}\n" for name in names).encode())
        for path in [tree.root, *tree.root.rglob("*")]:
            os.utime(path, (date, date), follow_symlinks=False)
        run("dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1",
            "--build", str(tree.root), os.path.abspath(out),
            env=dict(os.environ, SOURCE_DATE_EPOCH=str(date)))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
