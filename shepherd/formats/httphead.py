"""The head of a response as an archive keeps it: as it was received, but where that would lie about the body that follows it.

A body is stored without its transfer coding, sometimes cut, sometimes decoded. A header that says otherwise would make a reader
unpack what is not packed, or wait for bytes that never come: such a header is kept under X-Archive-Orig-.
"""

from __future__ import annotations

from re import Match
from typing import Final, NamedTuple

from shepherd.expressions import MessageHead

ORIGINAL: Final = b"X-Archive-Orig-"
PROTOCOLS: Final = {b"2": b"h2", b"2.0": b"h2", b"3": b"h3", b"3.0": b"h3"}  # as WARC-Protocol names what is no text on the wire
_BLANKS: Final = " \t\r\v\f"


class Head(NamedTuple):
    data: bytes  # status line, headers and the empty line
    status: int
    protocol: bytes  # what WARC-Protocol should say; empty where the status line does


def head(status_line: bytes, headers: bytes, body_bytes: int, coded: bool) -> Head | None:
    """The head before a body of so many bytes, which is `coded` as Content-Encoding says, or not; None without a status."""
    match = MessageHead.STATUS.match(status_line)
    if match is None:
        return None
    version, status, reason = match.groups()
    line = b"HTTP/%s %s%s" % (version if version in (b"1.0", b"1.1") else b"1.1", status, reason.rstrip())
    lines = fit_headers(headers, body_bytes, coded)
    return Head(line + b"\r\n" + lines + b"\r\n", int(status), PROTOCOLS.get(version, b""))


def pairs(headers: bytes) -> list[tuple[str, str]]:
    """Names and values of header lines, in Latin-1.

    A line without colon is not a header. Nor is one that begins with a blank: libcurl has joined those that go over several
    lines, so one that remains belongs to nothing.
    """
    parts = (line.partition(":") for line in headers.decode("latin-1").split("\n") if line[:1] not in (" ", "\t"))
    return [(name.strip(_BLANKS), value.strip(_BLANKS)) for name, colon, value in parts if colon]


def fit_headers(headers: bytes, body_bytes: int, coded: bool) -> bytes:
    """Header lines, each with CRLF: none is empty, and none says of the body what is not so."""
    text = headers.strip(b"\r\n")
    if not text:
        return b""
    if text.count(b"\n") != text.count(b"\r\n"):
        text = MessageHead.BARE_END.sub(b"\r\n", text)
    if b"\r\n\r\n" in text:
        text = MessageHead.BLANK.sub(b"\r\n", text)

    def fit(match: Match[bytes]) -> bytes:
        name, colon, value = match.groups()
        kind, plain = name.lower(), value.strip()
        if kind == b"content-length":
            holds = plain.isdigit() and int(plain[:20]) == body_bytes
        else:
            holds = kind == b"content-encoding" and (coded or plain.lower() in (b"", b"identity"))
        return match[0] if holds else b"\n" + ORIGINAL + name + colon + value

    return MessageHead.BODY_HEADER.sub(fit, b"\n" + text)[1:] + b"\r\n"
