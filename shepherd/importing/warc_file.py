"""The records of a WARC file (1.0 and 1.1, plain or gzip), one after the other, whatever state the file is in.

A record is given only when all of it was read: its header parsed (by warcio), its block as long as it says, with the digest that
it names, and the end of its gzip member checked. What is damaged is told with its offset, and reading goes on at the next place
where a record begins. The container is read here and not by warcio, which takes a gzip member that breaks off for the end of its
record, and reads lines of any length into memory. Invariant: of a record at most `most` bytes of the block are held.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from isal import isal_zlib
from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeadersParser, StatusAndHeadersParserException

PIECE: Final = 1 << 16
MOST_HEADER: Final = 1 << 16
BEHIND: Final = 1 << 18  # bytes of a stream that cannot go back: a broken member may have taken in the begin of the next
_GZIP: Final = b"\x1f\x8b\x08"
_WARC: Final = b"WARC/"
_BLANK: Final = b"\r\n"
_AFTER: Final = b"\r\n\r\n"
_PROBE: Final = 1 << 14  # bytes in which the begin of a record shows, if one is there
_KEPT: Final = ("response", "revisit")  # of all others nobody needs the block
_PARSER: Final = StatusAndHeadersParser(ArcWarcRecordLoader.WARC_TYPES)


class Broken(Exception):
    """Why there is no record."""


@dataclass(frozen=True)
class Record:
    offset: int
    type: str
    headers: Mapping[str, str]  # by name in lower case
    block: bytes  # its first bytes, at most `most`
    length: int  # of the whole block

    @property
    def cut(self) -> bool:
        return len(self.block) < self.length


@dataclass(frozen=True)
class Damage:
    offset: int
    why: str


class Stream(Protocol):
    """What records are read from."""

    def read(self, size: int, /) -> bytes: ...
    def seekable(self) -> bool: ...
    def seek(self, offset: int, /) -> object: ...


class Text(Protocol):
    """Bytes that records are read from: the file itself, or what a gzip member holds."""

    def see(self, size: int) -> bytes:
        """The next bytes, at least so many if there are; they stay."""

    def skip(self, size: int) -> None:
        """Be done with bytes that were seen."""


class File:
    """A stream of bytes, of which the next ones can be looked at before they are taken."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._held, self._from = stream, b"", 0
        self._behind = 0 if stream.seekable() else BEHIND
        self.at = 0

    def see(self, size: int) -> bytes:
        while len(self._held) - self._from < size and (more := self._stream.read(PIECE)):
            gone = max(0, self._from - self._behind)
            self._held, self._from = self._held[gone:] + more, self._from - gone
        return self._held[self._from :]

    def skip(self, size: int) -> None:
        self._from += size
        self.at += size

    def go_behind(self, offset: int) -> None:
        """Go on behind a byte that was seen; a stream that cannot go back that far goes back as far as it can."""
        if self._stream.seekable() and offset < self.at:
            self._stream.seek(offset + 1)
            self._held, self._from, self.at = b"", 0, offset + 1
        else:
            self.skip(max(offset + 1 - self.at, -self._from))


class Member:
    """What one gzip member holds."""

    def __init__(self, file: File) -> None:
        self._file, self._inflate = file, isal_zlib.decompressobj(wbits=31)
        self._held, self._from = b"", 0

    def see(self, size: int) -> bytes:
        while len(self._held) - self._from < size and not self._inflate.eof:
            self._held, self._from = self._held[self._from :] + self._more(), 0
        return self._held[self._from :]

    def skip(self, size: int) -> None:
        self._from += size

    def _more(self) -> bytes:
        given = self._file.see(1)[:PIECE]
        try:
            plain = self._inflate.decompress(given, PIECE)
        except isal_zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
            raise Broken(f"broken gzip: {error}") from error
        # At the end of a member zlib has what follows it in both: unconsumed_tail is not emptied.
        rest = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._file.skip(len(given) - len(rest))
        if not given and not plain and not self._inflate.eof:
            raise Broken("the file ends inside a gzip member")
        return bytes(plain)


def records(stream: Stream, most: int) -> Iterator[Record | Damage]:
    """All that can be read, and what cannot."""
    file = File(stream)
    while seen := file.see(len(_WARC)):
        start = file.at
        if seen[:1] in _BLANK:
            file.skip(len(seen) - len(seen.lstrip(_BLANK)))
            continue
        try:
            if seen.startswith(_GZIP):
                yield from _in_member(file, start, most)
            else:
                yield _record(file, start, most)
        except Broken as error:
            file.go_behind(start)
            _find_next(file)
            yield Damage(start, f"{error}; read on at {file.at}")


