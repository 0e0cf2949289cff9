"""The tags of a page as a flat sequence, from one linear pass: html_page.py reads it where a tree would be a bomb.

Building a tree is not linear: 100,000 nested elements cost 25 s, 2,000 open `<font>` before 2,000 paragraphs 1.4 GB, 20,000
attributes of one tag 0.8 s. `is_tame` decides, and must stay cheap, because every page passes it. Invariants: a page that it
calls tame costs the tree builder at most about 2 s and 150 MB; `scan_tags` costs about 2 us a tag, and stops after MAX_TAGS; both
take time linear in the page, whatever its bytes.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from html.entities import html5
from itertools import islice
from re import Match, Pattern
from typing import Final, NamedTuple

import numpy as np

from shepherd.expressions import Markup, RawEnd

MAX_TAGS: Final = 200_000
MAX_VALUE_BYTES: Final = 8_192  # of an attribute; longer ones are left out, no URL is that long
LINK_TAGS: Final = frozenset(("a", "area", "base", "frame", "html", "iframe", "link", "meta", "title"))

_OPENING: Final = ord("<")
_TAME_PAGE: Final = 4 * 1024 * 1024  # bytes; lexbor notes an error of some 20 bytes for every NUL, and keeps all text
_TAME_TAGS: Final = 10_000
_TAME_CLONES: Final = 300_000  # elements that reopening unclosed formatting tags can make, about 350 bytes each
_TAME_BYTES: Final = 128 * 1024  # so few bytes hold 33,000 attributes of different names at most: 1.6 s if one tag has them all
_CROWDED: Final = 500  # attributes of a tag
_CROWDED_BYTES: Final = 2 * _CROWDED  # a tag of fewer bytes is not crowded
_RAW_END: Final[dict[str, Pattern[bytes]]] = {
    name: getattr(RawEnd, name.upper())
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
}
_MOST_WALKS: Final = 4  # times the bytes of a page that its tags may have together, where one seems to stand inside another


class Tag(NamedTuple):
    name: str
    attributes: dict[str, str | None]
    text: str = ""  # of a title or style


def is_tame(page: bytes) -> bool:
    """Whether a tree of this page (UTF-8) is cheap to build."""
    if len(page) > _TAME_PAGE:
        return False
    tags = int(np.count_nonzero(np.frombuffer(page, np.uint8) == _OPENING))  # a quarter of the time of page.count
    if tags > _TAME_TAGS:
        return False
    if tags * tags > 4 * _TAME_CLONES:  # below that, no split into openings and paragraphs makes more
        # Without attributes a formatting tag is reopened three times at most, and `a` closes the one before it.
        openings = len(Markup.FORMATTING.findall(page.lower()))
        if openings * tags > _TAME_CLONES:
            return False
    if len(page) > _TAME_BYTES or Markup.LONG_TAG.search(page):
        return not _is_crowded(page)
    return True


def _is_crowded(page: bytes) -> bool:
    """Whether a tag has so many attributes that a tree is expensive.

    A walk starts at each `<`, as some may stand in scripts, comments or quotes. The walks of an honest page hardly overlap; a
    page whose walks do counts as crowded, so that all of them together stay linear.
    """
    bytes_left = _MOST_WALKS * len(page)
    for opening in Markup.OPEN_TAG.finditer(page):
        tag = Markup.WHOLE_TAG.match(page, opening.start())
        assert tag is not None  # it matches the two bytes of any opening
        size = tag.end() - tag.start()
        if size <= _CROWDED_BYTES:
            continue
        bytes_left -= size
        attributes = islice(Markup.ATTRIBUTE.finditer(page, tag.start() + 1, tag.end()), _CROWDED + 1)
        if bytes_left < 0 or sum(1 for _ in attributes) > _CROWDED:
            return True
    return False


def scan_tags(page: bytes, all_tags: bool = False) -> Iterator[Tag]:
    """The start tags of a page (UTF-8), those in LINK_TAGS or all, in order. Comments, scripts and the like are skipped."""
    position = tag_count = in_svg = 0
    while tag_count < MAX_TAGS and (opening := Markup.NEXT.search(page, position)):
        tag_count += 1
        if not opening.group()[-1:].isalpha():
            position = _past_comment(page, opening)
            continue
        tag = Markup.TAG.match(page, opening.start())
        if tag is None:
            return  # the page ends inside this tag
        position = tag.end()
        name = tag.group(2).decode("utf-8", "replace").lower()
        if name == "svg":
            in_svg += -1 if tag.group(1) else 1
        if tag.group(1):
            continue
        if name == "plaintext":
            return
        end = position
        if name in _RAW_END and not in_svg:
            closing = _RAW_END[name].search(page, position)
            end = closing.start() if closing else len(page)
        if (all_tags or name in LINK_TAGS) and not (in_svg and name == "title"):
            text = page[position : min(end, position + MAX_VALUE_BYTES)] if name in ("title", "style") else b""
            yield Tag(
                name, _attributes(tag.group(3)), _decode_references(text) if name == "title" else text.decode("utf-8", "replace")
            )
        position = end


def _past_comment(page: bytes, opening: Match[bytes]) -> int:
    """Where a comment ends, or a declaration or a stray `</`, which end at the next `>`."""
    if opening.group() != b"<!--":
        end = page.find(b">", opening.end())
        return end + 1 if end >= 0 else len(page)
    if page.startswith((b">", b"->"), opening.end()):
        return opening.end() + 1
    closing = Markup.COMMENT_END.search(page, opening.end())
    return closing.end() if closing else len(page)


def _attributes(source: bytes) -> dict[str, str | None]:
    attributes: dict[str, str | None] = {}
    for attribute in Markup.ATTRIBUTE.finditer(source):
        name, double, single, bare = attribute.groups()
        value = next((value for value in (double, single, bare) if value is not None), None)
        if len(name) > 40 or (value is not None and len(value) > MAX_VALUE_BYTES):
            continue
        attributes.setdefault(name.decode("utf-8", "replace").lower(), None if value is None else _decode_references(value))
        if len(attributes) == _CROWDED:
            break
    return attributes


def _decode_references(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return Markup.REFERENCE.sub(_character_of, text) if "&" in text else text


def _character_of(reference: Match[str]) -> str:
    name = reference.group(1)
    return html.unescape(reference.group()) if name is None else html5.get(name, reference.group())
