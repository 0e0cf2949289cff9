"""The request and the response of one exchange."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shepherd.formats import httphead
from shepherd.formats.tables import Reason


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


@dataclass(frozen=True)
class Response:
    """The outcome of a request. With a reason other than NONE there is no answer to use, whatever else is filled in."""

    reason: Reason
    detail: str  # libcurl's words on a failure
    status: int = 0
    status_line: bytes = b""
    headers: bytes = b""  # as received, without the status line
    body: bytes = b""  # as received, with its content coding
    truncated: bool = False  # the body was longer than its limit and is cut there
    contacted: bool = False  # the server has seen at least an attempt to connect
    stale: bool = False  # a kept connection died before the answer: a new one may do better
    address: str = ""
    wire_bytes: int = 0
    total_s: float = 0.0
    connect_s: float = 0.0
    first_byte_s: float = 0.0
    cut: str = "length"  # why it is truncated, if it is
    plain: bool = False  # the body has no content coding, whatever the headers say: archives may keep it decoded
    provenance: str = ""  # where it comes from, if we have not fetched it

    def header(self, name: str) -> str:
        """The first value of a header; "" if it is absent."""
        return self._fields.get(name.lower(), [""])[0]

    def all(self, name: str) -> list[str]:
        """All values of a header."""
        return self._fields.get(name.lower(), [])

    @property
    def encoding(self) -> str:
        """The content coding, "" for none."""
        if self.plain:
            return ""
        coding = ", ".join(self.all("content-encoding")).strip().lower()
        return "" if coding == "identity" else coding

    @cached_property
    def _fields(self) -> dict[str, list[str]]:
        """The headers by name."""
        fields: dict[str, list[str]] = {}
        for name, value in httphead.pairs(self.headers):
            fields.setdefault(name.lower(), []).append(value)
        return fields
