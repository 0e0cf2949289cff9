"""What a host-group engine promises: a server is asked only when its group is ready.

A *site* has at most one fetch in flight and waits its delay after the end of the last one. A *group* (a queue key, or what the
filter puts under one name) has slots; each slot waits the group's delay after the END of its last fetch. Both must agree before
an item is handed out, and every hand-out is a lease with a token: an answer with an old token is refused.

An engine may live in another process or on another machine, so nothing here is shared: arguments and results are numbers. An item
is a row of the plan or of the dispatcher's own table; its text is read at hand-out. An item is queued or in flight at most once.
`now_ms` comes from the caller and must not go back. `shepherd.politeness.groups.memory` is the implementation for one dispatcher.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

MAX_ITEM: Final = 0xFFFFFFFF
MAX_PRIORITY: Final = 0xFFFFFFFF
MAX_SOURCE: Final = 255


class Lease(NamedTuple):
    """One item handed out: the group's slot and the site are busy until it is released or expires."""

    token: int
    item: int
    group: int
    site: int
    expires_ms: int


class Counts(NamedTuple):
    """Items waiting to be handed out, and items handed out and not yet released."""

    queued: int
    in_flight: int


class Groups(Protocol):
    """The engine. A group or site is known from its first mention, and keeps its last contact as long as the engine lives."""

    def add(self, item: int, group: int, site: int, priority: int, not_before_ms: int = 0, source: int = 0) -> None:
        """Queue an item. A site stays in the group it was first added to; only `move_site` changes that."""

    def next(self, now_ms: int) -> Lease | None:
        """The best item (largest priority, then smallest item) of all sites that may be asked now, leased."""

    def next_time(self) -> int | None:
        """When `next` may have something to give: 0 = at once, None = not before an add, a release or an expiry."""

    def extend(self, token: int, until_ms: int) -> bool:
        """Let a lease last at least until then; False if the token is unknown."""

    def release(self, token: int, now_ms: int, *, contacted: bool = True, delay_ms: int | None = None) -> bool:
        """End a fetch; False if the token is unknown or its time has passed (then `expire` gives the lease back).

        Where nobody was contacted no delay is due. `delay_ms` lets the whole group wait at least that long: a Retry-After.
        """

    def expire(self, now_ms: int) -> list[Lease]:
        """Leases whose time has passed: to be asked for every second or so.

        Their groups wait as after a contact; the items are the caller's to add again.
        """

    def set_delay(self, group: int, delay_ms: int) -> None:
        """Let each slot of the group wait this long, waits under way included."""

    def set_slots(self, group: int, slots: int) -> None:
        """Allow this many fetches of the group at a time."""

    def set_site_delay(self, site: int, delay_ms: int) -> None:
        """Let the site wait this long, a wait under way included."""

    def hold(self, group: int, until_ms: int) -> None:
        """Do not ask the group before then; an earlier time than one already set changes nothing."""

    def back_off(self, group: int, level: int) -> None:
        """Multiply the group's delay by 2 to the power of level; 0 ends it."""

    def move_site(self, site: int, to_group: int) -> None:
        """Put a site and its queue into another group, when its queue key is known; what is in flight ends in the old one."""

    def drop_site(self, site: int) -> list[int]:
        """Forget the queue of a site after a site-wide error; its items, best first. What is in flight stays."""

    def count(self) -> Counts:
        """Of everything."""

    def count_group(self, group: int) -> Counts: ...

    def count_source(self, source: int) -> Counts: ...

    def active(self) -> int:
        """How many groups have anything queued or in flight."""
