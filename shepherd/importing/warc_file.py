"""The records of a WARC file (1.0 and 1.1, plain or gzip), one after the other, whatever state the file is in.

A record is given only when all of it was read: its header parsed (by warcio), its block as long as it says, with the digest that
it names, and the end of its gzip member checked. Damage is reported with its offset, and reading continues at the next place
where a record begins. The container is read here and not by warcio, which takes a gzip member that breaks off for the end of its
record, and reads lines of any length into memory.

Invariants: of a record at most `most` bytes of the block are held; and what is read in vain is at most a multiple of the file, so
that a file made of beginnings ends in time like any other: after that it is given up.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Iterator
from typing import Final, Protocol

from isal import isal_zlib
from msgspec import Struct
from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeadersParser, StatusAndHeadersParserException

PIECE: Final = 1 << 16
MOST_HEADER: Final = 1 << 16
MOST_VAIN: Final = 8  # times the bytes of a file that may be read in vain, looking for records
SPARE_VAIN: Final = 1 << 24  # bytes that may be so in every file: a single damaged record may be large
EACH_VAIN: Final = 1 << 10  # bytes that a place counts at least where no record is
BEHIND: Final = 1 << 18  # bytes of a stream that cannot go back: a broken member may have taken in the begin of the next
_GZIP: Final = b"\x1f\x8b\x08"
_WARC: Final = b"WARC/"
_BLANK: Final = b"\r\n"
_AFTER: Final = b"\r\n\r\n"
_PROBE: Final = 1 << 14  # bytes in which the begin of a record shows, if one is there
_LOOK: Final = 1 << 11  # bytes that are looked at first; more is copied only where it is needed
DOCUMENT_TYPES: Final = ("response", "revisit")  # of all others nobody needs the block
_PARSER: Final = StatusAndHeadersParser(ArcWarcRecordLoader.WARC_TYPES)


class Broken(Exception):
    """Why there is no record. `vain_bytes` were looked at beside those that were taken from the file."""

    def __init__(self, why: str, vain_bytes: int = 0) -> None:
        super().__init__(why)
        self.vain_bytes = vain_bytes


class Record(Struct, frozen=True, array_like=True, tag=True, tag_field="struct"):
    offset: int
    type: str
    headers: dict[str, str]  # by name in lower case
    block: bytes  # its first bytes, at most `most`
    length: int  # of the whole block

    @property
    def cut(self) -> bool:
        return len(self.block) < self.length


class Damage(Struct, frozen=True, array_like=True, tag=True, tag_field="struct"):
    offset: int
    why: str
    is_last: bool = False  # the rest of the file is not read


class GivenUp(Exception):
    """Too much of a file was read in vain."""


class Stream(Protocol):
    """What records are read from."""

    def read(self, size: int, /) -> bytes: ...
    def seekable(self) -> bool: ...
    def seek(self, offset: int, /) -> object: ...


class ByteSource(Protocol):
    """Bytes that records are read from: the file itself, or what a gzip member holds."""

    def peek(self, size: int, most: int = _LOOK) -> bytes:
        """The next bytes, at least `size` if there are, and at most `most`; they stay."""

    def skip(self, size: int) -> None:
        """Be done with bytes that were looked at."""


class FileBytes:
    """A stream of bytes, of which the next ones can be looked at before they are taken."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._buffer, self._from = stream, b"", 0
        self._behind = 0 if stream.seekable() else BEHIND
        self.offset = 0
        self._furthest = self._vain_bytes = 0

    def peek(self, size: int, most: int = _LOOK) -> bytes:
        while len(self._buffer) - self._from < size and (more := self._stream.read(PIECE)):
            dropped = max(0, self._from - self._behind)
            self._buffer, self._from = self._buffer[dropped:] + more, self._from - dropped
        self._furthest = max(self._furthest, self.offset + len(self._buffer) - self._from)
        return self._buffer[self._from : self._from + max(size, most)]

    def count_vain(self, size: int) -> None:
        """Count bytes that were read, and of which nothing came."""
        self._vain_bytes += max(size, EACH_VAIN)
        if self._vain_bytes > MOST_VAIN * self._furthest + SPARE_VAIN:
            raise GivenUp(f"its rest is not read: {self._vain_bytes:,} bytes were read where no whole record is")

    def skip(self, size: int) -> None:
        self._from += size
        self.offset += size

    def go_behind(self, offset: int) -> None:
        """Go on behind a byte that was looked at; a stream that cannot go back that far goes back as far as it can."""
        if self._stream.seekable() and offset < self.offset:
            self._stream.seek(offset + 1)
            self._buffer, self._from, self.offset = b"", 0, offset + 1
        else:
            self.skip(max(offset + 1 - self.offset, -self._from))


