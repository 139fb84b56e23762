#!/usr/bin/python3
"""Asks Bazel whether the parts depend on each other only as CONTRIBUTING.md says.

Writes a line of JSON for each rule to FILE, for count_cases.py.

    tests/layers.py FILE
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

# The floors of the tree, top down: a room knows none above its own. Rooms of one
# floor may know each other, without a circle.
FLOORS = [
    ["client/python:_commands", "client/python:web"],
    ["client/python:_daemon"],
    ["client/python:_client"],
    ["client/python:_push"],
    ["client/python:_loader"],
    ["client/python:_feed"],
    ["client/python:_datasets"],
    ["client/python:_order"],
    ["client/python:_batches", "client/python:_ranks"],
    ["client/python:_connection", "client/python:sources",
     "client/python:transforms"],
    ["client/python:ground"],
    ["client/ctl", "client/examples"],
    ["client/c_api"],
    ["client:client"],
    ["client/feed"],
    ["client/connection", "client/device"],
    ["server:main"],
    ["server/metrics"],
    ["server/service"],
    ["server/attach", "server/config", "server/devices", "server/log",
     "server/rpc", "server/systemd"],
    ["server/manifest"],
    ["server/feed"],
    ["server/registry"],
    ["server/load"],
    ["server/cache", "server/order", "server/pipeline", "server/readers"],
    ["server/dataset"],
    ["server/files"],
    ["cuda:backends"],
    ["cuda/device", "cuda/host"],
    ["cuda/backend"],
    ["cuda/kernels/host"],
    ["cuda/kernels/chain", "cuda/kernels/moves"],
    ["cuda/kernels/ops"],
    ["cuda/kernels/program"],
    ["cuda/kernels/math"],
    ["proto"],
    ["base"],
]
# Rooms whose packages hold the floors below, too: only these targets are above them.
_WITH_TOP_FLOORS = {
    "client:client": "client:client",
    "cuda:backends": "cuda:backends",
    "server:main": "server:(main|flags|datasetd)",
}
# A name, rooms, and what nothing below them may be.
RULES = [
    ("base knows neither gRPC, protobuf nor spdlog", ["base"],
     "//third_party/(grpc|protobuf|spdlog)"),
    ("the arithmetic that kernels share knows no library",
     ["base:checked_math"], "//third_party"),
    ("cuda knows neither gRPC nor protobuf", ["cuda"],
     "//third_party/(grpc|protobuf|spdlog)"),
    ("the client knows of cuda the table of the driver's functions only",
     ["client"],
     "//cuda(:|/(backend|host|kernels)|/device:(device|cuda_|augment))"),
    ("what is below the services knows neither gRPC nor spdlog",
     ["server/files", "server/dataset", "server/pipeline", "server/cache",
      "server/load", "server/registry", "server/order", "server/feed"],
     "//third_party/(grpc|spdlog)"),
    ("readers know no gRPC", ["server/readers"], "//third_party/grpc"),
    ("server/attach knows no gRPC", ["server/attach"], "//third_party/grpc"),
]
# What clang has read before it reads a source, in a build that ships nothing: a
# source must include what it uses all the same.
_PRECOMPILED = "//proto:headers"


def read_graph():
    """The targets that each target depends on."""
    output = subprocess.run(
        ["bazel", "query", "--ui_event_filters=-info,-debug", "--notool_deps",
         "--noimplicit_deps", "--output=graph", "--nograph:factored",
         "--graph:node_limit=-1", "--order_output=no",
         "deps(//base/... + //proto/... + //cuda/... + //server/... + "
         "//client/...)"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    graph = collections.defaultdict(set)
    for line in output.splitlines():
        names = re.findall(r'"([^"]+)"', line)
        if names:
            graph[names[0]].update(names[1:])
    return graph


def below(graph, rooms):
    """The targets of rooms, each a package with those under it or a target, and
    all that they depend on."""
    start = [target for target in graph for room in rooms
             if re.match(f"//{room}" + ("$" if ":" in room else "[/:]"),
                         target)]
    assert start, f"there is nothing in {rooms}"
    found = set(start)
    while start:
        for target in graph[start.pop()] - found - {_PRECOMPILED}:
            found.add(target)
            start.append(target)
    return found


def floor_rules():
    """Nothing below a floor is above it, and the server and the client know
    nothing of each other."""
    above = ["tests", "deploy"]
    for floor in FLOORS:
        others = {"server": ["client"], "client": ["server"]}.get(
            re.match(r"\w+", floor[0])[0], [])
        yield (f"{', '.join(floor)}: nothing above it", floor,
               f"//({'|'.join(above + others)})([/:]|$)")
        above += [_WITH_TOP_FLOORS.get(room, room) for room in floor]


def main():
    graph = read_graph()
    results = []
    for name, rooms, forbidden in [*floor_rules(), *RULES]:
        found = sorted(target for target in below(graph, rooms)
                       if re.match(forbidden, target))
        print("\n".join([f"BROKEN  {name}:", *found]) if found
              else f"ok      {name}")
        results.append(
            {"case": name, "result": "failed" if found else "passed"})
    pathlib.Path(sys.argv[1]).write_text(
        "".join(json.dumps(result) + "\n" for result in results))


if __name__ == "__main__":
    main()
