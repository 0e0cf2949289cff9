"""Small random databases before a record: rows by where their URL stands, in a real directory N.selected.

A Lamb is one row as a person would describe it; `pen` makes the directory of many, and of the sites and servers that they need.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from shepherd.filters import load_filter
from shepherd.formats import bucket, contrib, tables
from shepherd.formats.block_builder import BlockBuilder
from shepherd.formats.frame import Frame, FrameKind
from shepherd.formats.tables import NO_OID, REASON_TEXT, Flag, Reason, RowType, contrib_oid
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from shepherd.store.state.directory import Builder
from shepherd.urls import Url, parse
from tests.support.random_rows import Row
from tests.worlds import NOW, PRINTS, create, next_state, write_world

STATE, BEFORE = 2, 1
THE_BODY = b"a body"
RULE = "reject ext zip\n"
SITES = ("http://a.example", "https://a.example", "http://b.example")
ADDRESSES = (4 << 56 | 1, 4 << 56 | 2)
CONTRIB, OLD_CONTRIB, BODY, THIN, BURIED, NOTHING = "contrib", "contrib of another filter", "body", "thin", "buried", "nothing"
DEAD = (Reason.DELETED, Reason.PURGED)
# What phases before record leave, by where the URL of the row stands.
KINDS = (
    *((where, type_, Reason.LINK) for where in (CONTRIB, OLD_CONTRIB, THIN) for type_ in (RowType.UNGATHERED, RowType.SLEEPING)),
    *((where, RowType.FORGOTTEN, why) for where in (CONTRIB, OLD_CONTRIB, BODY) for why in (Reason.BELOW_SLEEP, *DEAD)),
    *((where, RowType.FORGOTTEN, why) for where in (THIN, BURIED, BURIED) for why in DEAD),
    *((BODY, type_, Reason.GATHERED) for type_ in (RowType.GATHERED, RowType.ERROR, RowType.SLEEPING)),
    (NOTHING, RowType.FORGOTTEN, Reason.BELOW_SLEEP),
)
ROBOTS_KINDS = (
    *((where, RowType.UNGATHERED, Reason.LINK) for where in (NOTHING, CONTRIB, OLD_CONTRIB, THIN)),
    *((NOTHING, RowType.FORGOTTEN, why) for why in (Reason.BELOW_SLEEP, *DEAD)),
    (BODY, RowType.GATHERED, Reason.GATHERED),
)


@dataclass(frozen=True)
class Lamb:
    url: str
    where: str  # its URL stands
    type: RowType
    reason: Reason
    touched: int
    buried_for: Reason = Reason.DELETED  # what its tombstone says, if it has one
    linked_as: str = ""  # the URL in contrib, if that is one of an equivalent site

    @property
    def key(self) -> tuple[int, int, int]:
        return PRINTS.of(parse(self.url))

    @property
    def site(self) -> str:
        return parse(self.url).site

    @property
    def robots(self) -> bool:
        return self.url.endswith("/robots.txt")


@dataclass(frozen=True)
class Home:
    """A site: its address, when that was looked up, and what its columns have to say before they are counted anew."""

    name: str
    qkey: int
    checked: int
    next: int
    gathered: int


@st.composite
def lambs(draw: st.DrawFn) -> list[Lamb]:
    paths = [f"/{n}{end}" for n in range(5) for end in ("", ".zip")] + ["/robots.txt"] * 4
    urls = st.builds(str.__add__, st.sampled_from(SITES), st.sampled_from(paths))
    return [draw(lamb(url)) for url in sorted(draw(st.lists(urls, max_size=12, unique_by=_document)))]


def _document(url: str) -> tuple[int, ...]:
    """A robots file is of one site, all else of all that are equivalent."""
    return PRINTS.of(parse(url))[: 3 if url.endswith("/robots.txt") else 2]


@st.composite
def lamb(draw: st.DrawFn, url: str) -> Lamb:
    where, type_, reason = draw(st.sampled_from(ROBOTS_KINDS if url.endswith("/robots.txt") else KINDS))
    other = url.replace("http://a.", "https://a.") if draw(st.integers(0, 3)) == 0 and "robots" not in url else ""
    linked_as = other if where in (CONTRIB, OLD_CONTRIB) else ""
    return Lamb(url, where, type_, reason, draw(st.sampled_from([BEFORE, STATE])), draw(st.sampled_from(DEAD)), linked_as)


def flocks_of_every_kind() -> list[list[Lamb]]:
    """Whatever a row can be: all pages in one database, then the robots files, of which a site has only one."""

    def every(kinds: Sequence[tuple[str, RowType, Reason]]) -> Iterator[tuple[str, RowType, Reason, int, Reason]]:
        return ((*kind, touched, buried_for) for kind in kinds for touched in (BEFORE, STATE) for buried_for in DEAD)

    variants = itertools.product(("", ".zip"), every(KINDS))
    pages = [Lamb(f"{SITES[n % 2]}/{n}{end}", *variant) for n, (end, variant) in enumerate(variants)]
    robots = [Lamb(f"{SITES[n % len(SITES)]}/robots.txt", *variant) for n, variant in enumerate(every(ROBOTS_KINDS))]
    return [pages, *(robots[n : n + len(SITES)] for n in range(0, len(robots), len(SITES)))]


def homes(reset_s: int) -> st.SearchStrategy[list[Home]]:
    checked = st.sampled_from([0, 1, NOW - reset_s - 1, NOW - reset_s, NOW - reset_s + 1, NOW])

    def home(name: str) -> st.SearchStrategy[Home]:
        unresolved = tables.qkey_unresolved(PRINTS.half(name))
        qkey = st.sampled_from([unresolved, *ADDRESSES])
        return st.builds(Home, st.just(name), qkey, checked, st.sampled_from([0, NOW + 9]), st.integers(0, 2))

    return st.tuples(*map(home, SITES)).map(list)


# --- the directory ------------------------------------------------------------------------------------------------


def pen(path: Path, flock: Sequence[Lamb], sites: Sequence[Home], servers: Sequence[int]) -> Database:
    """The database path/db, whose furthest directory is N.selected, and the filter path/cf/filter."""
    db = create(path, RULE)
    with next_state(db, "selected", NOW - 9) as builder:
        places = _contributed(builder, flock, load_filter(path / "cf" / "filter").version)
        pages = _pages(builder, flock, places)
        documents = Counter(one.site for one in flock)
        known = {home.name: _site(home) | {"documents": documents[home.name]} for home in sites}
        write_world(builder, pages, known, [{"qkey": qkey, "documents": 7} for qkey in servers])
    return db


def _contributed(builder: Builder, flock: Sequence[Lamb], version: int) -> dict[str, int]:
    """The places in contrib of the rows whose URL stands there; every other URL is contributed, too, and nobody points at it."""
    places: dict[str, int] = {}
    for where, number, filter_version in ((CONTRIB, 1, version), (OLD_CONTRIB, 2, version ^ 1)):
        told = [one for one in flock if one.where == where or not one.robots]
        if told:
            urls = [parse(one.linked_as or one.url) for one in told]
            builder.write_frames(names.contrib(number), _frames(urls, filter_version))
        places |= {one.url: contrib_oid(number, n) for n, one in enumerate(told) if one.where == where}
    builder.change(contribs=3)
    return places


def _frames(urls: list[Url], version: int) -> Iterator[Frame]:
    blocks = BlockBuilder(PRINTS, version)
    for n, url in enumerate(urls, 1):
        blocks.add(url.site, url.path, 1, 0, 0)
        if len(blocks) == 4 or n == len(urls):  # so that a file has more than one
            block = blocks.block()
            yield Frame(0, 0, FrameKind.CONTRIB, len(block), memoryview(contrib.encode(block)))


def _pages(builder: Builder, flock: Sequence[Lamb], places: dict[str, int]) -> list[Row]:
    segments, rows = builder.segment_writer(500), []
    for one in flock:
        data = _bucket(one)
        rows.append(row_of(one, segments.append(data) if data else places.get(one.url, NO_OID), len(data)))
    builder.finish_segments(segments)
    return rows


def _bucket(one: Lamb) -> bytes:
    _norm, path, site = one.key
    if one.where == BODY:
        attributes = [("U", one.url.encode()), ("D", hashlib.sha256(THE_BODY).digest())]
        return bucket.pack(site=site, path=path, time_ms=5, state=BEFORE, attributes=attributes, body=THE_BODY)
    if one.where == THIN:
        return bucket.thin(site, path, 5, BEFORE, one.url)
    return bucket.tombstone(site, path, 5, BEFORE, one.url, REASON_TEXT[one.buried_for]) if one.where == BURIED else b""


def row_of(one: Lamb, oid: int, size: int) -> Row:
    """Columns that record has no business with are all different from nothing, so that a change shows."""
    norm, path, site = one.key
    gathered = (
        {"digest": int.from_bytes(hashlib.sha256(THE_BODY).digest()[:8], "little"), "gathered": NOW - 60}
        if one.where == BODY
        else {}
    )
    special = Flag.ROBOTS if one.robots else Flag.INITIAL
    row = dict.fromkeys(tables.INDEX, 9) | {"norm": norm, "path": path, "site": site, "oid": oid, "size": size}
    row |= {"digest": 0, "gathered": 0, "flags": int(special), "frequency": 1, "deferred": 0}
    return row | gathered | {"type": int(one.type), "reason": int(one.reason), "touched": one.touched}


def _site(home: Home) -> Row:
    return {"qkey": home.qkey, "qkey_checked": home.checked, "qkey_next": home.next, "gathered": home.gathered}
