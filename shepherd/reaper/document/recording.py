"""An answer that somebody else recorded, as an exchange of ours: from then on it is treated like every answer.

Only a worker takes the bytes of a recorded HTTP message apart. Archives keep messages as they were sent, or with the chunks
undone, or with the content coding undone too, under the same headers: the bytes decide.
"""

from __future__ import annotations

from typing import Final

from shepherd import robots
from shepherd.config import FetchLimits
from shepherd.expressions import MessageHead
from shepherd.formats import coding
from shepherd.formats.tables import Kind, Reason
from shepherd.reaper.fetch.exchange import Exchange
from shepherd.reaper.fetch.response import Response
from shepherd.wire import messages as wire

INCOMPLETE: Final = "incomplete"  # the word for a message that ends inside a chunk
_LONGEST_CHUNK_LINE: Final = 1_024
_MAGIC: Final = {"gzip": b"\x1f\x8b", "x-gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_TRIAL_BYTES: Final = 1 << 16


def request_of(recorded: wire.Recorded) -> wire.Fetch:
    """The request that the recorded answer would have answered."""
    return wire.Fetch(
        token=recorded.token,
        kind=recorded.kind,
        url=recorded.url,
        norm=recorded.norm,
        path=recorded.path,
        site=recorded.site,
        rules=recorded.site,
        qkey=recorded.qkey,
        address=recorded.address,
        weight=recorded.weight,
        section=recorded.section,
        etag="",
        modified="",
        digest=0,
        hops=0,
        reuse=False,
        alone=recorded.alone,
        start_by_ms=0,
        deadline_ms=0,
        head=False,
    )


def exchange_of(recorded: wire.Recorded, fetch: wire.Fetch, limits: FetchLimits) -> Exchange:
    """The exchange of a recorded answer; bytes that are not an HTTP message become a malformed answer."""
    return Exchange(fetch, _response(recorded, limits), recorded.time_ms, recorded.time_ms)


def _response(recorded: wire.Recorded, limits: FetchLimits) -> Response:
    try:
        status, status_line, headers, body = _split(recorded.http, limits.header_bytes)
    except ValueError as error:
        return Response(Reason.MALFORMED, str(error), contacted=True)
    head = Response(Reason.NONE, "", status, status_line, headers)
    cut = recorded.cut
    if "chunked" in ",".join(head.all("transfer-encoding")).lower():
        body, whole = without_chunks(body)
        cut = cut or ("" if whole else INCOMPLETE)
    max_bytes = limits.body_bytes if recorded.kind == Kind.PAGE else robots.MAX_BYTES
    if len(body) > max_bytes:
        body, cut = body[:max_bytes], cut or "length"
    return Response(
        Reason.NONE,
        "",
        status,
        status_line,
        headers,
        body,
        truncated=bool(cut),
        contacted=True,
        address=recorded.address,
        wire_bytes=len(recorded.http),
        cut=cut,
        plain=_is_plain(body, head.encoding),
        provenance=recorded.provenance,
    )


def _split(http: bytes, max_head_bytes: int) -> tuple[int, bytes, bytes, bytes]:
    """Status, status line, headers with their line ends, and body; interim answers (1xx) before it are skipped.

    All heads together have `max_head_bytes`.
    """
    position = 0
    while True:
        end = MessageHead.END.search(http, position, max_head_bytes)
        if end is None and len(http) > max_head_bytes:
            raise ValueError(f"no end of the headers within {max_head_bytes} bytes")
        head = http[position : end.start() + 1 if end else len(http)]
        line, _, headers = head.partition(b"\n")
        status_match = MessageHead.RECORDED_STATUS.fullmatch(line.rstrip(b"\r"))
        if status_match is None:
            raise ValueError("no status line")
        status = int(status_match[1])
        if end is None or not 100 <= status < 200 or not http.startswith(b"HTTP/", end.end()):
            return status, line.rstrip(b"\r"), headers, http[end.end() :] if end else b""
        position = end.end()


def without_chunks(body: bytes) -> tuple[bytes, bool]:
    """A body without its chunks, and whether it is whole. A body that does not begin with a chunk has none any more."""
    parts: list[bytes] = []
    position = 0
    while True:
        chunk = MessageHead.CHUNK.match(body, position, position + _LONGEST_CHUNK_LINE)
        if chunk is None:
            return (b"".join(parts), False) if parts else (body, True)
        size, position = int(chunk[1], 16), chunk.end()
        if not size:
            return b"".join(parts), True
        parts.append(body[position : position + size])
        if len(parts[-1]) < size:
            return b"".join(parts), False
        position += size
        position += 2 if body[position : position + 2] == b"\r\n" else body[position : position + 1] == b"\n"


def _is_plain(body: bytes, encoding: str) -> bool:
    """Whether the body is not coded as its header says. A body that begins as its coding does and breaks off later is damaged."""
    if not encoding or not body:
        return False
    if encoding in _MAGIC:
        return not body.startswith(_MAGIC[encoding])
    try:
        coding.decode(body, encoding, _TRIAL_BYTES)
    except coding.DecodeError:
        return True
    return False
