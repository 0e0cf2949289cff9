"""One HTTP exchange, guarded and bounded: libcurl's multi interface on the running event loop.

Invariants: a transfer connects to the address and port it was given or to nothing; it ends by its deadline; it holds no more
than its limits; whatever a server does, `fetch` returns a Response that says what happened. Redirects are returned, never
followed. The body is what the server sent: decoding is net/decode.py's. The environment's proxies and netrc play no part.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass, field
from typing import Any, Final

import certifi
import pycurl  # type: ignore[import-untyped]

from shepherd.config import Fetch as Limits
from shepherd.formats.tables import Reason
from shepherd.net.guard import Guard

MAX_HEADERS: Final = 100
ERROR_BODY_BYTES: Final = 16 * 1024  # read of an answer that is not stored: enough to keep most connections usable
SLOW_AFTER_S: Final = 10
ACCEPT: Final = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ENCODINGS: Final = "Accept-Encoding: gzip, br, zstd"

_DEADLINE_SLACK_S: Final = 0.05  # curl counts in whole milliseconds from a moment of its own
# Codes without a name in pycurl: 8 weird server reply, 92 HTTP/2 stream, 100 too large.
_MALFORMED: Final = frozenset(
    (pycurl.E_UNSUPPORTED_PROTOCOL, 8, pycurl.E_HTTP2, pycurl.E_PARTIAL_FILE, pycurl.E_BAD_CONTENT_ENCODING, 92, 100)
)


@dataclass(frozen=True, slots=True)
class Request:
    url: str  # normalised, so ASCII
    address: str  # where to connect; the guard has judged it, and does so again
    port: int  # where to connect, whatever the URL says
    timeout_s: float
    body_bytes: int
    etag: str = ""
    modified: str = ""
    reuse: bool = False  # the connection may be an old one, and may be kept


@dataclass(frozen=True, slots=True)
class Response:
    """What came of a request. With a reason but NONE there is no answer to use, whatever else is filled in."""

    reason: Reason
    detail: str  # libcurl's words on a failure
    status: int
    status_line: bytes
    headers: bytes  # as received, without the status line
    body: bytes  # as received, with its content coding
    truncated: bool  # the body was longer than its limit and is cut there
    contacted: bool  # the server has seen at least an attempt to connect
    stale: bool  # a kept connection died before the answer: a new one may do better
    address: str
    wire_bytes: int
    total_s: float
    connect_s: float
    first_byte_s: float
    _fields: dict[str, list[str]] = field(repr=False, default_factory=dict)

    def header(self, name: str) -> str:
        """The first value of a header; "" if it is absent."""
        return self._fields.get(name.lower(), [""])[0]

    def all(self, name: str) -> list[str]:
        """All values of a header."""
        return self._fields.get(name.lower(), [])

    @property
    def encoding(self) -> str:
        """The content coding, "" for none."""
        coding = ", ".join(self.all("content-encoding")).strip().lower()
        return "" if coding == "identity" else coding


class _Transfer:
    """What a transfer has received, and the callbacks through which libcurl hands it over."""

    def __init__(self, request: Request, guard: Guard, header_bytes: int, done: asyncio.Future[tuple[int, str]]) -> None:
        self.request, self.done = request, done
        self.reason = Reason.NONE  # why we stopped it ourselves
        self.truncated = False
        self.opened = False
        self._guard = guard
        self._header_room = header_bytes
        self._status_line = b""
        self._headers: list[bytes] = []
        self._count = 0
        self._requests = 0
        self._head_ended = True
        self._body: list[bytes] = []
        self._room = request.body_bytes

    def on_open(self, purpose: int, address: Any) -> socket.socket | int:
        """Judge the socket once more: the last moment before the world sees a packet."""
        host, port = str(address.addr[0]), address.addr[1]
        pinned = ipaddress.ip_address(host) == ipaddress.ip_address(self.request.address) and port == self.request.port
        if not pinned or self._guard.refuses(host) is not None:
            self.reason = Reason.GUARD
            return int(pycurl.SOCKET_BAD)
        try:
            opened = socket.socket(address.family, address.socktype, address.protocol)
        except OSError:
            return int(pycurl.SOCKET_BAD)
        self.opened = True
        self.done.get_loop().call_soon(opened.close)  # pycurl works on a duplicate of it
        return opened

    def on_request(self, *_addresses: object) -> int:
        """libcurl would send again when a kept connection turns out dead, but the server may have seen the first request."""
        self._requests += 1
        return int(pycurl.PREREQFUNC_OK if self._requests == 1 else pycurl.PREREQFUNC_ABORT)

    def on_header(self, line: bytes) -> int | None:
        self._header_room -= len(line)
        if self._head_ended and line.startswith(b"HTTP/"):  # also after an interim answer (1xx)
            self._status_line, self._headers, self._head_ended = line.rstrip(b"\r\n"), [], False
        elif not line.strip(b"\r\n"):
            self._head_ended = True
            if not 200 <= self.status < 300:
                self._room = min(self._room, ERROR_BODY_BYTES)
        else:
            self._count += 1
            if not self._head_ended:  # else a trailer, which counts but is not kept
                self._headers.append(line)
        if self._header_room < 0 or self._count > MAX_HEADERS:
            self.reason = Reason.MALFORMED
            return 0
        return None

    def on_body(self, data: bytes) -> int | None:
        if len(data) > self._room:
            self._body.append(data[: self._room])
            self._room, self.truncated = 0, True
            return 0
        self._room -= len(data)
        self._body.append(data)
        return None

    @property
    def status(self) -> int:
        words = self._status_line.split(None, 2)
        return int(words[1]) if len(words) > 1 and len(words[1]) == 3 and words[1].isdigit() else 0

    def response(self, curl: Any, code: int, detail: str) -> Response:
        reason = self._judge(curl, code)
        return Response(
            reason=reason,
            detail=detail,
            status=self.status,
            status_line=self._status_line,
            headers=b"".join(self._headers),
            body=b"".join(self._body) if reason == Reason.NONE else b"",
            truncated=self.truncated,
            contacted=self.opened or bool(self._status_line) or (self.request.reuse and reason != Reason.GUARD),
            stale=self._requests > 1,
            address=curl.getinfo(pycurl.PRIMARY_IP) or self.request.address,
            wire_bytes=curl.getinfo(pycurl.HEADER_SIZE) + curl.getinfo(pycurl.SIZE_DOWNLOAD_T),
            total_s=curl.getinfo(pycurl.TOTAL_TIME),
            connect_s=curl.getinfo(pycurl.CONNECT_TIME),
            first_byte_s=curl.getinfo(pycurl.STARTTRANSFER_TIME),
            _fields=_parse(self._headers),
        )

    def _judge(self, curl: Any, code: int) -> Reason:
        if self.reason != Reason.NONE:
            return self.reason
        if code == pycurl.E_OPERATION_TIMEDOUT:
            late = curl.getinfo(pycurl.TOTAL_TIME) >= self.request.timeout_s - _DEADLINE_SLACK_S
            return Reason.DEADLINE if late else Reason.TOO_SLOW
        if code == pycurl.E_OK or self.truncated:
            # libcurl takes a connection that closes inside the headers for a success.
            return Reason.NONE if self._head_ended and self.status >= 200 else Reason.MALFORMED
        if code == pycurl.E_RECV_ERROR and self._status_line and not curl.getinfo(pycurl.OS_ERRNO):
            return Reason.MALFORMED  # a bad chunk, not a broken connection
        return Reason.MALFORMED if code in _MALFORMED else Reason.CONNECTION


def _parse(headers: list[bytes]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in headers:
        name, colon, value = line.partition(b":")
        if colon:
            fields.setdefault(name.decode("latin-1").strip().lower(), []).append(value.decode("latin-1").strip())
    return fields


class Fetcher:
    """At most `limits.in_flight` transfers at a time, on the event loop that runs when it is made."""

    def __init__(self, guard: Guard, agent: str, limits: Limits) -> None:
        self._guard, self._agent, self._limits = guard, agent, limits
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(limits.in_flight)
        self._active: dict[Any, _Transfer] = {}
        self._idle: list[Any] = []
        self._watched: dict[int, int] = {}
        self._timer: asyncio.Handle | None = None
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_NOTHING)
        self._multi.setopt(pycurl.M_MAXCONNECTS, limits.in_flight)

    async def fetch(self, request: Request) -> Response:
        async with self._slots:
            curl = self._idle.pop() if self._idle else pycurl.Curl()
            transfer = _Transfer(request, self._guard, self._limits.header_bytes, self._loop.create_future())
            try:
                self._prepare(curl, transfer)
                self._active[curl] = transfer
                self._multi.add_handle(curl)
                code, detail = await transfer.done
                return transfer.response(curl, code, detail)
            finally:
                if self._active.pop(curl, None) is not None:
                    self._multi.remove_handle(curl)
                curl.reset()
                self._idle.append(curl)

    def close(self) -> None:
        """Drop every transfer and every connection. Whoever still waits for a transfer must be cancelled."""
        for curl in self._active:
            self._multi.remove_handle(curl)
        self._active.clear()
        self._multi.close()
        self._set_timer(-1)
        for descriptor in list(self._watched):
            self._watch(pycurl.POLL_REMOVE, descriptor)

    def _prepare(self, curl: Any, transfer: _Transfer) -> None:
        request, limits = transfer.request, self._limits
        bracketed = f"[{request.address}]" if ":" in request.address else request.address
        headers = [ACCEPT, ENCODINGS]
        headers += [f"If-None-Match: {request.etag}"] if _sendable(request.etag) else []
        headers += [f"If-Modified-Since: {request.modified}"] if _sendable(request.modified) else []
        for option, value in (
            (pycurl.URL, request.url),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS),
            (pycurl.CONNECT_TO, [f"::{bracketed}:{request.port}"]),
            (pycurl.OPENSOCKETFUNCTION, transfer.on_open),
            (pycurl.PROXY, ""),
            (pycurl.NOPROXY, "*"),
            (pycurl.NETRC, pycurl.NETRC_IGNORED),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.HTTP_CONTENT_DECODING, 0),
            (pycurl.USERAGENT, self._agent),
            (pycurl.HTTPHEADER, headers),
            (pycurl.HEADERFUNCTION, transfer.on_header),
            (pycurl.WRITEFUNCTION, transfer.on_body),
            (pycurl.NOSIGNAL, 1),
            (pycurl.TIMEOUT_MS, max(1, int(request.timeout_s * 1000))),
            (pycurl.CONNECTTIMEOUT_MS, max(1, int(request.timeout_s * 1000))),
            (pycurl.LOW_SPEED_LIMIT, limits.min_bytes_per_s),
            (pycurl.LOW_SPEED_TIME, SLOW_AFTER_S),
            (pycurl.SSL_VERIFYPEER, int(limits.verify_tls)),
            (pycurl.SSL_VERIFYHOST, 2 * int(limits.verify_tls)),
            (pycurl.CAINFO, certifi.where()),
            (pycurl.PREREQFUNCTION, transfer.on_request),
            (pycurl.FRESH_CONNECT, int(not request.reuse)),
            (pycurl.FORBID_REUSE, int(not request.reuse)),
        ):
            curl.setopt(option, value)

    def _watch(self, what: int, descriptor: int, *_: object) -> None:
        """libcurl wants to hear of these events on a socket."""
        wanted = 0 if what == pycurl.POLL_REMOVE else what
        had = self._watched.pop(descriptor, 0)
        if wanted:
            self._watched[descriptor] = wanted
        if wanted & ~had & pycurl.POLL_IN:
            self._loop.add_reader(descriptor, self._act, descriptor, pycurl.CSELECT_IN)
        elif had & ~wanted & pycurl.POLL_IN:
            self._loop.remove_reader(descriptor)
        if wanted & ~had & pycurl.POLL_OUT:
            self._loop.add_writer(descriptor, self._act, descriptor, pycurl.CSELECT_OUT)
        elif had & ~wanted & pycurl.POLL_OUT:
            self._loop.remove_writer(descriptor)

    def _set_timer(self, timeout_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout_ms >= 0:
            self._timer = self._loop.call_later(timeout_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, descriptor: int, events: int) -> None:
        _, running = self._multi.socket_action(descriptor, events)
        if running >= len(self._active):
            return
        left = 1
        while left:
            left, good, bad = self._multi.info_read()
            for curl in good:
                self._finish(curl, pycurl.E_OK, "")
            for curl, code, detail in bad:
                self._finish(curl, code, detail)

    def _finish(self, curl: Any, code: int, detail: str) -> None:
        transfer = self._active.pop(curl)
        self._multi.remove_handle(curl)
        if not transfer.done.done():
            transfer.done.set_result((code, detail))


def _sendable(value: str) -> bool:
    """Whether a validator that a server gave us once can be sent back: one line of printable ASCII."""
    return bool(value) and value.isascii() and value.isprintable()