class GzipMember:
    """What one gzip member holds."""

    def __init__(self, file: FileBytes) -> None:
        self._file, self._inflate = file, isal_zlib.decompressobj(wbits=31)
        self._buffer, self._from = b"", 0
        self.taken_bytes = 0

    def peek(self, size: int, most: int = _LOOK) -> bytes:
        while len(self._buffer) - self._from < size and not self._inflate.eof:
            self._buffer, self._from = self._buffer[self._from :] + self._more(), 0
        return self._buffer[self._from : self._from + max(size, most)]

    def skip(self, size: int) -> None:
        self._from += size
        self.taken_bytes += size

    def _more(self) -> bytes:
        packed = self._file.peek(1, PIECE)
        try:
            plain = self._inflate.decompress(packed, PIECE)
        except isal_zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
            raise Broken(f"broken gzip: {error}") from error
        # At the end of a member zlib has what follows it in both: unconsumed_tail is not emptied.
        rest = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._file.skip(len(packed) - len(rest))
        if not packed and not plain and not self._inflate.eof:
            raise Broken("the file ends inside a gzip member")
        return bytes(plain)


def records(stream: Stream, most: int) -> Iterator[Record | Damage]:
    """All that can be read, and what cannot."""
    file = FileBytes(stream)
    while head := file.peek(len(_WARC)):
        start = file.offset
        if head[:1] in _BLANK:
            file.skip(len(head) - len(head.lstrip(_BLANK)))
            continue
        try:
            if head.startswith(_GZIP):
                yield from _in_member(file, start, most)
            else:
                yield _record(file, start, most)
        except Broken as error:
            try:
                file.count_vain(file.offset - start + error.vain_bytes)
                file.go_behind(start)
                _find_next(file)
            except GivenUp as why:
                yield Damage(start, f"{error}; {why}", is_last=True)
                return
            yield Damage(start, f"{error}; read on at {file.offset}")


def _in_member(file: FileBytes, start: int, most: int) -> Iterator[Record]:
    """One record, as it should be; or several, as where a whole file was packed at once: then all have the same offset."""
    member, sound_bytes = GzipMember(file), 0
    try:
        while not _ends(member):
            yield _record(member, start, most)
            sound_bytes = member.taken_bytes
    except Broken as error:
        error.vain_bytes += member.taken_bytes - sound_bytes
        raise


def _ends(source: ByteSource) -> bool:
    """Whether nothing follows but empty lines, which go."""
    while ahead := source.peek(1):
        rest = ahead.lstrip(_BLANK)
        source.skip(len(ahead) - len(rest))
        if rest:
            return False
    return True


def _record(source: ByteSource, start: int, most: int) -> Record:
    headers = _headers(source)
    length = headers.get("content-length", "")
    if not length.isdecimal() or len(length) > 18:
        raise Broken("no Content-Length that is a number")
    kind = headers.get("warc-type", "").lower()
    block = _block(source, int(length), most if kind in DOCUMENT_TYPES else 0, headers.get("warc-block-digest", ""))
    # In a plain file the empty lines show that the length was right, whatever follows; many writers leave out some of them.
    in_order = isinstance(source, FileBytes) and source.peek(len(_AFTER)).startswith(_AFTER)
    if not _ends(source) and not in_order and not _may_begin(source.peek(len(_WARC))[: len(_WARC)]):
        raise Broken("what follows is not a record: its Content-Length is wrong")
    return Record(start, kind, headers, block, int(length))


