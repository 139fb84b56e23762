"""Makes libraries to link with in the place of glibc's.

    make_stubs.py SYMBOLS ARCH OUT_DIR

They have the symbols that the file SYMBOLS names for the processor ARCH, x86_64
or aarch64, and no code. What is linked with them runs with every glibc that has
these symbols, and names no other. Needs ARCH-linux-gnu-gcc.
"""

import pathlib
import subprocess
import sys

# The first glibc for each; a symbol that is older has this version there.
FIRST_VERSIONS = {"aarch64": "GLIBC_2.17", "x86_64": "GLIBC_2.2.5"}

_OBJECT = """\
.globl {name}
.type {name}, @object
.size {name}, {size}
{name}: .skip {size}
"""
_FUNCTION = """\
.globl {name}
.type {name}, @function
{name}: .skip 1
"""


def number(version):
    return tuple(map(int, version.split("_")[1].split(".")))


def read_symbols(text, arch):
    """{library: {version: {name: size, 0 of a function}}}."""
    first = FIRST_VERSIONS[arch]
    libraries = {}
    symbols = None
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        if not line[0].isspace():
            library, version, *archs = words
            version = max(version, first, key=number)
            symbols = {} if archs and arch not in archs else (
                libraries.setdefault(library, {}).setdefault(version, {}))
            continue
        for word in words:
            name, _, size = word.partition("=")
            assert name not in symbols, name
            symbols[name] = int(size or 0)
    return libraries


def version_script(versions):
    """Symbols are of the version that they stand below."""
    text = ""
    for version, symbols in versions.items():
        text += f"{version} {{\n"
        text += "".join(f"  {name};\n" for name in sorted(symbols))
        text += "};\n"
    return text


def main(symbols_path, arch, out_dir):
    text = pathlib.Path(symbols_path).read_text(encoding="utf-8")
    for library, versions in read_symbols(text, arch).items():
        out = pathlib.Path(out_dir) / library
        source = '.section .note.GNU-stack,"",@progbits\n'
        for section, form in ((".text", _FUNCTION), (".bss", _OBJECT)):
            source += section + "\n" + "".join(
                form.format(name=name, size=size)
                for symbols in versions.values()
                for name, size in symbols.items()
                if (size > 0) == (form is _OBJECT))
        script = out.with_suffix(".lds")
        script.write_text(version_script(versions), encoding="utf-8")
        subprocess.run(
            [f"{arch}-linux-gnu-gcc", "-shared", "-nostdlib",
             f"-Wl,-soname,{library}", f"-Wl,--version-script,{script}",
             "-x", "assembler", "-", "-o", out],
            input=source.encode(), check=True)
        script.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
