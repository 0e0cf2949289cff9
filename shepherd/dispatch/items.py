"""What the dispatcher hands out, by number: rows of the plan, and its own entries for robots files, hops, moves and additions.

The groups hold numbers only. A plan row stays bytes until it is handed out, and its text is read from its bucket then; only what
has no bucket yet (a hop to somewhere else, a URL that was added) carries its URL here.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from shepherd.dispatch.sites import Site
from shepherd.formats import bucket
from shepherd.formats.check import raw
from shepherd.formats.tables import NO_ROW, PLAN, Kind, Records
from shepherd.store.state.directory import State
from shepherd.wire import messages as wire

START_BY_MS: Final = 10_000
MAX_MOVES: Final = 3
MAX_ROBOTS_HOPS: Final = 5
_ROW: Final = struct.Struct("<6Q2I2H4B")  # as PLAN
_PRIORITY: Final = struct.Struct("<I")
_PRIORITY_AT: Final[int] = PLAN.fields["priority"][1]  # type: ignore[index]
_KINDS: Final = {int(kind): kind for kind in Kind}


class Item(NamedTuple):
    """One thing to fetch. `norm`, `path`, `site` are the footprint that its bucket gets.

    A page that moved to its equivalent has another `site` than its row, `planned_site`. A robots.txt that redirects is asked for
    at another `contact`, but stays the file of its own site.
    """

    kind: Kind
    norm: int
    path: int
    site: int
    planned_site: int
    contact: int  # the site that is asked
    url: str = ""  # "" = to be read from the bucket at `oid`
    oid: int = 0
    digest: int = 0
    weight: int = 0
    section: int = 0
    priority: int = 0
    hops: int = 0
    plan_row: int = NO_ROW
    attempts: int = 0
    fresh: bool = False  # not on a kept connection
    alone: bool = False  # a worker has died at it
    again: bool = False  # this reap has a record of it already
    first_hop: bytes = b""  # the bucket of a robots.txt that redirected
    source: int = 0  # who wants it, for the counters of the groups


class Text(NamedTuple):
    """What a stored bucket says about asking again."""

    url: str
    etag: str
    modified: str


class Items:
    def __init__(self, state: State, plan: Records) -> None:
        self._state, self._plan = state, memoryview(raw(np.ascontiguousarray(plan)))
        self._rows = len(plan)
        self._own: dict[int, Item] = {}
        self._next = len(plan)
        self._displaced: set[int] = set()  # rows of the plan that an item of our own stands for; they are still in some queue

    def add(self, item: Item) -> int:
        """Enter an item of our own; its number."""
        number = self._next
        self._next += 1
        self._own[number] = item
        return number

    def displace(self, number: int) -> None:
        """A row of the plan is not to be asked for any more: an item of our own is."""
        self._displaced.add(number)

    def is_displaced(self, number: int) -> bool:
        """Whether to leave it where it is found; it is found once."""
        if number not in self._displaced:
            return False
        self._displaced.remove(number)
        return True

    @property
    def displaced(self) -> int:
        return len(self._displaced)

    def get(self, number: int) -> Item:
        if number >= self._rows:
            return self._own[number]
        row = _ROW.unpack_from(self._plan, number * _ROW.size)
        norm, path, site, _qkey, oid, digest, _row, priority, weight, _flags, kind, _why, section, _spare = row
        return Item(_KINDS[kind], norm, path, site, site, site, "", oid, digest, weight, section, priority, plan_row=number)

    def rank(self, number: int) -> tuple[int, int]:
        """Priority and source of a page, without the rest of it."""
        if number >= self._rows:
            item = self._own[number]
            return item.priority, item.source
        return _PRIORITY.unpack_from(self._plan, number * _ROW.size + _PRIORITY_AT)[0], 0

    def done(self, number: int) -> None:
        self._own.pop(number, None)

    def is_same_redirect(self, item: Item) -> bool:
        """Whether the row of a robots.txt that redirected already has a bucket with that very redirect."""
        if not item.oid:
            return False
        stored = self._state.objects.head(item.oid).attributes
        return stored.get("E") == bucket.parse(item.first_hop).attributes.get("E")

    def text(self, item: Item) -> Text:
        """URL and validators. Validators only where there is a body to compare with; a robots.txt is always wanted whole."""
        if item.url and not item.oid:
            return Text(item.url, "", "")
        stored = self._state.objects.head(item.oid)
        headers = stored.attributes.get("H", b"") if item.digest and item.kind == Kind.PAGE else b""
        return Text(item.url or stored.url, header(headers, b"etag"), header(headers, b"last-modified"))


def request(item: Item, text: Text, site: Site, token: int, now_ms: int, timeout_ms: int, reuse: bool) -> wire.Fetch:
    """The message that asks for an item at a site whose address is known."""
    return wire.Fetch(
        token=token,
        kind=item.kind,
        url=text.url,
        norm=item.norm,
        path=item.path,
        site=item.site,
        rules=item.site,
        qkey=site.qkey,
        address=site.address,
        weight=item.weight,
        section=item.section,
        etag=text.etag,
        modified=text.modified,
        digest=item.digest,
        hops=item.hops,
        reuse=reuse and not item.fresh,
        alone=item.alone,
        start_by_ms=now_ms + START_BY_MS,
        deadline_ms=now_ms + timeout_ms,
        head=False,
    )


def header(headers: bytes, name: bytes) -> str:
    """The value of the first header of this name; one that could not be sent back unchanged counts as absent."""
    for line in headers.split(b"\n"):
        key, colon, value = line.partition(b":")
        if colon and key.strip().lower() == name:
            text = value.strip().decode("latin-1")
            return text if text.isprintable() and text.isascii() and len(text) < 1000 else ""
    return ""
