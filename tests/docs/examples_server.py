"""Runs programs, one after another, each as `python -c` does but in a child of a
process that has imported torch, which takes longer than most of them. Reads a
request of JSON from each line of stdin, and writes the exit code of each."""

import json
import os
import sys
import types

import torch  # noqa: F401


def _serve():
    """Returns in the children, each with its request."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def _enter(request):
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    for descriptor, path in enumerate([os.devnull, *request["outputs"]]):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    sys.argv = ["-c", *request["arguments"]]
    sys.path[0] = ""


_request = _serve()
_enter(_request)
# Ends as a program does: by the end of this one.
_main = sys.modules["__main__"] = types.ModuleType("__main__")
exec(compile(_request["program"], "<string>", "exec"), vars(_main))
