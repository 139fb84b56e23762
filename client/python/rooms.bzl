"""The rooms of the Python package: its folders, and what each may import."""

# A room to those that it imports. All import the files at the package's root
# that GROUND names, which import no room. tests/layers.py checks the floors, and
# tests/client/python/rooms_test.py that files import nothing else.
ROOMS = {
    "_batches": ["_connection"],
    "_client": [
        "_batches",
        "_connection",
        "_datasets",
        "_feed",
        "_order",
        "_push",
        "_ranks",
        "sources",
        "transforms",
    ],
    "_commands": [
        "_client",
        "_daemon",
        "_datasets",
        "_loader",
        "_order",
        "web",
    ],
    "_connection": [],
    "_daemon": [
        "_client",
        "_connection",
        "_datasets",
        "_feed",
        "_push",
        "_ranks",
        "transforms",
    ],
    "_datasets": [
        "_batches",
        "_connection",
        "_order",
        "_ranks",
        "sources",
    ],
    "_feed": [
        "_batches",
        "_connection",
        "_datasets",
        "_order",
        "transforms",
    ],
    "_loader": [
        "_batches",
        "_datasets",
        "_feed",
        "_order",
        "_ranks",
        "transforms",
    ],
    "_order": ["_ranks"],
    "_push": [
        "_connection",
        "_datasets",
        "sources",
    ],
    "_ranks": [],
    "sources": [],
    "transforms": [],
    "web": [
        "_client",
        "_connection",
        "_datasets",
        "_order",
    ],
}

GROUND = [
    "datasetd/_arguments.py",
    "datasetd/_attributes.py",
    "datasetd/_descriptions.py",
    "datasetd/_version.py",
    "datasetd/_warnings.py",
    "datasetd/errors.py",
]

TOP = [
    "datasetd/__init__.py",
    "datasetd/__main__.py",
]

def python_folders(folder, others):
    """`folders` of an archive with the package in `folder`, and with `others`."""
    folders = dict(others)
    folders["//client/python:root_files"] = folder
    for room in ROOMS:
        folders["//client/python:%s_files" % room] = folder + "/" + room
    return folders
