"""Requests from the inbox: an insert is a contribution with a weight of its own, all else an edit of a URL that is known.

Requests count in the order of their items and lines. Of an insert and a deletion of the same document the later one counts; a
purge and other edits hold whatever else is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from shepherd.config import Config
from shepherd.cycle.merge.edits import EDIT, Op
from shepherd.errors import BadUrl, IoFailed
from shepherd.filters import Filter
from shepherd.formats import contrib
from shepherd.formats.contrib import Block
from shepherd.formats.frame import Frame, FrameKind
from shepherd.formats.tables import ContribFlag, Records
from shepherd.store.state.inbox import UNREADABLE, Item, is_closed_to_us, parse_request
from shepherd.urls import OWN_PATHS, Footprints, Url, norm_of, parse

MOST_TOLD: Final = 100  # bad lines in a report
MOST_CHARACTERS: Final = 400  # of the reason of each
BLOCK_URLS: Final = 1 << 16
MOST_U16: Final = 65_535
MOST_U8: Final = 255


@dataclass(frozen=True)
class Insert:
    place: int  # among all requests
    url: Url
    weight: int
    section: int
    flags: int


@dataclass(frozen=True)
class Edit:
    place: int
    url: Url
    op: Op
    value: int
    time: int


@dataclass
class Requests:
    """What the waiting items ask for."""

    names: list[str] = field(default_factory=list)
    inserts: list[Insert] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.inserts) + len(self.edits)

    @property
    def contributed(self) -> list[Insert]:
        """What is inserted; and what is purged: a URL that nobody knows needs a row and a tombstone to be kept out for ever."""
        return self.inserts + [
            Insert(edit.place, edit.url, 0, 0, int(ContribFlag.OWN_WEIGHT)) for edit in self.edits if edit.op == Op.PURGE
        ]


def read_requests(items: list[Item], filters: Filter, config: Config, norm_of: Callable[[str], str] = norm_of) -> Requests:
    """Every line of every item; a bad one is told and skipped, and so is an item that we may not read: its name is not among
    those taken. `norm_of` normalises sites as the state does."""
    found, place = Requests(), 0
    for item in items:
        try:
            lines = item.lines()
        except IoFailed as error:
            if not is_closed_to_us(error):
                raise
            found.bad.append(f"{item.path.name}: {UNREADABLE}")
            continue
        found.names.append(item.name)
        for number, line in lines:
            place += 1
            try:
                request = parse_request(line)
                if request["op"] == "insert":
                    found.inserts.append(_insert(place, request, filters, config))
                else:
                    found.edits += _edits(place, request, filters, min(item.time_s, 0xFFFFFFFF))
            except (ValueError, BadUrl) as error:
                found.bad.append(f"{item.path.name} line {number}: {_short(str(error))}")
    return _later_counts(found, norm_of)


def _later_counts(found: Requests, norm_of: Callable[[str], str]) -> Requests:
    """Without inserts that are deleted again, and deletions of what is inserted again. A purge holds whatever else is asked."""

    def document(url: Url) -> str:
        return (url.site if url.path in OWN_PATHS else norm_of(url.site)) + url.path

    deleted = {document(edit.url): edit.place for edit in found.edits if edit.op == Op.DELETE}
    purged = {document(edit.url) for edit in found.edits if edit.op == Op.PURGE}
    if not deleted and not purged:
        return found
    bad = [f"{one.url.href} is not inserted: another request purges it" for one in found.inserts if document(one.url) in purged]
    inserts = [one for one in found.inserts if document(one.url) not in purged]
    inserts = [one for one in inserts if deleted.get(document(one.url), 0) < one.place]
    inserted = {document(one.url): one.place for one in inserts}
    edits = [e for e in found.edits if e.op != Op.DELETE or inserted.get(document(e.url), 0) < e.place]
    return Requests(found.names, inserts, edits, found.bad + [_short(text) for text in bad])


def _short(text: str) -> str:
    """What anyone may have dropped must not make the report of a state large."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _insert(place: int, request: dict[str, Any], filters: Filter, config: Config) -> Insert:
    weight = _number(request, "weight", MOST_U16, config.merge.insert_weight)
    given = parse(request["url"], strict=True)
    href = filters.clean(given.href)
    if href is None:
        verdict = filters.judge(filters.strip(given.href))
        raise BadUrl(f"{given.href} is rejected by filter line {verdict.line}: {verdict.text}")
    url = parse(href)
    section = _number(request, "section", MOST_U8, filters.section_of(href).section)
    flags = ContribFlag.INSERTED | ContribFlag.OWN_WEIGHT
    flags |= ContribFlag.PINNED if _truth(request, "pinned") else 0
    flags |= ContribFlag.HTTPS if url.site.startswith("https:") else 0
    return Insert(place, url, weight, section, int(flags))


