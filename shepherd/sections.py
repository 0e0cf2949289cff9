"""Sections: kinds of documents that select counts apart, by name and by number (docs/formats.md).

Numbers below OWN are ours and never change their meaning; those from OWN on are the operator's, who writes them as numbers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

OWN: Final = 32
LAST: Final = 255


class Section(IntEnum):
    NONE = 0  # of no known kind
    HTML = 1
    TEXT = 2
    PDF = 3
    OFFICE = 4
    IMAGE = 5
    AUDIO = 6
    VIDEO = 7
    FEED = 8
    DATA = 9
    ARCHIVE = 10
    OTHER = 31


NAMES: Final = {section.name.lower(): int(section) for section in Section}
ALLOWED: Final = f"{', '.join(NAMES)}, or a number of your own from {OWN} to {LAST}"


def section_number(name: str) -> int:
    """The number of a section as an operator writes it; ValueError if it names no section."""
    if name in NAMES:
        return NAMES[name]
    if name.isascii() and name.isdecimal() and len(name) <= 3 and OWN <= int(name) <= LAST:
        return int(name)
    raise ValueError(f"{name!r} is not a section; allowed is {ALLOWED}")


_CODE: Final = ("text/css", "text/javascript", "application/javascript")
_PACKED: Final = ("application/vnd.rar", "application/x-gzip", "application/x-bzip2", "application/x-xz", "application/zstd")
_WRITTEN: Final = ("application/x-ole-storage", "application/epub+zip", "application/postscript")
_OF_TYPE: Final = (
    (Section.HTML, ("text/html", "application/xhtml+xml")),
    (Section.FEED, ("application/rss+xml", "application/atom+xml", "application/feed+json")),
    (Section.PDF, ("application/pdf",)),
    (Section.DATA, ("application/json", "application/xml", "text/xml", "text/csv", *_CODE)),
    (Section.ARCHIVE, ("application/zip", "application/gzip", "application/x-tar", "application/x-7z", *_PACKED)),
    (Section.OFFICE, ("application/msword", "application/vnd.", "application/rtf", *_WRITTEN)),
    (Section.TEXT, ("text/",)),
    (Section.IMAGE, ("image/",)),
    (Section.AUDIO, ("audio/",)),
    (Section.VIDEO, ("video/",)),
)


def section_of_type(media_type: str) -> Section:
    """The section of a document by its media type, in lower case and without parameters; the first that fits."""
    for section, beginnings in _OF_TYPE:
        if media_type.startswith(beginnings):
            return section
    return Section.OTHER if media_type else Section.NONE


def section_name(number: int) -> str:
    """As section_number reads it; a number that has no name yet is shown as it is."""
    return next((name for name, value in NAMES.items() if value == number), str(number))
