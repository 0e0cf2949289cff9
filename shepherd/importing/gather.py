"""Reads the records of a round, has each response worked on, and collects what comes of it.

Responses are worked on by the workers of a reapd of our own (importing/worker_pool.py), several at a time, and what comes back is
checked as what every reaper says is. Nobody is contacted, so no record says so, and no server waits because of an import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from shepherd.config import Config
from shepherd.dispatch import reaper_sources as sources
from shepherd.dispatch.disk_budget import DiskBudget
from shepherd.dispatch.items import Item
from shepherd.dispatch.reap import hello
from shepherd.dispatch.verify import Answer, PendingRequest, Verifier
from shepherd.errors import BadUrl, Corruption, NoSpace
from shepherd.filters import Filter
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.formats.vocabulary import word
from shepherd.importing import judge as warcjudge
from shepherd.importing import warc_file as warcfile
from shepherd.importing.account import Account, Place
from shepherd.importing.judge import Bad, Judge, LeftOut, Page
from shepherd.importing.round import Round
from shepherd.importing.warc_file import Damage, Record
from shepherd.importing.worker_pool import Workshop
from shepherd.store.state.directory import State
from shepherd.urls import Url, parse
from shepherd.wire import messages as wire

UNDER_WAY: Final = 2  # answers for each worker: one at hand, one on its way
LOOK_EVERY: Final = 256  # answers, at the room that the disk has
NOT_CONTACTED: Final = 0xFFFF & ~int(JournalFlag.CONTACTED)
ERRORS: Final = (Reason.CLIENT_ERROR, Reason.SERVER_ERROR)
MOVED: Final = "moves to their equivalent"
ROBOTS_FILES: Final = "robots files"
ROBOTS_REDIRECTS: Final = "redirected robots files"
WORDS: Final = {
    Reason.MALFORMED: "it is no HTTP answer that can be used",
    Reason.DECODING: "its body cannot be decoded",
    Reason.PARSER: "it kills its parser",
}


@dataclass(frozen=True)
class Source:
    """A file to import: its name as it is told, and what opens it."""

    name: str
    open: Callable[[], AbstractContextManager[warcfile.Stream]]


@dataclass(frozen=True)
class Options:
    weight: int  # of documents that nobody knows
    round_records: int  # taken in at a time
    links: bool = True
    jobs: int = 1


class Feed:
    """The records of all files, one after the other; `file` is the number of the one at hand."""

    def __init__(self, files: Sequence[Source], most: int) -> None:
        self.files, self.file, self.ended = files, 0, False
        self._records = self._read(most)

    def _read(self, most: int) -> Iterator[Record | Damage]:
        for number, source in enumerate(self.files):
            self.file = number
            with source.open() as stream:
                yield from warcfile.records(stream, most)

    def next(self) -> Record | Damage | None:
        """None at the end."""
        found = next(self._records, None)
        self.ended = found is None
        return found

    def place(self, offset: int, file: int | None = None) -> Place:
        return Place(self.files[self.file if file is None else file].name, offset)


@dataclass(frozen=True)
class Job:
    """A response to be worked on; its number decides between records of the same time."""

    number: int
    page: Page
    record: Record
    place: Place


class Gathering:
    """One round. `stored_bytes` tells what it has written so far, `stopping` whether to read no more."""

    def __init__(
        self, state: State, config: Config, filters: Filter, options: Options, now: int, round_: Round, account: Account
    ) -> None:
        self._state, self._config, self._options, self._now_ms = state, config, options, now * 1000
        self._round, self._account = round_, account
        self._judge = Judge(state, filters, options.weight, self._now_ms)
        self._verifier = Verifier(state.control.key, state.number, filters.version, config.fetch, round_.links)
        self._hello = hello(state, config, filters)
        self._root = state.prints.root
        self._jobs = 0

    async def run(self, feed: Feed, stored_bytes: Callable[[], int], stopping: Callable[[], bool]) -> None:
        # A worker that has died may still count as one for a moment, so there is room for more than are needed.
        reapd = sources.local(replace(self._config.reap, workers=2 * self._options.jobs + 2))
        room = DiskBudget(self._state, self._config.reap)
        under: set[asyncio.Task[None]] = set()
        async with Workshop(reapd, self._hello, self._options.jobs) as shop:
            try:
                while not stopping() and len(self._round) + len(under) < self._options.round_records:
                    found = feed.next()
                    if found is None:
                        break
                    job = self._judged(feed, found)
                    if job is None:
                        continue
                    under = await _room_for_one(under, UNDER_WAY * self._options.jobs)
                    under.add(asyncio.create_task(self._work_on(shop, job)))
                    await asyncio.sleep(0)
                    if job.number % LOOK_EVERY == 0 and (full := room.full(stored_bytes())):
                        raise NoSpace(f"{full}; make room and import the same files again: what was taken in stays")
                await _room_for_one(under, 1)
            finally:
                for task in under:
                    task.cancel()
                await asyncio.gather(*under, return_exceptions=True)

    def _judged(self, feed: Feed, found: Record | Damage) -> Job | None:
        """A response to be worked on; all else is counted, and done with."""
        place, account = feed.place(found.offset), self._account
        if isinstance(found, Damage):
            account.refuse(place, found.why)
            return None
        account.records[found.type or "without a type"] += 1
        if found.type not in warcjudge.TAKEN:
            return None
        try:
            page = self._judge.page(found)
        except LeftOut as why:
            account.leave(place, str(why))
            return None
        except Bad as why:
            account.refuse(place, str(why))
            return None
        if page.revisit:
            account.taken["revisits"] += 1
            self._round.revisit(page, feed.file, found.offset)
            return None
        self._jobs += 1
        return Job(self._jobs, page, found, place)

    async def _work_on(self, shop: Workshop, job: Job) -> None:
        result = await shop.work_on(_request(job))
        if result is None:
            self._account.refuse(job.place, WORDS[Reason.PARSER])
            return
        page = job.page
        item = Item(page.kind, page.norm, page.path, page.site, page.site, page.site, page.url.href, weight=page.weight)
        asked = PendingRequest(item, page.qkey, 0, page.url.href, page.time_ms)
        try:
            answer = self._verifier.checked(result, asked, 0, page.time_ms)
        except Corruption as error:
            self._account.refuse(job.place, f"what a worker makes of it does not hold: {error}")
            return
        if self._take(job, answer) and answer.links is not None and self._options.links:
            self._round.link(answer.links)

    def _take(self, job: Job, answer: Answer) -> bool:
        """Whether its links are wanted, too."""
        page, account = job.page, self._account
        entry = answer.record._replace(flags=answer.record.flags & NOT_CONTACTED, retry_after_s=0)
        if answer.result == Result.REDIRECT and page.kind == Kind.ROBOTS:
            account.leave(job.place, ROBOTS_REDIRECTS)  # nobody follows it here: the file is asked for again
            return False
        if (target := self._moved_to(page, answer)) is not None:
            account.leave(job.place, MOVED)
            self._round.enter(replace(page, url=target))
            return False
        if answer.bucket:
            self._round.store(page, entry, answer.bucket, job.number, job.place)
            account.taken[ROBOTS_FILES if page.kind == Kind.ROBOTS else word(answer.result)] += 1
        elif answer.reason in ERRORS:
            self._round.fail(page, entry)
            account.taken["failed"] += 1
        else:
            account.refuse(job.place, WORDS.get(answer.reason, WORDS[Reason.MALFORMED]))
            return False
        return True

    def _moved_to(self, page: Page, answer: Answer) -> Url | None:
        """The URL's own equivalent, if it redirects there: that is the document then. Root pages never move."""
        if answer.result != Result.REDIRECT or page.path == self._root:
            return None
        try:
            target = parse(answer.location)
        except BadUrl:
            return None
        return target if self._state.prints.of(target)[:2] == (page.norm, page.path) else None


async def _room_for_one(under: set[asyncio.Task[None]], most: int) -> set[asyncio.Task[None]]:
    """Wait until fewer than so many are under way; what has failed raises."""
    while len(under) >= most:
        done, under = await asyncio.wait(under, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    return under


def _request(job: Job) -> wire.Recorded:
    page = job.page
    return wire.Recorded(
        token=job.number,
        kind=page.kind,
        url=page.url.href,
        norm=page.norm,
        path=page.path,
        site=page.site,
        qkey=page.qkey,
        address=page.address,
        weight=page.weight,
        section=page.section,
        time_ms=page.time_ms,
        http=job.record.block,
        cut=page.cut,
        provenance=f"WARC file {job.place.file}"[:300],
        alone=False,
    )