def _edits(place: int, request: dict[str, Any], filters: Filter, time: int) -> Iterator[Edit]:
    """The filter does not judge them: what it rejects by now may well be deleted. Of an exact URL it strips nothing, either: the
    row may be from before it learnt to."""
    url = parse(request["url"], strict=True)
    if not _truth(request, "exact"):
        url = parse(filters.strip(url.href))
    op = request["op"]
    if op == "delete":
        return iter([Edit(place, url, Op.PURGE if _truth(request, "purge") else Op.DELETE, 0, time)])
    if op == "refresh":
        return iter([Edit(place, url, Op.REFRESH, 0, time)])
    wanted = []
    for key, what, most in (("weight", Op.WEIGHT, MOST_U16), ("section", Op.SECTION, MOST_U8)):
        if key in request:
            wanted.append(Edit(place, url, what, _number(request, key, most, 0), time))
    if "frequency" in request:
        frequency = request["frequency"]
        if type(frequency) is not int or frequency not in (1, 2, 4):
            raise ValueError(f"frequency {frequency!r} is not 1, 2 or 4")
        wanted.append(Edit(place, url, Op.FREQUENCY, frequency, time))
    if "pinned" in request:
        wanted.append(Edit(place, url, Op.PINNED, int(_truth(request, "pinned")), time))
    if not wanted:
        raise ValueError("nothing to set; there are weight, section, frequency and pinned")
    return iter(wanted)


def _number(request: dict[str, Any], key: str, most: int, default: int) -> int:
    value = request.get(key, default)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{key} {value!r} is not from 0 to {most}")
    return value


def _truth(request: dict[str, Any], key: str) -> bool:
    value = request.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} {value!r} is neither true nor false")
    return value


def as_records(edits: list[Edit], prints: Footprints) -> Records:
    """The edits in the order of the norms of their URLs, and for each norm in their own."""
    records = np.zeros(len(edits), EDIT)
    for n, edit in enumerate(edits):
        records[n] = (*prints.of(edit.url), edit.time, edit.value, edit.op, 0)
    return records[np.argsort(records["norm"], kind="stable")]


def as_frames(inserts: list[Insert], prints: Footprints, filter_version: int) -> Iterator[Frame]:
    """The inserted URLs as frames of a contrib file."""
    for at in range(0, len(inserts), BLOCK_URLS):
        block = as_block(inserts[at : at + BLOCK_URLS], prints, filter_version)
        yield Frame(0, 0, FrameKind.CONTRIB, len(block), memoryview(contrib.encode(block)))


def as_block(inserts: list[Insert], prints: Footprints, filter_version: int) -> Block:
    """Inserted URLs as contributions; they have no parent, so the parents' table has one empty row."""
    marks = np.array([prints.of(one.url) for one in inserts], np.uint64).reshape(-1, 3)
    sites, first = np.unique(marks[:, 2], return_index=True)
    count = len(inserts)
    return Block(
        norm=marks[:, 0].copy(),
        path=marks[:, 1].copy(),
        site=marks[:, 2].copy(),
        lastmod=np.zeros(count, np.uint32),
        parent=np.zeros(count, np.uint32),
        parent_weight=np.array([one.weight for one in inserts], np.uint16),
        flags=np.array([one.flags for one in inserts], np.uint16),
        section=np.array([one.section for one in inserts], np.uint8),
        texts=[one.url.path.encode("ascii") for one in inserts],
        sites=sites,
        norms=marks[first, 0],
        names=[inserts[i].url.site.encode("ascii") for i in first.tolist()],
        parents_site=np.zeros(1, np.uint64),
        parents_path=np.zeros(1, np.uint64),
        filter_version=filter_version,
    )
