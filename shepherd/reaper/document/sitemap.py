"""Sitemaps, sitemap indexes and feeds: documents that are lists of URLs, each with the time it was last modified.

XML is read by expat, in one pass. Invariant: no document type is accepted, so there are no entities and no bombs of them; what a
document lists before it breaks a limit or stops being XML is kept, what follows is not. A gzipped one is unpacked in steps, so
that its size never matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from shepherd.dates import seconds_of
from shepherd.expressions import Markup
from shepherd.reaper.document.sniff import FEED_ROOTS, SITEMAP_ROOTS, root_element

MAX_URLS: Final = 50_000
MAX_BYTES: Final = 64 * 1024 * 1024  # unpacked; the protocol allows 50 MB
MAX_DEPTH: Final = 32
MAX_ELEMENTS: Final = 500_000  # each costs about 4 us, and an entry seldom has more than ten
MAX_ELEMENT: Final = 64 * 1024  # characters of text in one element
MAX_URL: Final = 4_096

_STEP: Final = 64 * 1024
_PEEK: Final = 4 * 1024
_TIMES: Final = ("lastmod", "updated", "published", "pubdate", "date", "modified")
_FOLLOWED: Final = ("alternate", "related", "via", "first", "previous", "next", "last")
_ENTRIES: Final = ("url", "sitemap", "item", "entry")  # what a time belongs to


@dataclass
class Listing:
    """What a document lists: distinct URLs as written, in order, each with its time, 0 where it has none."""

    urls: dict[str, int] = field(default_factory=dict)
    title: str = ""
    why: str = ""  # why the rest was not read


def is_sitemap(body: bytes) -> bool:
    """Whether an XML body is a sitemap, by its root element."""
    return root_element(body) in SITEMAP_ROOTS


def is_gzipped_listing(body: bytes) -> bool:
    """Whether a gzip file holds a sitemap or a feed, or a list of URLs: only its beginning is unpacked to see."""
    peek = next(_unpacked(body, _PEEK), b"")
    return root_element(peek) in (*SITEMAP_ROOTS, *FEED_ROOTS) or is_url_list(peek)


def is_url_list(body: bytes) -> bool:
    """Whether a text is a sitemap of one URL a line: all of its first lines are URLs and nothing else."""
    lines = body[:_PEEK].removeprefix(b"\xef\xbb\xbf").splitlines()
    lines = [line for line in (lines if len(body) <= _PEEK else lines[:-1]) if line.strip()]
    return bool(lines) and all(Markup.LISTED_URL.fullmatch(line) for line in lines)


def read_list(body: bytes) -> Listing:
    """The URLs of a sitemap of one URL a line."""
    listing = Listing()
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    for line in Markup.LINE.finditer(body, start, MAX_BYTES):  # one at a time: a list of millions of lines would be a bomb
        if Markup.LISTED_URL.fullmatch(line.group()):
            listing.urls.setdefault(line.group().strip().decode("utf-8", "replace"), 0)
            if len(listing.urls) == MAX_URLS:
                listing.why = f"more than {MAX_URLS:,} URLs"
                break
    return listing


def read_gzipped(body: bytes) -> Listing:
    """Read the packed document like read_xml, or like read_list."""
    peek = next(_unpacked(body, _PEEK), b"")
    if is_url_list(peek):
        return read_list(b"".join(_unpacked(body, _STEP)))
    return _read(_unpacked(body, _STEP))


def read_xml(body: bytes) -> Listing:
    """The URLs of a sitemap, a sitemap index, RSS, RDF or Atom."""
    return _read(body[offset : offset + _STEP] for offset in range(0, min(len(body), MAX_BYTES), _STEP))


def _read(pieces: Iterator[bytes]) -> Listing:
    reader = _Reader()
    try:
        bytes_read = 0
        for piece in pieces:
            reader.parser.Parse(piece, False)
            bytes_read += len(piece)
            if bytes_read - reader.parser.CurrentByteIndex > MAX_ELEMENT + _STEP:  # expat begins anew on a tag that does not end
                raise _LimitReached(f"more than {MAX_ELEMENT:,} bytes in one tag")
        reader.parser.Parse(b"", True)
    except _LimitReached as reached:
        reader.listing.why = str(reached)
    except expat.ExpatError as error:
        reader.listing.why = f"not well-formed: {expat.errors.messages[error.code]}"
    except (UnicodeError, ValueError, LookupError) as error:  # an encoding that Python does not know, or that maps nowhere
        reader.listing.why = f"not readable: {error}"
    reader.end_entry()
    return reader.listing


class _LimitReached(Exception):
    """A limit was reached."""


class _Reader:
    """The callbacks of expat. An entry may have its time before its URL or after it."""

    def __init__(self) -> None:
        self.listing = Listing()
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.buffer_size = _STEP
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self._depth = self._elements = 0
        self._texts: list[str] = []
        self._size = 0
        self._links: list[str] = []
        self._time = 0

    def end_entry(self) -> None:
        """Add the URLs of the entry that has ended, or in which reading stopped."""
        for link in self._links:
            if len(self.listing.urls) >= MAX_URLS and link not in self.listing.urls:
                break
            self.listing.urls[link] = max(self._time, self.listing.urls.get(link, 0))
        self._links, self._time = [], 0

    def _doctype(self, *_: object) -> None:
        raise _LimitReached("it has a document type, which is refused")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _LimitReached(f"nested deeper than {MAX_DEPTH}")
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise _LimitReached(f"more than {MAX_ELEMENTS:,} elements")
        self._texts, self._size = [], 0
        local = _local(name)
        if local in _ENTRIES:
            self.end_entry()
        elif local == "link" and "href" in attributes and attributes.get("rel", "alternate") in _FOLLOWED:
            self._add(attributes["href"])  # in Atom, and for other languages in a sitemap

    def _text(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ELEMENT:
            raise _LimitReached(f"more than {MAX_ELEMENT:,} characters in one element")
        self._texts.append(text)

    def _end(self, name: str) -> None:
        self._depth -= 1
        local, text = _local(name), "".join(self._texts).strip()
        self._texts = []
        if (
            (local == "loc" and self._depth == 2)  # deeper ones are of images and videos
            or (local == "link" and text)
            or (local == "guid" and text.startswith(("http://", "https://")) and not self._links)
        ):
            self._add(text)
        elif local in _TIMES and text:
            self._time = max(self._time, seconds_of(text))
        elif local == "title" and not self.listing.title and self._depth <= 2:
            self.listing.title = text
        elif local in _ENTRIES:
            self.end_entry()

    def _add(self, link: str) -> None:
        if not 0 < len(link) <= MAX_URL:
            return
        self._links.append(link.strip())
        if len(self.listing.urls) + len(self._links) > MAX_URLS:
            raise _LimitReached(f"more than {MAX_URLS:,} URLs")


def _local(name: str) -> str:
    return name.rpartition(" ")[2].lower()


def _unpacked(body: bytes, step: int) -> Iterator[bytes]:
    """The contents of a gzip file, in steps, as far as they can be unpacked and at most MAX_BYTES."""
    from isal import isal_zlib

    stream = isal_zlib.decompressobj(wbits=31)
    packed, bytes_left = body, MAX_BYTES
    while bytes_left > 0 and not stream.eof:
        try:
            piece = stream.decompress(packed, min(step, bytes_left))
        except isal_zlib.error:  # type: ignore[misc]  # its stub calls the class an instance
            return
        packed = stream.unconsumed_tail
        if not piece:
            return
        bytes_left -= len(piece)
        yield piece
