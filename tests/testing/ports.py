"""Ports of the loopback device for servers that tests start."""

import socket

_held = []


def free_port():
    """A port that no other socket is given while this process runs. A server
    may listen on it if it sets SO_REUSEADDR, as the daemon and torch do."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    return held.getsockname()[1]
