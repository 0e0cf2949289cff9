"""What a host-group engine promises: a server is asked only when its group is ready.

A *site* has at most one fetch in flight and waits its delay after the end of the last one. A *group* (a queue key, or what the
filter puts under one name) has slots; each slot waits the group's delay after the END of its last fetch. Both must agree before
an item is handed out, and every hand-out is a lease with a token: an answer with an old token is refused.

An engine may live in another process or on another machine, so nothing here is shared: arguments and results are numbers. An item
is a row of the plan or of the dispatcher's own table; its text is read at hand-out. An item is queued or in flight at most once.

Every call may suspend, so each carries many: what a turn of the dispatcher's loop has to say costs one round trip a kind of call,
however much it is. Who calls waits for one call before it makes the next. So calls arrive in their order, and a delay that was
set before an item was added holds for it. A call is carried out once and whole, or raises, and then the engine is lost. `now_ms`
comes from the caller. An end is rounded up, so a `take` may name the millisecond before it, and must not give a group whose wait
ends only then; else it does not go back. A lease that took long to arrive is as old as the call that asked for it.
`shepherd.politeness.groups.memory` is the implementation for one dispatcher.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

MAX_ITEM: Final = 0xFFFFFFFF
MAX_PRIORITY: Final = 0xFFFFFFFF
MAX_SOURCE: Final = 255


class QueueEntry(NamedTuple):
    """An item to be queued. A site stays in the group it was first added to; only `Setting.GROUP_OF_SITE` changes that."""

    item: int
    group: int
    site: int
    priority: int
    not_before_ms: int = 0
    source: int = 0


class FetchLease(NamedTuple):
    """One item handed out: the group's slot and the site are busy until it is released or expires."""

    token: int
    item: int
    group: int
    site: int
    expires_ms: int


class FetchEnd(NamedTuple):
    """The end of a fetch.

    Where nobody was contacted no delay is due. `delay_ms` lets the whole group wait at least that long, as a Retry-After does.
    """

    token: int
    contacted: bool = True
    delay_ms: int | None = None


class Extension(NamedTuple):
    """Let a lease last at least until then."""

    token: int
    until_ms: int


class Setting(enum.IntEnum):
    """What may be set of a group or of a site. Waits that are under way change, too."""

    DELAY = 0  # each slot of the group waits this long, in ms
    SLOTS = 1  # so many fetches of the group at a time
    HOLD = 2  # do not ask the group before this time, in ms; an earlier time than one already set changes nothing
    BACK_OFF = 3  # multiply the group's delay by 2 to the power of this; 0 ends it
    DELAY_OF_SITE = 4  # the site waits this long, in ms
    GROUP_OF_SITE = 5  # put the site and its queue into this group; what is in flight ends in the old one
    HOLD_OF_SITE = 6  # as HOLD, of one site


class Change(NamedTuple):
    """`key` is the group, or for a setting of a site the site."""

    setting: Setting
    key: int
    value: int


class QueueCounts(NamedTuple):
    """Items waiting to be handed out, and items handed out and not yet released."""

    queued: int
    in_flight: int


class Groups(Protocol):
    """The engine. A group or site is known from its first mention, and keeps its last contact as long as the engine lives."""

    async def change(self, changes: Sequence[Change]) -> None:
        """Set what politeness asks for, in this order."""

    async def add_many(self, entries: Sequence[QueueEntry]) -> None:
        """Queue these items; a number that does not fit is a ShepherdError, and then none of them is queued."""

    async def take(self, most: int, now_ms: int) -> list[FetchLease]:
        """The best items (largest priority, then smallest item) of all sites that may be asked now, leased, best first.

        Fewer than `most` means that nothing more may be asked now.
        """

    async def next_time(self) -> int | None:
        """When `take` may have something to give: 0 = at once, None = not before an add, a release or an expiry."""

    async def extend_many(self, extensions: Sequence[Extension]) -> list[bool]:
        """Which tokens are known: their leases last at least as long as was asked for."""

    async def release_many(self, ends: Sequence[FetchEnd], now_ms: int) -> list[bool]:
        """Which are accepted: of the others the token is unknown or its time has passed (then `expire` gives the lease back)."""

    async def expire(self, now_ms: int) -> list[FetchLease]:
        """Leases whose time has passed: to be asked for every second or so.

        Their groups wait as after a contact; the items are the caller's to add again.
        """

    async def drop_sites(self, sites: Sequence[int]) -> list[list[int]]:
        """Forget the queues of sites after site-wide errors; the items of each, best first. What is in flight stays."""

    async def count(self) -> QueueCounts:
        """Of everything."""

    async def count_group(self, group: int) -> QueueCounts: ...

    async def count_source(self, source: int) -> QueueCounts: ...

    async def active(self) -> int:
        """How many groups have anything queued or in flight."""
