"""The command `python -m datasetd web`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import socket
import stat
import sys
import threading
from typing import Any, Iterator

DESCRIPTION = (
    "Serve a page for this user: which jobs wait for data, samples before and "
    "after their transforms, memory, loads and health. The page cannot change "
    "anything. Prints the page's address, which contains a token, and runs "
    "until Ctrl-C."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        choices=("127.0.0.1", "::1"),
        default="127.0.0.1",
        help="address to listen on, always loopback; to connect from another "
        "machine use ssh -L PORT:127.0.0.1:PORT",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        help="port to listen on; 0, the default: any free port",
    )
    parser.add_argument(
        "--unix_socket",
        metavar="PATH",
        help="listen on a Unix socket instead; ssh -L PORT:PATH forwards it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit code. Raises OSError if
    the address cannot be had, LibraryNotFound."""
    # Not needed by the other commands.
    from .._connection import library
    from ._api import Api
    from ._server import Server
    from ._watch import Watch

    library.load()
    token = secrets.token_urlsafe(32)
    path = arguments.unix_socket
    if path is not None:
        _remove_dead_socket(path)
        address: Any = path
    else:
        if not 0 <= arguments.port <= 65535:
            raise OSError(f"--port {arguments.port}: expected 0 to 65535")
        address = (arguments.host, arguments.port)
    with contextlib.ExitStack() as stack:
        watch = Watch(getattr(arguments, "address", None))
        stack.callback(watch.close)
        try:
            server = stack.enter_context(Server(address, Api(watch), token))
        except OSError as error:
            raise OSError(_problem_of(arguments, error)) from None
        if path is not None:
            stack.callback(_remove, path)
            where = "http://localhost"
        else:
            host, port = server.server_address[:2]
            host = f"[{host!s}]" if ":" in str(host) else str(host)
            where = f"http://{host}:{port}"
        stack.enter_context(_ended_by_signals(server))
        _announce(arguments, f"{where}/#token={token}", path)
        server.serve_forever(poll_interval=0.2)
    return 0


def _problem_of(arguments: argparse.Namespace, error: OSError) -> str:
    """Returns why the address cannot be had, and what to do."""
    reason = error.strerror or str(error)
    if arguments.unix_socket is not None:
        return (
            f"--unix_socket {arguments.unix_socket}: {reason}; choose a path "
            "that does not exist, in a directory of yours"
        )
    return (
        f"--port {arguments.port} of {arguments.host}: {reason}; choose "
        "another port, or omit --port for any free one"
    )


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_dead_socket(path: str) -> None:
    """Removes a socket that nobody listens on; leaves anything else alone, so
    that bind() reports it."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except OSError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError:
            pass


def _announce(arguments: argparse.Namespace, url: str, path: Any) -> None:
    if getattr(arguments, "json", False):
        text = json.dumps({"url": url, "unix_socket": path})
    else:
        text = f"datasetd: the page is at {url}"
        if path is not None:
            text += (
                f"\n  on the socket {path}: forward a port to it, and add the "
                "port to the address"
            )
    print(text, flush=True)


@contextlib.contextmanager
def _ended_by_signals(server: Any) -> Iterator[None]:
    def end(*_: Any) -> None:
        # shutdown() waits for serve_forever, which this thread runs.
        threading.Thread(target=server.shutdown).start()

    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.stdout.flush()
