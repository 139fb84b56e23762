"""Files of the package import what client/python/rooms.bzl allows them."""

import ast
import pathlib

import datasetd
import pytest

_PACKAGE = pathlib.Path(datasetd.__file__).parent
_FILES = sorted(_PACKAGE.rglob("*.py"))


def rooms_bzl():
    """The names of rooms.bzl, which is Python as well."""
    names = {}
    exec((_PACKAGE.parent / "rooms.bzl").read_text(), names)
    return names


_ROOMS = rooms_bzl()["ROOMS"]
_GROUND = {pathlib.Path(path).stem for path in rooms_bzl()["GROUND"]}


def modules_of(node, here):
    """Returns the modules that an import loads, as paths from the root."""
    if isinstance(node, ast.Import):
        names = [alias.name.split(".") for alias in node.names]
        return [tuple(n[1:]) for n in names if n[0] == "datasetd"]
    if not node.level:
        name = (node.module or "").split(".")
        if name[0] != "datasetd":
            return []
        base = tuple(name[1:])
    else:
        base = here[: len(here) - node.level]
        base += tuple(node.module.split(".")) if node.module else ()
    found = []
    for alias in node.names:
        path = _PACKAGE.joinpath(*base, alias.name)
        is_module = path.is_dir() or path.with_suffix(".py").is_file()
        found.append((*base, alias.name) if is_module else base)
    return found


def imports_of(file):
    """The modules that a file imports, also for annotations alone."""
    here = file.relative_to(_PACKAGE).with_suffix("").parts
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found += modules_of(node, here)
    return found


def room_of(file):
    parts = file.relative_to(_PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def test_every_file_has_its_room():
    root = {path.stem for path in _FILES if not room_of(path)}
    assert root == _GROUND | {"__init__", "__main__"}
    folders = {room_of(path) for path in _FILES if room_of(path)}
    assert folders == set(_ROOMS)


@pytest.mark.parametrize("room", sorted(_ROOMS))
def test_a_room_imports_what_it_says(room):
    wrong, used = [], set()
    for file in _FILES:
        if room_of(file) != room:
            continue
        for module in imports_of(file):
            other = module[0] if module else "datasetd"
            if other == room or other in _GROUND:
                continue
            used.add(other)
            if other not in _ROOMS[room]:
                wrong.append((file.name, ".".join(module) or "datasetd"))
    assert wrong == []
    assert used == set(_ROOMS[room])


def test_the_ground_knows_no_room():
    for name in _GROUND:
        found = {m[0] for m in imports_of(_PACKAGE / f"{name}.py") if m}
        assert found <= _GROUND, name


def test_there_is_no_circle_of_files():
    imported = {}
    for file in _FILES:
        name = file.relative_to(_PACKAGE).with_suffix("").parts
        if name[-1] == "__init__":
            name = name[:-1]
        imported[name] = {m for m in imports_of(file) if m != name}
    left = {name: set(others) for name, others in imported.items()}
    while True:
        free = {name for name, others in left.items() if not others & set(left)}
        if not free:
            break
        for name in free:
            del left[name]
    assert left == {}


@pytest.mark.parametrize("name", ["BadSample", "DrawnOp", "Field"])
def test_pickles_of_descriptions_stay_readable(name):
    """They name the module, which must not move."""
    kind = getattr(datasetd, name)
    assert (kind.__module__, kind.__qualname__) == (
        "datasetd._descriptions",
        name,
    )
