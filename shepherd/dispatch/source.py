"""Where a dispatcher gets its work from: a plan, requests of operators, and what other programs will want fetched.

A source makes items, and the dispatcher says of each exactly once how it ended, or that the source gets it back. The dispatcher
does everything between: address, robots.txt, politeness, another try, the harvest. A whole source, for a program that puts URLs
into `source.urls`, and gives the source to its Dispatcher:

    class UrlQueue(WorkSource):
        def __init__(self) -> None:
            self.urls: deque[str] = deque()

        def open(self, desk: SourceDesk) -> None:
            self._desk = desk

        def take(self, most: int, now_ms: int) -> list[Item]:
            urls = [self.urls.popleft() for _ in range(min(most, len(self.urls)))]
            return [page_of(url, self._desk.prints) for url in urls]

        def settled(self, item: Item, record: Entry) -> None:
            print(item.url, record.status, Reason(record.reason).name)

All calls come from the dispatcher's task and must not wait: a source that asks somebody else does so in a task of its own, and
keeps here what has come. It calls `desk.wake()` when there is something to take; else the next `take` is within half a second.
`settled` says what the journal says; it is durable after the next checkpoint, for which `Dispatcher.checkpoint_soon` waits.
What is neither settled nor taken back when the run ends was not reached: whoever keeps the source gives it out again. A run ends
when no source has anything left, unless it was asked to stay (`Dispatcher.run`). tests/dispatch/test_dispatcher.py does all this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from shepherd.dispatch.items import Item, Items
from shepherd.dispatch.sites import SiteBook
from shepherd.formats.journal import Entry
from shepherd.formats.tables import Kind, Records
from shepherd.urls import Footprints, parse

MOST_UNSETTLED: Final = 100_000  # items of one source that a dispatcher has in hand; the rows of a plan are not limited


@dataclass(frozen=True)
class SourceDesk:
    """What a dispatcher shows a source before it takes anything."""

    number: int  # of the source, for the counters of the groups; 0 is the dispatcher's own
    prints: Footprints
    wake: Callable[[], object]
    journalled: Records  # by an interrupted run of the same reap
    book: SiteBook
    items: Items


class SourceCounts(NamedTuple):
    """Items that a source has given, and those of them that are settled."""

    items: int
    settled: int


class WorkSource(Protocol):
    """Derive from it: only `take` and `settled` must be written."""

    def open(self, desk: SourceDesk) -> None:
        """The run begins. Who has very much at once enters it here, in bulk."""
        return

    def take(self, most: int, now_ms: int) -> Sequence[Item]:
        """The next items, at most so many; none if there are none now. Of several of one URL each is fetched."""

    def handed_out(self, item: Item, now_ms: int) -> None:
        """A reaper is about to be asked for it; again, if it is tried again."""
        return

    def settled(self, item: Item, record: Entry) -> None:
        """It has ended with this record of the journal, and will not be mentioned again.

        `record.result` and `reason` say how, `oid` where its bucket is. A page that has moved has another `item.site`.
        """

    def takes_back(self, item: Item) -> bool:
        """Its site cannot be asked in this reap: True takes the item back, without a record; False settles it as failed."""
        return False


def page_of(url: str, prints: Footprints, *, priority: int = 0, weight: int = 0, ticket: int = 0) -> Item:
    """An item for a URL; BadUrl if it is not one. `ticket` is the source's own number for it, and stays with it."""
    parsed = parse(url)
    norm, path, site = prints.of(parsed)
    return Item(Kind.PAGE, norm, path, site, site, site, parsed.href, weight=weight, priority=priority, ticket=ticket)
