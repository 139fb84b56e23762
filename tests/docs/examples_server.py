"""Runs programs, one after another, each as `python -c` does but in a child of a
process that has imported torch, which takes longer than most of them. Reads a
request of JSON from each line of stdin, and writes the exit code of each."""

import atexit
import json
import os
import sys
import threading
import traceback
import types

import torch  # noqa: F401


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


def _run(program):
    """Returns the exit code, when all that a program's end does is done but for
    the end of torch's modules, which takes half a second."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    code = 0
    try:
        exec(compile(program, "<string>", "exec"), vars(main))
    except SystemExit as end:
        code = int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    vars(main).clear()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        request = json.loads(line)
        _enter(request)
        os._exit(_run(request["program"]))
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
