"""Sitemaps, sitemap indexes and feeds: documents that are lists of URLs, each with the time it was last modified.

XML is read by expat, in one pass. Invariant: no document type is accepted, so there are no entities and no bombs of them; what a
document lists before it breaks a limit or stops being XML is kept, what follows is not. A gzipped one is unpacked in steps, so
that its size never matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from shepherd.dates import seconds_of
from shepherd.reaper.document.sniff import FEED_ROOTS, SITEMAP_ROOTS, root_element

MAX_URLS: Final = 50_000
MAX_BYTES: Final = 64 * 1024 * 1024  # unpacked; the protocol allows 50 MB
MAX_DEPTH: Final = 32
MAX_ELEMENTS: Final = 500_000  # each costs about 4 us, and an entry seldom has more than ten
MAX_ELEMENT: Final = 64 * 1024  # characters of text in one element
MAX_URL: Final = 4_096

_STEP: Final = 64 * 1024
_PEEK: Final = 4 * 1024
_LINE: Final = re.compile(rb"\s*https?://[^\s<>\"]{1,4096}\s*", re.IGNORECASE)
_TIMES: Final = ("lastmod", "updated", "published", "pubdate", "date", "modified")
_FOLLOWED: Final = ("alternate", "related", "via", "first", "previous", "next", "last")
_ENTRIES: Final = ("url", "sitemap", "item", "entry")  # what a time belongs to


@dataclass
class Listed:
    """What a document lists: URLs as written, in order, no two equal, and the time of each, 0 where none is given."""

    urls: dict[str, int] = field(default_factory=dict)
    title: str = ""
    why: str = ""  # the rest was not read, and why


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
    return bool(lines) and all(_LINE.fullmatch(line) for line in lines)


def read_list(body: bytes) -> Listed:
    """The URLs of a sitemap of one URL a line."""
    found = Listed()
    for line in body.removeprefix(b"\xef\xbb\xbf")[:MAX_BYTES].splitlines():
        if _LINE.fullmatch(line):
            found.urls.setdefault(line.strip().decode("utf-8", "replace"), 0)
            if len(found.urls) == MAX_URLS:
                found.why = f"more than {MAX_URLS:,} URLs"
                break
    return found


def read_gzipped(body: bytes) -> Listed:
    """As read_xml, or read_list, of what is packed."""
    peek = next(_unpacked(body, _PEEK), b"")
    if is_url_list(peek):
        return read_list(b"".join(_unpacked(body, _STEP)))
    return _read(_unpacked(body, _STEP))


def read_xml(body: bytes) -> Listed:
    """The URLs of a sitemap, a sitemap index, RSS, RDF or Atom."""
    return _read(body[at : at + _STEP] for at in range(0, min(len(body), MAX_BYTES), _STEP))


def _read(pieces: Iterator[bytes]) -> Listed:
    reader = _Reader()
    try:
        given = 0
        for piece in pieces:
            reader.parser.Parse(piece, False)
            given += len(piece)
            if given - reader.parser.CurrentByteIndex > MAX_ELEMENT + _STEP:  # expat begins anew on a tag that does not end
                raise _Enough(f"more than {MAX_ELEMENT:,} bytes in one tag")
        reader.parser.Parse(b"", True)
    except _Enough as enough:
        reader.found.why = str(enough)
    except expat.ExpatError as error:
        reader.found.why = f"not well-formed: {expat.errors.messages[error.code]}"
    except (UnicodeError, ValueError, LookupError) as error:  # an encoding that Python does not know, or that maps nowhere
        reader.found.why = f"not readable: {error}"
    reader.end_entry()
    return reader.found


class _Enough(Exception):
    """A limit was reached."""


class _Reader:
    """Hears what expat reads. An entry may give its time before its URL or after it."""

    def __init__(self) -> None:
        self.found = Listed()
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.buffer_size = _STEP
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self._depth = self._elements = 0
        self._said: list[str] = []
        self._size = 0
        self._links: list[str] = []
        self._time = 0

    def end_entry(self) -> None:
        """Take in the URLs of the entry that has ended, or in which reading stopped."""
        for link in self._links:
            if len(self.found.urls) >= MAX_URLS and link not in self.found.urls:
                break
            self.found.urls[link] = max(self._time, self.found.urls.get(link, 0))
        self._links, self._time = [], 0

    def _doctype(self, *_: object) -> None:
        raise _Enough("it has a document type, which is refused")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Enough(f"nested deeper than {MAX_DEPTH}")
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise _Enough(f"more than {MAX_ELEMENTS:,} elements")
        self._said, self._size = [], 0
        local = _local(name)
        if local in _ENTRIES:
            self.end_entry()
        elif local == "link" and "href" in attributes and attributes.get("rel", "alternate") in _FOLLOWED:
            self._add(attributes["href"])  # in Atom, and for other languages in a sitemap

    def _text(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ELEMENT:
            raise _Enough(f"more than {MAX_ELEMENT:,} characters in one element")
        self._said.append(text)

    def _end(self, name: str) -> None:
        self._depth -= 1
        local, text = _local(name), "".join(self._said).strip()
        self._said = []
        if (
            (local == "loc" and self._depth == 2)  # deeper ones are of images and videos
            or (local == "link" and text)
            or (local == "guid" and text.startswith(("http://", "https://")) and not self._links)
        ):
            self._add(text)
        elif local in _TIMES and text:
            self._time = max(self._time, seconds_of(text))
        elif local == "title" and not self.found.title and self._depth <= 2:
            self.found.title = text
        elif local in _ENTRIES:
            self.end_entry()

    def _add(self, link: str) -> None:
        if not 0 < len(link) <= MAX_URL:
            return
        self._links.append(link.strip())
        if len(self.found.urls) + len(self._links) > MAX_URLS:
            raise _Enough(f"more than {MAX_URLS:,} URLs")


def _local(name: str) -> str:
    return name.rpartition(" ")[2].lower()


def _unpacked(body: bytes, step: int) -> Iterator[bytes]:
    """The contents of a gzip file, in steps, as far as they can be unpacked and at most MAX_BYTES."""
    from isal import isal_zlib

    stream = isal_zlib.decompressobj(wbits=31)
    given, left = body, MAX_BYTES
    while left > 0 and not stream.eof:
        try:
            piece = stream.decompress(given, min(step, left))
        except isal_zlib.error:  # type: ignore[misc]  # its stub calls the class an instance
            return
        given = stream.unconsumed_tail
        if not piece:
            return
        left -= len(piece)
        yield piece
