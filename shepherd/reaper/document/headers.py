"""What the headers of an answer say of its document: type, robots wishes, canonical URL, language, when it was modified.

Nothing raises, whatever a server sends. One function reads the words of X-Robots-Tag and of a robots meta tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shepherd.dates import http_seconds
from shepherd.expressions import HeaderForm

MAX_LANGUAGE: Final = 35  # characters, as BCP 47 advises

_VALUED: Final = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")


@dataclass(frozen=True)
class HeaderFacts:
    """What the headers say; "" and empty where they say nothing."""

    content_type: str = ""  # the header as it came
    wishes: frozenset[str] = frozenset()  # some of noindex, nofollow
    canonical: str = ""  # as written
    language: str = ""


def facts_of_headers(content_type: str, x_robots: Sequence[str], link: Sequence[str], languages: str, agent: str) -> HeaderFacts:
    """Read the headers of an answer; wishes may be addressed to the product token `agent`."""
    return HeaderFacts(content_type, robots_wishes("\n".join(x_robots), agent), canonical_of(link), language_of(languages))


def robots_wishes(text: str, agent: str) -> frozenset[str]:
    """The wishes in a robots meta tag or in X-Robots-Tag lines that are for us: some of `noindex` and `nofollow`.

    `name: words` is for that agent alone, up to the next name or the end of the line.
    """
    wishes: set[str] = set()
    for line in text.lower().split("\n") if text else ():
        ours = True
        for part in line.split(","):
            name, colon, word = part.rpartition(":")
            name = name.strip()
            if colon and name.partition(":")[0].strip() not in _VALUED:
                ours = name in (agent.lower(), "*")
            word = word.strip()
            if ours and word in ("noindex", "nofollow", "none"):
                wishes |= {"noindex", "nofollow"} if word == "none" else {word}
    return frozenset(wishes)


def canonical_of(links: Sequence[str]) -> str:
    """The target of the first Link header with rel=canonical (RFC 8288, RFC 6596)."""
    for header in links:
        for link in HeaderForm.LINK.finditer(header):
            relation = HeaderForm.REL.search(link.group(2))
            if relation and "canonical" in (relation.group(1) or relation.group(2)).lower().split():
                return link.group(1).strip()
    return ""


def language_of(text: str) -> str:
    """The first language that a list names, as BCP 47 spells it, in lower case; "" where it names none."""
    tag = HeaderForm.LANGUAGE.match(text.strip())
    return tag.group().replace("_", "-").lower() if tag and tag.end() <= MAX_LANGUAGE else ""


def modified_ms(text: str) -> int | None:
    """The time of a Last-Modified header."""
    seconds = http_seconds(text)
    return int(seconds * 1000) if seconds is not None and seconds >= 0 else None
