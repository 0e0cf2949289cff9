"""What the dispatcher hands out, by number: rows of the plan, and its own entries for robots files and what other sources want.

An item keeps its number from its first mention until it is settled, whatever is learnt of it meanwhile. The groups hold numbers
only. A plan row stays bytes until it is handed out, and its text is read from its bucket then; only what has no bucket yet (a hop
to somewhere else, a URL that was added) carries its URL here.

Invariant: an item is in one state, `Items.move` alone changes it, and only along MOVES. `fate` says what follows from an answer.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from shepherd.dispatch.sites import Site
from shepherd.formats import bucket, httphead, layout
from shepherd.formats.check import raw
from shepherd.formats.tables import NO_ROW, PLAN, Bools, Kind, Records
from shepherd.store.state.directory import State
from shepherd.wire import messages as wire

START_BY_MS: Final = 10_000
MAX_MOVES: Final = 3
MAX_ROBOTS_HOPS: Final = 5
_ROW: Final = layout.struct_of(PLAN)
_PRIORITY: Final = layout.struct_of(PLAN, ("priority",))
_PRIORITY_AT: Final = layout.offset_of(PLAN, "priority")
_KINDS: Final = {int(kind): kind for kind in Kind}
NO_NUMBER: Final = -1


class ItemState(enum.IntEnum):
    WAITING = 0  # at its site, whose address or robots.txt is not known yet: the stage of the site says which
    QUEUED = 1  # with the groups
    IN_FLIGHT = 2  # under a lease
    REPLACED = 3  # another item stands for it; it is skipped where it waits
    SETTLED = 4  # it has its record of this reap


MOVES: Final[Mapping[ItemState, frozenset[ItemState]]] = {
    ItemState.WAITING: frozenset({ItemState.QUEUED, ItemState.REPLACED, ItemState.SETTLED}),
    ItemState.QUEUED: frozenset({ItemState.IN_FLIGHT, ItemState.REPLACED, ItemState.SETTLED}),
    ItemState.IN_FLIGHT: frozenset({ItemState.WAITING, ItemState.QUEUED, ItemState.SETTLED}),
    ItemState.REPLACED: frozenset({ItemState.SETTLED}),
    ItemState.SETTLED: frozenset(),
}

_STATES: Final = tuple(ItemState)


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
    source: int = 0  # by its number; 0 = the dispatcher itself, as for robots files
    ticket: int = 0  # the source's own number for it
    number: int = NO_NUMBER


class Text(NamedTuple):
    """What a stored bucket says about asking again."""

    url: str
    etag: str
    modified: str


class Items:
    def __init__(self, state: State) -> None:
        self._state, self._plan = state, memoryview(b"")
        self.rows = self._rows_source = 0
        self._row_states = bytearray()
        self._own: dict[int, Item] = {}  # items that are no row of the plan, and rows of which more is known than the plan says
        self._own_states: dict[int, ItemState] = {}
        self._next = 0
        self.replaced = 0  # that were not skipped yet

    def enter_rows(self, plan: Records, source: int, settled: Bools) -> None:
        """The rows of a plan, before anything else: their numbers are those of the items. Some were settled by an earlier run."""
        assert not self._next, "there are items already"
        self._plan, self._rows_source = memoryview(raw(np.ascontiguousarray(plan))), source
        self.rows = self._next = len(plan)
        self._row_states = bytearray(len(plan))
        np.frombuffer(self._row_states, np.uint8)[settled] = ItemState.SETTLED

    # --- states -----------------------------------------------------------------------------------------------------

    def state(self, number: int) -> ItemState:
        if number < self.rows:
            return _STATES[self._row_states[number]]
        return self._own_states.get(number, ItemState.SETTLED)

    def move(self, number: int, to: ItemState) -> None:
        """The one place where an item changes its state. One that is settled is forgotten."""
        before = self.state(number)
        assert to in MOVES[before], f"item {number} is {before.name} and cannot be {to.name}"
        if number < self.rows:
            self._row_states[number] = to
        else:
            self._own_states[number] = to
        self.replaced += (to is ItemState.REPLACED) - (before is ItemState.REPLACED)
        if to is ItemState.SETTLED:
            self._own.pop(number, None)
            self._own_states.pop(number, None)

    def skip_replaced(self, number: int) -> bool:
        """Whether another item stands for this one. It is found once: from then on it is settled."""
        if self.state(number) is not ItemState.REPLACED:
            return False
        self.move(number, ItemState.SETTLED)
        return True

    # --- what they are ----------------------------------------------------------------------------------------------

    def add(self, item: Item) -> Item:
        """Enter an item that is no row of the plan: it is WAITING, and has a number."""
        item = item._replace(number=self._next)
        self._next += 1
        self._own[item.number], self._own_states[item.number] = item, ItemState.WAITING
        return item

    def update(self, item: Item) -> None:
        """More is known of an item than before."""
        self._own[item.number] = item

    def get(self, number: int) -> Item:
        item = self._own.get(number)
        if item is not None:
            return item
        if number >= self.rows:
            raise KeyError(number)
        row = _ROW.unpack_from(self._plan, number * _ROW.size)
        norm, path, site, _qkey, oid, digest, _row, priority, weight, _flags, kind, _why, section, _spare = row
        footprint = norm, path, site, site, site
        item = Item(_KINDS[kind], *footprint, "", oid, digest, weight, section, priority, plan_row=number, number=number)
        return item._replace(source=self._rows_source)

    def rank(self, number: int) -> tuple[int, int]:
        """Priority and source of a page, without the rest of it."""
        item = self._own.get(number)
        if item is not None:
            return item.priority, item.source
        return _PRIORITY.unpack_from(self._plan, number * _ROW.size + _PRIORITY_AT)[0], self._rows_source

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
        return Text(item.url or stored.url, header(headers, "etag"), header(headers, "last-modified"))


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


def header(headers: bytes, name: str) -> str:
    """The value of the first header of this name; one that could not be sent back unchanged counts as absent."""
    text = next((value for key, value in httphead.pairs(headers) if key.lower() == name), "")
    return text if text.isprintable() and text.isascii() and len(text) < 1000 else ""
