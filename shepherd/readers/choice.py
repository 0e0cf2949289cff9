"""What readers of a state get: its gathered documents, one row for each, and what happened to them since another state.

A reader's choice is a set of documents. The same choice of two states is two sets, and their difference is what an indexer has to
do that knows the older one: so a page whose weight has fallen below a reader's bar is as gone for it as one that was deleted.
All functions look at slices of the index that begin and end with whole norms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from shepherd.arrays.keys import find_rows, with_flag
from shepherd.arrays.representatives import representatives
from shepherd.expressions import UrlForm
from shepherd.formats.tables import I64, U8, U16, Columns, Flag, RowType

KEYS: Final = ("norm", "path", "site")
READ: Final = (*KEYS, "type", "flags", "weight", "section")  # by which a choice is made
COMPARED: Final = (*READ, "digest", "gathered")  # and by which two are compared
WEIGHTS: Final = 1 << 16
MOST_PARTS: Final = 65_536


class Novelty(IntEnum):
    """What a document is to a reader who asks for what is new."""

    PRESENT = 0  # nobody asked what is new
    ADDED = 1
    CHANGED = 2
    REMOVED = 3  # `gone` in all output
    CHECKED = 4  # only where it is asked for: as it was, but looked at since

    @property
    def word(self) -> str:
        return "gone" if self is Novelty.REMOVED else self.name.lower()


@dataclass(frozen=True)
class Choice:
    """Which documents a reader wants. Parts are cut by the footprint of the normalised site: a site is never in two of them."""

    part: int = 0
    parts: int = 1
    best: int | None = None  # so many by weight, of those that the rest leaves
    weight: int = 0  # and not below this
    sections: tuple[int, ...] = ()
    robots: bool = False  # robots files, too
    redirects: bool = False  # pages that only lead to another, too

    def norms(self) -> tuple[int, int]:
        """The least norm of its part, and the first that is beyond it."""
        return -(-(self.part << 64) // self.parts), -(-(self.part + 1 << 64) // self.parts)


def read_part(text: str) -> tuple[int, int]:
    """`2/8`, the second of eight, as a choice has it; ValueError says how to write it."""
    match = UrlForm.SHARD.fullmatch(text)
    part, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= part <= parts <= MOST_PARTS:
        raise ValueError(f"give it as I/N, from 1/N to N/N, with N at most {MOST_PARTS}")
    return part - 1, parts


def choose(index: Columns, choice: Choice) -> I64:
    """The rows of the slice that the choice means, but for its part and its `best`, in order.

    Of several rows of one document the representative is judged, and no other: so no weight, and nothing that a reader asks for,
    changes under which footprint a document comes.
    """
    gathered = index["type"] == np.uint8(RowType.GATHERED)
    pages = np.flatnonzero(gathered & ~with_flag(index["flags"], Flag.ROBOTS))  # robots files are of one site each
    unwanted = (0 if choice.robots else Flag.ROBOTS) | (0 if choice.redirects else Flag.REDIRECT)
    mask = gathered & ~with_flag(index["flags"], unwanted)
    mask[pages[representatives(index, pages) != pages]] = False
    if choice.weight:
        mask &= index["weight"] >= np.uint16(choice.weight)
    if choice.sections:
        listed = np.zeros(256, np.bool_)
        listed[list(choice.sections)] = True
        mask &= listed.take(index["section"])
    return np.flatnonzero(mask)


@dataclass(frozen=True)
class Bar:
    """Where `best` ends: what weighs more is in, and of what weighs just this the first `ties` rows."""

    weight: int
    ties: int

    @classmethod
    def of(cls, counts: I64, best: int) -> Bar:
        above = np.append(np.cumsum(counts[::-1])[::-1], 0)  # how many weigh so much or more
        weight = int(np.flatnonzero(above >= best)[-1]) if best <= above[0] else 0
        return cls(weight, best - int(above[min(weight + 1, WEIGHTS)]))

    def passed(self, weight: U16, rows: I64, ties: int) -> tuple[I64, int]:
        """Those of the rows, which have these weights, that are in; and how many ties have come with them, `ties` before."""
        tied = weight == self.weight
        early = tied & (np.cumsum(tied) + ties <= self.ties)
        return rows[(weight > self.weight) | early], ties + int(np.count_nonzero(tied))


@dataclass(frozen=True)
class ChoiceChanges:
    """What differs between two sets: places in the new one and what they are, and places in the old one that are gone."""

    rows: I64
    what: U8
    gone_rows: I64


def changes(old: Columns, new: Columns, checked_after: int | None = None) -> ChoiceChanges:
    """A document is found again by site and path. One that moved within its class, or that another row of it stands for now, is
    gone from one place and added in another.

    Of a redirect nothing is known but when it was gathered, so one that was gathered again counts as changed. With
    `checked_after`, a time, what was looked at later counts as well, though nothing in it has changed.
    """
    match = find_rows(*(old[name] for name in KEYS), *(new[name] for name in KEYS))
    is_known = match >= 0
    differs = np.zeros(len(match), np.bool_)
    differs[is_known] = old["digest"].take(match[is_known]) != new["digest"][is_known]
    again = old["gathered"].take(match[is_known]) != new["gathered"][is_known]
    differs[is_known] |= again & with_flag(new["flags"][is_known], Flag.REDIRECT)
    what = np.where(is_known, np.where(differs, np.uint8(Novelty.CHANGED), np.uint8(Novelty.CHECKED)), np.uint8(Novelty.ADDED))
    is_news = ~is_known | differs
    if checked_after is not None:
        is_news |= new["checked"] > np.uint32(checked_after)
    rows = np.flatnonzero(is_news)
    is_matched = np.zeros(len(old["norm"]), np.bool_)
    is_matched[match[is_known]] = True
    return ChoiceChanges(rows, what.take(rows), np.flatnonzero(~is_matched))
