"""Exhibits that break HTTP itself: too slow, without end, with lengths, chunks and headers that lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, repeat

from toyweb.http import RESET, Step, ToyRequest
from toyweb.zoo.exhibit import LATE, MALFORMED, SLOW, STORED, UNREACHED, Exhibit, Play, Verdict, head, whole

_DRIP_S = 0.25
_FILL = b"<p>No end of sheep in sight, and the gate is open.</p>\n" * 1000
_PAGE = b"<!DOCTYPE html><html><head><title>A page</title></head><body><p>A page like any other.</p></body></html>\n"
_LONG = b"x" * 65_536


def _slow_headers(_request: ToyRequest) -> Iterator[Step]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-Slow: "
    while True:
        yield _DRIP_S
        yield b"z"


def _slow_body(_request: ToyRequest) -> Iterator[Step]:
    yield head("Content-Length: 100000")
    while True:
        yield _DRIP_S
        yield b"<"


def _silent(_request: ToyRequest) -> Iterator[Step]:
    while True:
        yield 10.0


def _slow_start(_request: ToyRequest) -> Iterator[Step]:
    yield 1.0
    yield whole(_PAGE)


def _endless_body(_request: ToyRequest) -> Iterator[Step]:
    yield head("Connection: close")
    yield from repeat(_FILL)


def _endless_chunks(_request: ToyRequest) -> Iterator[Step]:
    yield head("Transfer-Encoding: chunked")
    yield from repeat(b"%x\r\n%b\r\n" % (len(_FILL), _FILL))


def _endless_headers(_request: ToyRequest) -> Iterator[Step]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in count():
        yield b"".join(b"X-%d-%d: one more\r\n" % (number, column) for column in range(100))


def _endless_interim(_request: ToyRequest) -> Iterator[Step]:
    yield from repeat(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n" * 100)


def _endless_trailers(_request: ToyRequest) -> Iterator[Step]:
    yield head("Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n"
    for number in count():
        yield b"".join(b"X-%d-%d: one more\r\n" % (number, column) for column in range(100))


def _endless_chunk_extension(_request: ToyRequest) -> Iterator[Step]:
    yield head("Transfer-Encoding: chunked") + b"5;name="
    yield from repeat(_LONG)


def _reset_in_body(_request: ToyRequest) -> Iterator[Step]:
    yield head("Content-Length: 100000") + _PAGE
    yield 0.05
    yield RESET


def _no_answer(_request: ToyRequest) -> Iterator[Step]:
    yield from ()


def _sends(*pieces: bytes) -> Play:
    """Sends the pieces at once, and then the connection closes."""

    def play(_request: ToyRequest) -> Iterator[Step]:
        yield from pieces

    return play


def _one_of(name: str, about: str, play: Play, *verdicts: Verdict, cut: bool = False) -> Exhibit:
    return Exhibit(name, about, play, frozenset(verdicts), cut=cut)


def _chunked(body: bytes) -> bytes:
    return head("Transfer-Encoding: chunked") + body


_OK = b"HTTP/1.1 200 OK\r\n"
_SIZED = b"Content-Length: %d\r\n\r\n%b" % (len(_PAGE), _PAGE)

EXHIBITS: tuple[Exhibit, ...] = (
    _one_of("slow-headers", "a header that grows by a byte now and then", _slow_headers, LATE, SLOW),
    _one_of("slow-body", "a body that grows by a byte now and then", _slow_body, LATE, SLOW),
    _one_of("silent", "listens and never answers", _silent, LATE, SLOW),
    _one_of("slow-start", "answers as it should, after a second", _slow_start, STORED),
    _one_of("endless-body", "a body without length or end", _endless_body, STORED, cut=True),
    _one_of("endless-chunks", "chunks without end", _endless_chunks, STORED, cut=True),
    _one_of("endless-headers", "headers without end", _endless_headers, MALFORMED),
    _one_of("endless-interim", "interim answers (103) without end", _endless_interim, MALFORMED),
    _one_of("endless-trailers", "trailers without end behind the last chunk", _endless_trailers, MALFORMED),
    _one_of("endless-chunk-extension", "a chunk extension without end", _endless_chunk_extension, MALFORMED, LATE, SLOW),
    _one_of("no-answer", "hangs up when it is asked", _no_answer, UNREACHED),
    _one_of("reset-in-body", "breaks the connection off in its body", _reset_in_body, UNREACHED, MALFORMED),
    _one_of("length-too-long", "a body shorter than its length", _sends(head("Content-Length: 90000") + _PAGE), MALFORMED),
    _one_of("length-too-short", "a body longer than its length", _sends(head("Content-Length: 40") + _PAGE), STORED),
    _one_of(
        "length-twice",
        "two lengths that differ",
        _sends(head("Content-Length: 40", f"Content-Length: {len(_PAGE)}") + _PAGE),
        MALFORMED,
        STORED,
    ),
    _one_of("length-negative", "a length below nothing", _sends(head("Content-Length: -1") + _PAGE), MALFORMED),
    _one_of("length-not-a-number", "a length that is a word", _sends(head("Content-Length: banana") + _PAGE), MALFORMED),
    _one_of("length-enormous", "a length of 99 digits", _sends(head("Content-Length: " + "9" * 99) + _PAGE), MALFORMED, STORED),
    _one_of(
        "length-and-chunks",
        "a length and chunks at the same time",
        _sends(head("Content-Length: 10", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"),
        STORED,
        MALFORMED,
    ),
    _one_of("chunk-size-bad", "a chunk whose size is no number", _sends(_chunked(b"zz\r\nhello\r\n0\r\n\r\n")), MALFORMED),
    _one_of("chunk-size-enormous", "a chunk of 2^68 bytes", _sends(_chunked(b"F" * 17 + b"\r\nhello\r\n")), MALFORMED),
    _one_of("chunk-unended", "a chunk that is not followed by a line end", _sends(_chunked(b"5\r\nhelloXX0\r\n\r\n")), MALFORMED),
    _one_of("chunks-cut-short", "chunks without the last one", _sends(_chunked(b"5\r\nhello\r\n")), MALFORMED),
    _one_of("header-flood", "10,000 headers", _sends(_OK + b"X: y\r\n" * 10_000 + _SIZED), MALFORMED),
    _one_of("header-long", "one header of 1 MB", _sends(_OK, b"X-Long: ", *(16 * [_LONG]), b"\r\n" + _SIZED), MALFORMED),
    _one_of("header-nul", "a NUL in a header", _sends(_OK + b"X-Nul: a\0b\r\n" + _SIZED), STORED, MALFORMED),
    _one_of(
        "header-folded",
        "a header that goes on in a second line",
        _sends(_OK + b"X-Fold: a\r\n b\r\n" + _SIZED),
        STORED,
        MALFORMED,
    ),
    _one_of("header-without-colon", "a header without a colon", _sends(_OK + b"banana\r\n" + _SIZED), STORED, MALFORMED),
    _one_of("header-bare-newlines", "lines that end without CR", _sends((_OK + _SIZED).replace(b"\r", b"")), STORED, MALFORMED),
    _one_of("header-8-bit", "bytes that are no text", _sends(_OK + b"X-\xff\xfe: \x80\xc0\r\n" + _SIZED), STORED, MALFORMED),
    _one_of("header-cut-short", "the connection closes inside the headers", _sends(_OK + b"X-Cut: no"), MALFORMED, UNREACHED),
    _one_of(
        "header-cookies", "90 cookies of 500 bytes", _sends(_OK + b"Set-Cookie: a=%b\r\n" % (b"c" * 480) * 90 + _SIZED), STORED
    ),
    _one_of("status-word", "a status that is a word", _sends(b"HTTP/1.1 banana\r\n" + _SIZED), MALFORMED),
    _one_of("status-999", "a status that does not exist", _sends(b"HTTP/1.1 999 Request Denied\r\n" + _SIZED), MALFORMED),
    _one_of("status-000", "the status 000", _sends(b"HTTP/1.1 000 Nothing\r\n" + _SIZED), MALFORMED),
    _one_of("status-missing", "a page without status and headers, as of 1991", _sends(_PAGE), MALFORMED),
    _one_of("version-unknown", "HTTP/7.7", _sends(b"HTTP/7.7 200 OK\r\n" + _SIZED), MALFORMED, UNREACHED),
    _one_of("not-http", "another protocol's greeting", _sends(b"220 mail.toy.example ESMTP ready\r\n"), MALFORMED),
    _one_of(
        "interim-few",
        "two interim answers before the true one",
        _sends(2 * b"HTTP/1.1 103 Early Hints\r\n\r\n" + _OK + _SIZED),
        STORED,
    ),
)