def _in_member(file: File, start: int, most: int) -> Iterator[Record]:
    """One record, as it should be; or several, as where a whole file was packed at once: then all have the same offset."""
    member = Member(file)
    if not _ends(member):
        yield _record(member, start, most)
        while not _ends(member):
            yield _record(member, start, most)


def _ends(text: Text) -> bool:
    """Whether nothing follows but empty lines, which go."""
    while seen := text.see(1):
        rest = seen.lstrip(_BLANK)
        text.skip(len(seen) - len(rest))
        if rest:
            return False
    return True


def _record(text: Text, start: int, most: int) -> Record:
    headers = _headers(text)
    length = headers.get("content-length", "")
    if not length.isdecimal() or len(length) > 18:
        raise Broken("no Content-Length that is a number")
    kind = headers.get("warc-type", "").lower()
    block = _block(text, int(length), most if kind in _KEPT else 0, headers.get("warc-block-digest", ""))
    # In a plain file the empty lines show that the length was right, whatever follows; many writers leave out some of them.
    in_order = isinstance(text, File) and text.see(len(_AFTER)).startswith(_AFTER)
    if not _ends(text) and not in_order and not _may_begin(text.see(len(_WARC))[: len(_WARC)]):
        raise Broken("what follows is no record: its Content-Length is wrong")
    return Record(start, kind, headers, block, int(length))


def _may_begin(seen: bytes) -> bool:
    """Whether a record begins there, as far as it goes."""
    return any(seen.startswith(magic[: len(seen)]) for magic in (_WARC, _GZIP))


def _headers(text: Text) -> dict[str, str]:
    seen = text.see(len(_WARC))
    if not seen.startswith(_WARC):
        raise Broken("no record begins here")
    size = 0
    while not (size := _head_size(seen)):
        if len(seen) > MOST_HEADER:
            raise Broken(f"a header of more than {MOST_HEADER} bytes")
        before, seen = len(seen), text.see(len(seen) + 1)
        if len(seen) == before:
            raise Broken("it ends inside its header")
    text.skip(size)
    try:
        found = _PARSER.parse(io.BytesIO(seen[:size]))
    except (StatusAndHeadersParserException, ArchiveLoadFailed, EOFError, ValueError) as error:
        raise Broken(f"its header cannot be read: {type(error).__name__}") from error
    return {name.lower(): value for name, value in reversed(found.headers)}  # of several of a name the first counts


def _head_size(seen: bytes) -> int:
    """How many bytes a header has, with the empty line behind it; 0 if that has not come yet."""
    end = seen.find(b"\n\r\n", 0, MOST_HEADER)
    bare = seen.find(b"\n\n", 0, end if end >= 0 else MOST_HEADER)
    return bare + 2 if bare >= 0 else end + 3 if end >= 0 else 0


def _block(text: Text, length: int, most: int, digest: str) -> bytes:
    """The first bytes of a block; all of it is read, and compared with its digest where that can be done."""
    hasher, wanted = _hasher(digest)
    parts: list[bytes] = []
    held, left = 0, length
    while left:
        part = text.see(1)[:left]
        if not part:
            raise Broken(f"it ends {left} bytes before its block does")
        text.skip(len(part))
        left -= len(part)
        if hasher is not None:
            hasher.update(part)
        if held < most:
            parts.append(part[: most - held])
            held += len(parts[-1])
    if hasher is not None and hasher.digest() != wanted:
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


def _find_next(file: File) -> None:
    """Go to the next place where a record begins, or to the end."""
    while seen := file.see(_PROBE):
        places = [at for magic in (_GZIP, _WARC) if (at := seen.find(magic)) >= 0]
        if not places:
            file.skip(max(len(seen) - len(_WARC) + 1, 1))
            continue
        file.skip(min(places))
        if _begins(file.see(_PROBE)):
            return
        file.skip(1)


def _begins(seen: bytes) -> bool:
    if not seen.startswith(_GZIP):
        return seen.startswith((b"WARC/1.", b"WARC/0."))
    try:
        return isal_zlib.decompressobj(wbits=31).decompress(seen[:_PROBE], 64).startswith(_WARC)
    except isal_zlib.error:  # type: ignore[misc]
        return False
