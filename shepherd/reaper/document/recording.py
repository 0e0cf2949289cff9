"""An answer that somebody else recorded, as an exchange of ours: from there on it goes the way of every answer.

Here the bytes of a recorded HTTP message are taken apart, so in a worker and nowhere else. Archives keep messages as they were
sent, or with the chunks undone, or with the content coding undone too, under the same headers: the bytes decide.
"""

from __future__ import annotations

import re
from typing import Final

from shepherd import robots
from shepherd.config import Fetch as Limits
from shepherd.formats import coding
from shepherd.formats.tables import Kind, Reason
from shepherd.reaper.fetch.exchange import Exchange
from shepherd.reaper.fetch.response import Response
from shepherd.wire import messages as wire

INCOMPLETE: Final = "incomplete"  # the word for a message that ends inside a chunk
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_STATUS: Final = re.compile(rb"HTTP/[0-9](?:\.[0-9])? +([1-9][0-9]{2})(?:[ \t].*)?")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LONGEST_CHUNK_LINE: Final = 1_024
_MAGIC: Final = {"gzip": b"\x1f\x8b", "x-gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_TRIAL_BYTES: Final = 1 << 16


def request_of(told: wire.Recorded) -> wire.Fetch:
    """The request that it would have been the answer to."""
    return wire.Fetch(
        token=told.token,
        kind=told.kind,
        url=told.url,
        norm=told.norm,
        path=told.path,
        site=told.site,
        rules=told.site,
        qkey=told.qkey,
        address=told.address,
        weight=told.weight,
        section=told.section,
        etag="",
        modified="",
        digest=0,
        hops=0,
        reuse=False,
        alone=told.alone,
        start_by_ms=0,
        deadline_ms=0,
        head=False,
    )


def exchange_of(told: wire.Recorded, fetch: wire.Fetch, limits: Limits) -> Exchange:
    """What is no HTTP message becomes an answer that is malformed."""
    return Exchange(fetch, _response(told, limits), told.time_ms, told.time_ms)


def _response(told: wire.Recorded, limits: Limits) -> Response:
    try:
        status, status_line, headers, body = _split(told.http, limits.header_bytes)
    except ValueError as error:
        return Response(Reason.MALFORMED, str(error), contacted=True)
    head = Response(Reason.NONE, "", status, status_line, headers)
    cut = told.cut
    if "chunked" in ",".join(head.all("transfer-encoding")).lower():
        body, whole = dechunked(body)
        cut = cut or ("" if whole else INCOMPLETE)
    most = limits.body_bytes if told.kind == Kind.PAGE else robots.MAX_BYTES
    if len(body) > most:
        body, cut = body[:most], cut or "length"
    return Response(
        Reason.NONE,
        "",
        status,
        status_line,
        headers,
        body,
        truncated=bool(cut),
        contacted=True,
        address=told.address,
        wire_bytes=len(told.http),
        cut=cut,
        plain=_is_plain(body, head.encoding),
        provenance=told.provenance,
    )


def _split(http: bytes, most_head: int) -> tuple[int, bytes, bytes, bytes]:
    """Status, status line, headers with their line ends, and body; interim answers (1xx) that stand before are left out."""
    at = 0
    while True:
        end = _HEAD_END.search(http, at, at + most_head)
        if end is None and len(http) - at > most_head:
            raise ValueError(f"no end of the headers within {most_head} bytes")
        head = http[at : end.start() + 1 if end else len(http)]
        line, _, headers = head.partition(b"\n")
        found = _STATUS.fullmatch(line.rstrip(b"\r"))
        if found is None:
            raise ValueError("no status line")
        status, body = int(found[1]), http[end.end() :] if end else b""
        if not 100 <= status < 200 or not body.startswith(b"HTTP/"):
            return status, line.rstrip(b"\r"), headers, body
        at = len(http) - len(body)


def dechunked(body: bytes) -> tuple[bytes, bool]:
    """A body without its chunks, and whether it was whole. One that does not begin with a chunk has lost them already."""
    parts: list[bytes] = []
    at = 0
    while True:
        found = _CHUNK.match(body, at, at + _LONGEST_CHUNK_LINE)
        if found is None:
            return (b"".join(parts), False) if parts else (body, True)
        size, at = int(found[1], 16), found.end()
        if not size:
            return b"".join(parts), True
        parts.append(body[at : at + size])
        if len(parts[-1]) < size:
            return b"".join(parts), False
        at += size
        at += 2 if body[at : at + 2] == b"\r\n" else body[at : at + 1] == b"\n"


def _is_plain(body: bytes, encoding: str) -> bool:
    """Whether the body is not coded as its header says. What begins as its coding does, and breaks off later, is damaged."""
    if not encoding or not body:
        return False
    if encoding in _MAGIC:
        return not body.startswith(_MAGIC[encoding])
    try:
        coding.decode(body, encoding, _TRIAL_BYTES)
    except coding.DecodeError:
        return True
    return False
