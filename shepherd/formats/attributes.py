"""The attributes of buckets: the table of their letters, and the records of v3.3 (docs/formats.md, "Attributes").

Readers keep what they do not know, writers write only what the table has. What is wrong with some bytes is a ValueError that says
what: the caller knows the place and makes it Corruption.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

TEXT: Final = "text"
HEX: Final = "hex"
NUMBER: Final = "number"


@dataclass(frozen=True)
class Attribute:
    """`form` is how v2 and v3.0 spell the contents; `unit` their width in bytes, or that of each part, 0 where any will do."""

    name: str
    form: str = TEXT
    unit: int = 0
    most: int = 1  # units, where there is one
    old: bool = False  # only v2 and v3.0 have it: in v3.3 the header does


TABLE: Final[dict[str, Attribute]] = {
    "U": Attribute("URL"),
    "S": Attribute("status line"),
    "H": Attribute("headers"),
    "T": Attribute("content type"),
    "C": Attribute("charset"),
    "D": Attribute("digest", HEX, 32),
    "t": Attribute("title"),
    "L": Attribute("links", HEX, 16, 256),
    "A": Attribute("server address"),
    "m": Attribute("download time", NUMBER, 4),
    "X": Attribute("truncated"),
    "E": Attribute("redirect target"),
    "P": Attribute("provenance"),
    "R": Attribute("referrer"),
    "K": Attribute("canonical"),
    "l": Attribute("language"),
    "N": Attribute("robots wishes"),
    "M": Attribute("last modified", NUMBER, 8),
    "h": Attribute("simhash", HEX, 8),
    "F": Attribute("footprint", HEX, 16, old=True),
    "G": Attribute("gathered", NUMBER, 8, old=True),
}
MAX_LINKS: Final = TABLE["L"].most

_LENGTH: Final = struct.Struct("<I")
_LETTERS: Final = tuple(chr(byte) if chr(byte).isascii() and chr(byte).isalpha() else "" for byte in range(256))


def pack_records(attributes: Iterable[tuple[str, bytes]]) -> bytes:
    """The records of v3.3."""
    parts: list[bytes] = []
    letters = ""
    for letter, contents in attributes:
        if letter in letters or letter not in TABLE or TABLE[letter].old:
            raise ValueError(f"attribute {letter!r} is written twice, or unknown to v3.3")
        letters += letter
        parts += (_LENGTH.pack(len(contents)), contents, letter.encode())
    return b"".join(parts)


def read_records(table: bytes) -> dict[str, bytes]:
    """Contents by letter."""
    contents: dict[str, bytes] = {}
    offset, end = 0, len(table)
    while offset < end:
        if offset + 5 > end:
            raise ValueError("an attribute is cut off")
        stop = offset + 4 + _LENGTH.unpack_from(table, offset)[0]
        if stop >= end:
            raise ValueError("an attribute runs over the end")
        letter = _LETTERS[table[stop]]
        if not letter or letter in contents:
            raise ValueError(f"attribute {chr(table[stop])!r} is not a letter, or is there twice")
        contents[letter] = table[offset + 4 : stop]
        offset = stop + 1
    return contents
