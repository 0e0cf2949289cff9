"""One libcurl handle and its current exchange: what libcurl hands over, what is kept of it, and the response that results.

A handle is made once, with everything that never changes, and used for one exchange after the other; `begin` sets the rest and
forgets the last one. Invariants: the socket that opens leads to the requested address, judged by the guard at that moment; one
request is sent for one exchange; no more is held than the limits and the worker's memory allow.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any, Final

import pycurl  # type: ignore[import-untyped]

from shepherd.dates import http_seconds
from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.guard import Guard
from shepherd.reaper.fetch.memory import Hold
from shepherd.reaper.fetch.response import Request, Response
from shepherd.wire.proxy import Proxy

MAX_HEADERS: Final = 100
ERROR_BODY_BYTES: Final = 16 * 1024  # read of an answer that is not stored: enough to keep most connections usable

_DEADLINE_SLACK_S: Final = 0.05  # curl counts in whole milliseconds from a moment of its own
# Codes without a name in pycurl: 8 weird server reply, 92 HTTP/2 stream, 100 too large.
_MALFORMED: Final = frozenset(
    (pycurl.E_UNSUPPORTED_PROTOCOL, 8, pycurl.E_HTTP2, pycurl.E_PARTIAL_FILE, pycurl.E_BAD_CONTENT_ENCODING, 92, 100)
)
_LENGTH: Final = b"content-length:"
_LONGEST_LENGTH: Final = len(_LENGTH) + 22  # bytes of a line; of a number beyond 64 bits libcurl takes no notice
_BROKEN_HANDSHAKE: Final = ("SSL_ERROR_SYSCALL", "unexpected eof", "Connection reset")  # in libcurl's words: no verdict on TLS


class Transfer:
    def __init__(self, curl: Any, guard: Guard, header_bytes: int, proxy: Proxy | None) -> None:
        self.curl = curl
        self._guard, self._header_bytes, self._proxy = guard, header_bytes, proxy
        self._plain = self._reuse = self._http1_only = False
        self.forget()
        for option, callback in (
            (pycurl.OPENSOCKETFUNCTION, self._on_open),
            (pycurl.PREREQFUNCTION, self._on_request),
            (pycurl.HEADERFUNCTION, self._on_header),
            (pycurl.WRITEFUNCTION, self._on_body),
        ):
            curl.setopt(option, callback)
        self._set_reuse(False)

    def forget(self) -> None:
        """Forget the last exchange."""
        self.request: Request | None = None
        self.outcome: asyncio.Future[tuple[int, str]] | None = None
        self._hold: Hold | None = None
        self._timeout_s = 0.0
        self._reason = Reason.NONE  # why we stopped it ourselves
        self._is_truncated = self._has_connected = False
        self._is_repeated = False  # libcurl wanted to send the request once more
        self._header_room = self._header_bytes
        self._status_line = b""
        self._status = 0
        self._headers: list[bytes] = []
        self._count = self._requests = self._room = 0
        self._head_ended = True
        self._body: list[bytes] = []

    def begin(
        self,
        request: Request,
        timeout_s: float,
        hold: Hold,
        outcome: asyncio.Future[tuple[int, str]],
        *,
        http1_only: bool = False,
    ) -> None:
        """Set the handle up for one exchange; `http1_only` is for a server that refuses HTTP/2."""
        self.request, self.outcome, self._hold, self._timeout_s = request, outcome, hold, timeout_s
        self._room = request.body_bytes
        setopt = self.curl.setopt
        setopt(pycurl.URL, request.url)
        setopt(pycurl.CONNECT_TO, [f"::[{request.address}]:{request.port}" if ":" in request.address else
                                   f"::{request.address}:{request.port}"])  # fmt: skip
        setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * 1000)))
        headers = conditional(request.etag, request.modified)
        if headers or not self._plain:
            setopt(pycurl.HTTPHEADER, [*ACCEPT, *headers])
            self._plain = not headers
        if request.reuse != self._reuse:
            self._set_reuse(request.reuse)
        if http1_only != self._http1_only:
            setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1 if http1_only else pycurl.CURL_HTTP_VERSION_2TLS)
            self._http1_only = http1_only
        hold.begin()

    @property
    def is_turned_away(self) -> bool:
        """Whether libcurl, after a new connection, would have sent the request again: a server that wants HTTP/1.1 does that."""
        return self._is_repeated and self._has_connected and not self._http1_only

    def _set_reuse(self, reuse: bool) -> None:
        self.curl.setopt(pycurl.FRESH_CONNECT, int(not reuse))
        self.curl.setopt(pycurl.FORBID_REUSE, int(not reuse))
        self._reuse = reuse

    # --- what libcurl calls -----------------------------------------------------------------------------------------

    def _on_open(self, purpose: int, address: Any) -> socket.socket | int:
        """Judge the socket once more: the last moment before the world sees a packet.

        Only one request is ever sent: libcurl must not retry on a new connection what failed on a kept one.
        """
        assert self.request is not None and self.outcome is not None
        if self._requests:
            self._is_repeated = True
            return int(pycurl.SOCKET_BAD)
        host, port = str(address.addr[0]), int(address.addr[1])
        if self._proxy is not None:
            allowed = _is_same(host, self._proxy.address) and port == self._proxy.port
        else:
            allowed = _is_same(host, self.request.address) and port == self.request.port and self._guard.refuses(host) is None
        if not allowed:
            self._reason = Reason.GUARD
            return int(pycurl.SOCKET_BAD)
        try:
            connection = socket.socket(address.family, address.socktype, address.protocol)
        except OSError:
            return int(pycurl.SOCKET_BAD)
        self._has_connected = True
        self.outcome.get_loop().call_soon(connection.close)  # pycurl works on a duplicate of it
        return connection

    def _on_request(self, *_addresses: object) -> int:
        """libcurl would send again when a kept connection turns out dead, but the server may have seen the first request."""
        self._requests += 1
        self._is_repeated = self._requests > 1
        return int(pycurl.PREREQFUNC_ABORT if self._is_repeated else pycurl.PREREQFUNC_OK)

    def _on_header(self, line: bytes) -> int | None:
        self._header_room -= len(line)
        if self._head_ended and line.startswith(b"HTTP/"):  # also after an interim answer (1xx)
            self._status_line, self._headers, self._head_ended = line.rstrip(b"\r\n"), [], False
            self._status = _status_of(line)
        elif line in (b"\r\n", b"\n"):
            self._head_ended = True
            if not 200 <= self._status < 300:
                self._room = min(self._room, ERROR_BODY_BYTES)
        else:
            self._count += 1
            if not self._head_ended:  # else a trailer, which counts but is not kept
                self._headers.append(line)
        too_long = len(line) > _LONGEST_LENGTH and line[: len(_LENGTH)].lower() == _LENGTH
        if self._header_room < 0 or self._count > MAX_HEADERS or too_long:
            self._reason = Reason.MALFORMED
            return 0
        return None

    def _on_body(self, data: bytes) -> int | None:
        assert self._hold is not None
        size = min(len(data), self._room)
        if not self._hold.take(size):
            self._hold.pause(self._resume_soon)
            return int(pycurl.WRITEFUNC_PAUSE)
        self._room -= size
        if size < len(data):
            self._body.append(data[:size])
            self._is_truncated = True
            return 0
        self._body.append(data)
        return None

    def _resume_soon(self) -> None:
        """libcurl hands over its data within the call that resumes it, so resume when no other callback is running."""
        assert self.outcome is not None
        self.outcome.get_loop().call_soon(self._resume, self.outcome)

    def _resume(self, outcome: asyncio.Future[tuple[int, str]]) -> None:
        if self.outcome is outcome and not outcome.done():
            self.curl.pause(pycurl.PAUSE_CONT)

    # --- the outcome ------------------------------------------------------------------------------------------------

    def response(self, code: int, detail: str) -> Response:
        assert self.request is not None and self._hold is not None
        info = self.curl.getinfo
        reason = self._judge(code, detail)
        body = b"".join(self._body) if reason == Reason.NONE else b""
        self._body.clear()
        self._hold.end(len(body))
        return Response(
            reason=reason,
            detail=detail,
            status=self._status,
            status_line=self._status_line,
            headers=b"".join(self._headers),
            body=body,
            truncated=self._is_truncated,
            contacted=self._has_connected or self._requests > 0,
            stale=self._is_repeated,
            address=self.request.address,
            wire_bytes=info(pycurl.HEADER_SIZE) + info(pycurl.SIZE_DOWNLOAD_T),
            total_s=info(pycurl.TOTAL_TIME),
            connect_s=info(pycurl.CONNECT_TIME),
            first_byte_s=info(pycurl.STARTTRANSFER_TIME),
        )

    def _judge(self, code: int, detail: str) -> Reason:
        if self._reason != Reason.NONE:
            return self._reason
        if code == pycurl.E_OK or self._is_truncated:
            # To libcurl a connection that closes inside the headers is a success.
            return Reason.NONE if self._head_ended and self._status >= 200 else Reason.MALFORMED
        if code == pycurl.E_OPERATION_TIMEDOUT:
            late = self.curl.getinfo(pycurl.TOTAL_TIME) >= self._timeout_s - _DEADLINE_SLACK_S
            return Reason.DEADLINE if late else Reason.TOO_SLOW
        if code == pycurl.E_PEER_FAILED_VERIFICATION:
            return Reason.TLS
        if code == pycurl.E_SSL_CONNECT_ERROR:
            return Reason.CONNECTION if any(words in detail for words in _BROKEN_HANDSHAKE) else Reason.TLS
        if not self._requests:
            return Reason.CONNECTION  # no request was sent yet: any answer is the proxy's
        if code == pycurl.E_RECV_ERROR and self._status_line and not self.curl.getinfo(pycurl.OS_ERRNO):
            return Reason.MALFORMED  # a bad chunk, not a broken connection
        return Reason.MALFORMED if code in _MALFORMED else Reason.CONNECTION


def _status_of(line: bytes) -> int:
    words = line.split(None, 2)
    return int(words[1]) if len(words) > 1 and len(words[1]) == 3 and words[1].isdigit() else 0


def _is_same(address: str, other: str) -> bool:
    return address == other or ipaddress.ip_address(address) == ipaddress.ip_address(other)


# --- the headers of a request: what we accept, and the validators of the stored document --------------------------


ACCEPT: Final = (
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Encoding: gzip, br, zstd, deflate",
)
MAX_VALIDATOR: Final = 1_024  # characters; what is longer is not sent back


def conditional(etag: str, modified: str) -> list[str]:
    """The headers that ask for a document only if it is not the stored one.

    An entity tag is sent back as it came, weak or without its quotes, but not `*`, which every document matches. A date is sent
    back as it came if it is one.
    """
    headers = []
    if _is_sendable(etag) and etag.strip() != "*":
        headers.append(f"If-None-Match: {etag}")
    if _is_sendable(modified) and http_seconds(modified) is not None:
        headers.append(f"If-Modified-Since: {modified}")
    return headers


def _is_sendable(value: str) -> bool:
    """Whether a validator of a server can be sent back: one line of printable ASCII."""
    return 0 < len(value) <= MAX_VALIDATOR and value.isascii() and value.isprintable()
