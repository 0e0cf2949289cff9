"""What a page needs to be shown: images, scripts, styles, media. Read only where an operator wants them; see docs/operations.md.

The strings are as written. Invariant: every expression takes one linear pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from re import Match
from typing import Final

from shepherd.expressions import StyleSheet

MAX_CSS: Final = 4 * 1024 * 1024  # characters of a style sheet that are read

_SOURCES: Final = {
    "img": ("src", "longdesc"),
    "script": ("src",),
    "source": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "track": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "input": ("src",),
    "image": ("href", "xlink:href"),  # of SVG
    "body": ("background",),
    "table": ("background",),
    "td": ("background",),
}
_SRCSETS: Final = {"img": "srcset", "source": "srcset", "link": "imagesrcset"}
_RELATIONS: Final = frozenset(("stylesheet", "icon", "apple-touch-icon", "mask-icon", "manifest", "preload", "modulepreload"))
REQUIRING: Final = frozenset((*_SOURCES, *_SRCSETS, "style"))  # tags that may need something


def of_tag(name: str, attributes: dict[str, str | None], text: str) -> Iterator[str]:
    """The URLs that a start tag needs; `text` is that of a style element."""
    for attribute in _SOURCES.get(name, ()):
        if value := attributes.get(attribute):
            yield value
    if name in _SRCSETS and (value := attributes.get(_SRCSETS[name])):
        yield from of_srcset(value)
    if name == "link" and not _RELATIONS.isdisjoint((attributes.get("rel") or "").lower().split()):
        yield attributes.get("href") or ""
    if name == "style":
        yield from of_css(text)
    if style := attributes.get("style"):
        yield from of_css(style)


def of_srcset(text: str) -> Iterator[str]:
    """The URLs of a list of candidates, each with its width or density."""
    position = 0
    while candidate := StyleSheet.CANDIDATE.match(text, position):
        url, position = candidate.group(1), candidate.end()
        if not url.endswith(",") and (descriptors := StyleSheet.DESCRIPTORS.match(text, position)):
            position = descriptors.end()
        yield url.rstrip(",")


def of_css(text: str) -> Iterator[str]:
    """The URLs of url() and @import."""
    if "(" not in text and "@" not in text:  # as most style attributes are
        return
    for reference in StyleSheet.URL.finditer(StyleSheet.COMMENT.sub(" ", text[:MAX_CSS])):
        if reference.group().endswith("\n"):
            continue  # a string that its line breaks off is no URL
        url = next(part for part in (*reference.groups(), "") if part is not None)
        yield StyleSheet.ESCAPE.sub(_unescape, url) if "\\" in url else url


def _unescape(escape: Match[str]) -> str:
    digits, literal = escape.groups()
    if digits is None:
        return literal if literal != "\n" else ""
    number = int(digits, 16)
    return chr(number) if 0 < number <= 0x10FFFF and not 0xD800 <= number < 0xE000 else "\ufffd"
