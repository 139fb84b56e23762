"""Server: HTTP to one user of this machine, over loopback or a Unix socket.

Checked in this order: the peer is this user or root (403), the Host is
loopback's (421), the method is GET (405), no foreign page asks (Origin,
Sec-Fetch-Site: 403), and, for everything but the page itself, which holds no
data, the token (401). See docs/web.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http
import http.server
import ipaddress
import json
import os
import re
import select
import socket
import socketserver
import struct
import sys
import threading
import traceback
import urllib.parse
from typing import Any, Dict, List, Optional, Tuple, Type

from .. import errors
from ._api import Api, NoSuchPage

MAX_CONNECTIONS = 64
# How long a peer may send nothing, between requests or within one, or take
# for a piece of an answer.
_IDLE_SECONDS = 20.0
_PIECE_BYTES = 64 << 10
_MAX_REFUSALS = 8
_REFUSAL_SECONDS = 1.0
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
# States of sockets in /proc/net/tcp without an owner: one that waits in
# TIME_WAIT, one that listens.
_NOT_CONNECTED = ("06", "0A")
_NUM_LOOKS = 3
# Before an IPv4 address in the table of IPv6.
_MAPPED = "0000000000000000FFFF0000"

_STATUS: Tuple[Tuple[Type[errors.Error], int], ...] = (
    (errors.DaemonGone, 503),
    (errors.DaemonDraining, 503),
    (errors.InvalidArgument, 400),
    (errors.OutOfRange, 400),
    (errors.NotFound, 404),
    (errors.PermissionDenied, 403),
    (errors.ResourceExhausted, 507),
    (errors.DeadlineExceeded, 504),
    (errors.FailedPrecondition, 409),
    (errors.AlreadyExists, 409),
    (errors.Unimplemented, 501),
)


class Page:
    """The one file, and the policy that lets a browser run its script alone."""

    def __init__(self) -> None:
        path = os.path.join(os.path.dirname(__file__), "page.html")
        with open(path, "rb") as file:
            self.content = file.read()
        policy = [
            "default-src 'none'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            f"script-src {self._hash(b'script')}",
            f"style-src {self._hash(b'style')}",
        ]
        self.policy = "; ".join(policy)

    def _hash(self, element: bytes) -> str:
        found = re.findall(
            b"<%s>(.*?)</%s>" % (element, element), self.content, re.DOTALL
        )
        digests = [base64.b64encode(hashlib.sha256(f).digest()) for f in found]
        return " ".join(f"'sha256-{digest.decode()}'" for digest in digests)


# -- Peers --------------------------------------------------------------------


def _table_key(address: Tuple[Any, ...]) -> str:
    """Returns an address as the tables of /proc/net spell it."""
    packed = ipaddress.ip_address(address[0]).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def tcp_peer_uid(
    own: Tuple[Any, ...], peer: Tuple[Any, ...]
) -> Optional[int]:
    """Returns the user who owns the other end of a loopback connection, also
    of one that is half closed; None if the kernel tells nobody of it.

    Raises OSError if this process may not read the kernel's tables.
    """
    keys = [_table_key(peer), _table_key(own)]
    # A table that changes while it is read may lack an entry.
    for _ in range(_NUM_LOOKS):
        if ":" in peer[0]:
            uid = _owner("/proc/net/tcp6", keys)
        else:
            uid = _owner("/proc/net/tcp", keys)
            # A socket of IPv6 that is connected to an IPv4 address.
            if uid is None and os.path.exists("/proc/net/tcp6"):
                uid = _owner("/proc/net/tcp6", [_MAPPED + key for key in keys])
        if uid is not None:
            return uid
    return None


def _owner(table: str, keys: List[str]) -> Optional[int]:
    """Returns the owner of the socket with these ends."""
    try:
        with open(table, encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[1:3] == keys and words[3] not in _NOT_CONNECTED:
                    # A socket that its owner has closed has none: its inode is
                    # 0, and its user root.
                    return int(words[7]) if words[9] != "0" else None
    except (ValueError, IndexError):
        pass
    return None


def _unix_peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    uid: int = struct.unpack("3i", credentials)[1]
    return uid


# -- Requests -----------------------------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    server: "Server"

    def do_GET(self) -> None:
        if not self._is_admitted():
            return
        try:
            url = urllib.parse.urlsplit(self.path)
        except ValueError as error:
            self.close_connection = True
            self._fail(400, "InvalidArgument", f"the target is no URL: {error}")
            return
        if url.path == "/":
            page = self.server.page
            self._send(200, page.content, "text/html; charset=utf-8")
            return
        if not self._has_token():
            self.close_connection = True
            self._fail(
                401,
                "Unauthenticated",
                "the token is missing or wrong: open the address that the "
                "command printed",
            )
            return
        name = url.path[len("/api/") :]
        if not url.path.startswith("/api/"):
            self._fail(404, "NotFound", "there is no such page")
            return
        query = dict(
            urllib.parse.parse_qsl(url.query, keep_blank_values=True)
        )
        try:
            answer = self.server.api.answer(name, query, self._is_cancelled)
        except NoSuchPage:
            self._fail(404, "NotFound", "there is no such page")
        except errors.Error as error:
            self._fail(_status_of(error), type(error).__name__, str(error))
        except Exception:
            # Seen where the command was started.
            traceback.print_exc()
            self._fail(
                500,
                "Internal",
                "this is a bug of the page: the terminal in which it was "
                "started shows where",
            )
        else:
            self._send_json(200, answer)

    def _refuse_method(self) -> None:
        if not self._is_host_own():
            return
        # The body, if there is one, is not read.
        self.close_connection = True
        self._fail(405, "Unimplemented", "the page only asks: GET")

    do_HEAD = do_POST = do_PUT = do_DELETE = _refuse_method
    do_OPTIONS = do_PATCH = do_TRACE = do_CONNECT = _refuse_method

    # -- Admission ------------------------------------------------------------

    def _is_host_own(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        name = re.sub(r":[0-9]{1,5}$", "", hosts[0]) if hosts else ""
        if len(hosts) == 1 and name in _LOOPBACK_HOSTS:
            return True
        self.close_connection = True
        self._fail(
            421,
            "PermissionDenied",
            "the page is served to this machine alone, as 127.0.0.1, localhost "
            "or [::1]",
        )
        return False

    def _is_admitted(self) -> bool:
        if not self._is_host_own():
            return False
        own = f"http://{self.headers['Host']}"
        origins = self.headers.get_all("Origin") or []
        site = self.headers.get("Sec-Fetch-Site", "none")
        is_api = self.path != "/"
        if any(origin != own for origin in origins) or (
            is_api and site not in ("same-origin", "none")
        ):
            self.close_connection = True
            self._fail(
                403, "PermissionDenied", "another page may not ask this one"
            )
            return False
        return True

    def _has_token(self) -> bool:
        given = self.headers.get("Authorization", "")
        wanted = f"Bearer {self.server.token}"
        return hmac.compare_digest(
            given.encode("utf-8", "surrogateescape"), wanted.encode()
        )

    def _is_cancelled(self) -> bool:
        """True if the browser has closed the connection."""
        try:
            ready = select.select([self.connection], [], [], 0)[0]
            return bool(ready) and not self.connection.recv(
                1, socket.MSG_PEEK
            )
        except OSError:
            return True

    # -- Answers --------------------------------------------------------------

    def _fail(self, status: int, code: str, message: str) -> None:
        self._send_json(status, {"error": {"code": code, "message": message}})

    def _send_json(self, status: int, answer: Dict[str, Any]) -> None:
        self._send(
            status,
            json.dumps(answer, separators=(",", ":")).encode(),
            "application/json",
        )

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if status == 405:
            self.send_header("Allow", "GET")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            # The timeout is that of one write, however long the content.
            for begin in range(0, len(content), _PIECE_BYTES):
                self.wfile.write(content[begin : begin + _PIECE_BYTES])

    def end_headers(self) -> None:
        # Also of errors that the base class answers.
        for name, value in (
            ("Content-Security-Policy", self.server.page.policy),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        return "datasetd"

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: a request may hold names."""


