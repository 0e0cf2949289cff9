"""Requests and answers as bytes. The head of an answer that stands ready is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import TypeAlias

HANG_UP = 0  # the status of an answer that is none

# What an exhibit does to a connection, step by step: bytes are sent, a number is a pause in seconds. The first bytes should hold
# the status line. RESET breaks the connection off where it stands; after the last step it is closed.
Step: TypeAlias = bytes | float
Script: TypeAlias = Callable[[], Iterator[Step]]
RESET: Step = -1.0

_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True)
class ToyRequest:
    """A request line and its headers, their names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    scheme: str = "http"

    @property
    def host(self) -> str:
        return self.headers.get("host", "").partition(":")[0].lower()

    @property
    def conditional(self) -> bool:
        return "if-none-match" in self.headers or "if-modified-since" in self.headers

    @property
    def wants_close(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


@dataclass(frozen=True)
class ToyAnswer:
    """What to send; Content-Length follows from the body. `close` = the connection ends with it. A script replaces all that."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    close: bool = False
    pause_s: float = 0.0  # before it is sent
    lasting: bool = True  # the same request would get it again
    script: Script | None = None

    def head(self, close: bool) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS[self.status]}", "Server: toyweb"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.status != 304:
            lines.append(f"Content-Length: {len(self.body)}")
        if close:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    @cached_property
    def _usual_head(self) -> bytes:
        return self.head(self.close)

    @property
    def message(self) -> bytes:
        """Head and body, for a client that keeps its connection if we do."""
        return b"" if self.status == HANG_UP else self._usual_head + self.body


def message(request: ToyRequest, answer: ToyAnswer) -> bytes:
    """What this client gets."""
    if answer.status == HANG_UP:
        return b""
    if request.method == "HEAD":
        return answer.head(answer.close or request.wants_close)
    return answer.head(True) + answer.body if request.wants_close else answer.message


def parse(head: bytes, scheme: str = "http") -> ToyRequest | None:
    """A request, without the blank line that ends it; None if it is none that is understood here."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        return None
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            return None
        headers[name.strip().lower()] = value.strip()
    if words[2] == "HTTP/1.0":
        headers["connection"] = "close"
    return ToyRequest(words[0], words[1], headers, scheme)