def _may_begin(head: bytes) -> bool:
    """Whether a record begins there, as far as it goes."""
    return any(head.startswith(magic[: len(head)]) for magic in (_WARC, _GZIP))


def _headers(source: ByteSource) -> dict[str, str]:
    head = source.peek(len(_WARC))
    if not head.startswith(_WARC):
        raise Broken("no record begins here")
    size = 0
    while not (size := _head_size(head)):
        if len(head) > MOST_HEADER:
            raise Broken(f"a header of more than {MOST_HEADER} bytes", len(head))
        before, head = len(head), source.peek(len(head) + 1, 2 * len(head))
        if len(head) == before:
            raise Broken("it ends inside its header", before)
    source.skip(size)
    try:
        parsed = _PARSER.parse(io.BytesIO(head[:size]))
    except (StatusAndHeadersParserException, ArchiveLoadFailed, EOFError, ValueError) as error:
        raise Broken(f"its header cannot be read: {type(error).__name__}") from error
    return {name.lower(): value for name, value in reversed(parsed.headers)}  # of several of a name the first counts


def _head_size(head: bytes) -> int:
    """How many bytes a header has, with the empty line behind it; 0 if that has not come yet."""
    end = head.find(b"\n\r\n", 0, MOST_HEADER)
    bare = head.find(b"\n\n", 0, end if end >= 0 else MOST_HEADER)
    return bare + 2 if bare >= 0 else end + 3 if end >= 0 else 0


def _block(source: ByteSource, length: int, most: int, digest: str) -> bytes:
    """The first bytes of a block; all of it is read, and compared with its digest where that can be done."""
    hasher, expected = _hasher(digest)
    parts: list[bytes] = []
    taken_bytes, rest_bytes = 0, length
    while rest_bytes:
        part = source.peek(1, PIECE)[:rest_bytes]
        if not part:
            raise Broken(f"it ends {rest_bytes} bytes before its block does")
        source.skip(len(part))
        rest_bytes -= len(part)
        if hasher is not None:
            hasher.update(part)
        if taken_bytes < most:
            parts.append(part[: most - taken_bytes])
            taken_bytes += len(parts[-1])
    if hasher is not None and hasher.digest() != expected:
        raise Broken("its block does not have the digest that it names")
    return b"".join(parts)


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


def _hasher(digest: str) -> tuple[_Hash | None, bytes]:
    """What computes a digest as a header writes it, in base 32 or 16, and the digest itself; None where that is not known."""
    name, _, text = digest.strip().partition(":")
    name = name.lower().replace("-", "")
    if name not in ("md5", "sha1", "sha256", "sha512"):
        return None, b""
    hasher = hashlib.new(name, usedforsecurity=False)
    try:
        if len(text) == 2 * hasher.digest_size:
            return hasher, bytes.fromhex(text)
        return hasher, base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except (ValueError, binascii.Error):
        return None, b""


def _find_next(file: FileBytes) -> None:
    """Go to the next place where a record begins, or to the end."""
    while ahead := file.peek(_PROBE, _PROBE):
        places = [position for magic in (_GZIP, _WARC) if (position := ahead.find(magic)) >= 0]
        if not places:
            file.skip(max(len(ahead) - len(_WARC) + 1, 1))
            continue
        file.skip(min(places))
        if _begins(file.peek(_PROBE)):
            return
        file.count_vain(_PROBE)
        file.skip(1)


def _begins(head: bytes) -> bool:
    if not head.startswith(_GZIP):
        return head.startswith((b"WARC/1.", b"WARC/0."))
    try:
        return isal_zlib.decompressobj(wbits=31).decompress(head[:_PROBE], 64).startswith(_WARC)
    except isal_zlib.error:  # type: ignore[misc]
        return False