def _status_of(error: errors.Error) -> int:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return 500


# -- Servers ------------------------------------------------------------------


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves at `address`: (host, port) of loopback, or a Unix socket's path.

    serve_forever() blocks; shutdown() ends it from another thread.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: Any, api: Api, token: str) -> None:
        """Raises OSError if the address cannot be had."""
        self.page = Page()
        self.api = api
        self.token = token
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._refusals = threading.BoundedSemaphore(_MAX_REFUSALS)
        if isinstance(address, str):
            self.address_family = socket.AF_UNIX
        elif ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        if self.address_family != socket.AF_UNIX:
            # On Linux a socket that listens keeps its port nevertheless.
            self.allow_reuse_address = True
            super().server_bind()
            return
        before = os.umask(0o177)
        try:
            super().server_bind()
        finally:
            os.umask(before)

    def is_admitted(self, connection: socket.socket) -> bool:
        """True if the other end is this user's or root's."""
        if self.address_family == socket.AF_UNIX:
            uid: Optional[int] = _unix_peer_uid(connection)
        else:
            own, peer = connection.getsockname(), connection.getpeername()
            try:
                uid = tcp_peer_uid(own, peer)
            except OSError:
                return True  # nothing is told here; the token decides
        return uid in (0, os.getuid())

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.is_admitted(request):
            self._refuse(request, 403, "this page is another user's")
            return
        if not self._places.acquire(blocking=False):
            self._refuse(request, 503, "too many connections")
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(
        self, request: Any, client_address: Any
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that closes a connection is no error.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def _refuse(
        self, connection: socket.socket, status: int, text: str
    ) -> None:
        """Answers in the background, if there are not too many already, and
        closes the connection."""
        if not self._refusals.acquire(blocking=False):
            connection.close()
            return
        threading.Thread(
            target=_answer_refusal,
            args=(connection, status, text, self._refusals),
            daemon=True,
        ).start()


def _answer_refusal(
    connection: socket.socket,
    status: int,
    text: str,
    place: threading.BoundedSemaphore,
) -> None:
    phrase = http.HTTPStatus(status).phrase
    content = json.dumps({"error": {"code": phrase, "message": text}})
    answer = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n{content}"
    )
    try:
        with connection:
            connection.settimeout(_REFUSAL_SECONDS)
            connection.sendall(answer.encode())
            connection.shutdown(socket.SHUT_WR)
            # A close with unread bytes would reset the connection, and the
            # answer be lost.
            connection.recv(65536)
    except OSError:
        pass
    finally:
        place.release()
