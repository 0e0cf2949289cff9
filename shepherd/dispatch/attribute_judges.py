"""Which attributes a reaper may write into a bucket, and what each may contain: the table of their judges.

A reaper can lie about what a server said. It cannot write what no honest one writes: every attribute has a judge here, and a
letter without one is refused. So whoever adds an attribute must say here what holds of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shepherd import urls
from shepherd.errors import BadUrl, Corruption
from shepherd.expressions import AttributeForm
from shepherd.formats.attributes import TABLE

MOST_TITLE: Final = 500  # characters
MAX_LANGUAGE: Final = 35  # bytes
MOST_TIME_MS: Final = 253_402_300_800_000  # the end of the year 9999
WISHES: Final = (b"noindex", b"nofollow", b"noindex nofollow")


@dataclass(frozen=True, slots=True)
class BucketClaim:
    """What a bucket was asked for, and what its record says of it."""

    url: str
    qkey: int
    provenance: str
    header_bytes: int
    digest: int  # as in the record


Judge = Callable[[bytes, BucketClaim], bool]


def is_normalised(text: str) -> bool:
    """Whether it is a URL, spelt as we spell it: another spelling may hide a line end that is no part of the URL."""
    try:
        return len(text) <= urls.MAX_URL_BYTES and urls.parse(text).href == text
    except BadUrl:
        return False


def _is_url(text: bytes) -> bool:
    return text.isascii() and is_normalised(text.decode("ascii"))


def _is_title(text: bytes) -> bool:
    try:
        title = text.decode()
    except UnicodeDecodeError:
        return False
    return len(title) <= MOST_TITLE and "\n" not in title and "\r" not in title


def _is_target(text: bytes) -> bool:
    """What a server said in its Location may be anything, on one line."""
    return len(text) <= urls.MAX_URL_BYTES and not AttributeForm.LINE_END.search(text)


def _has_digest(text: bytes, claim: BucketClaim) -> bool:
    return len(text) == TABLE["D"].unit and int.from_bytes(text[:8], "little") == claim.digest


JUDGES: Final[Mapping[str, Judge]] = {
    "U": lambda text, claim: text == claim.url.encode(),
    "S": lambda text, claim: len(text) <= claim.header_bytes and b"\n" not in text,
    "H": lambda text, claim: len(text) <= claim.header_bytes,
    "T": lambda text, claim: AttributeForm.TYPE.fullmatch(text) is not None,
    "C": lambda text, claim: AttributeForm.CHARSET.fullmatch(text) is not None,
    "D": _has_digest,
    "t": lambda text, claim: _is_title(text),
    "L": lambda text, claim: not len(text) % TABLE["L"].unit and len(text) <= TABLE["L"].unit * TABLE["L"].most,
    "A": lambda text, claim: text.isascii() and urls.is_address_of(text.decode("ascii"), claim.qkey),
    "m": lambda text, claim: len(text) == TABLE["m"].unit,
    "X": lambda text, claim: AttributeForm.WORD.fullmatch(text) is not None,
    "E": lambda text, claim: _is_target(text),
    "P": lambda text, claim: bool(text) and text == claim.provenance.encode(),
    "K": lambda text, claim: _is_url(text),
    "l": lambda text, claim: len(text) <= MAX_LANGUAGE and AttributeForm.LANGUAGE.fullmatch(text) is not None,
    "N": lambda text, claim: text in WISHES,
    "M": lambda text, claim: len(text) == TABLE["M"].unit and int.from_bytes(text, "little") < MOST_TIME_MS,
    "h": lambda text, claim: len(text) == TABLE["h"].unit,
}


def check_attributes(attributes: Mapping[str, bytes], claim: BucketClaim) -> None:
    """Corruption names the first attribute that no honest reaper would have written."""
    for letter, contents in attributes.items():
        judge = JUDGES.get(letter)
        if judge is None or not judge(contents, claim):
            name = TABLE[letter].name if letter in TABLE else letter
            raise Corruption(f"a bucket whose {name} cannot be one: {contents[:100]!r}")
