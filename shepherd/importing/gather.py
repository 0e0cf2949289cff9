"""Reads the records of a round, has each response worked on, and collects the results.

Responses are worked on by the workers of a reapd of our own (importing/worker_pool.py), several at a time, and what comes back is
checked as what every reaper says is. Nobody is contacted, so no record says so, and no server waits because of an import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shepherd.config import Config, Reap
from shepherd.dispatch import reaper_sources as sources
from shepherd.dispatch.disk_budget import DiskBudget
from shepherd.dispatch.items import Item
from shepherd.dispatch.reap import hello
from shepherd.dispatch.verify import Answer, PendingRequest, Verifier
from shepherd.errors import BadUrl, Corruption, NoSpace
from shepherd.filters import Filter
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.formats.vocabulary import word
from shepherd.importing import warc_file as warcfile
from shepherd.importing.account import Account, RecordPlace
from shepherd.importing.judge import Bad, Judge, LeftOut, WarcPage
from shepherd.importing.reading import ImportFile, records_of
from shepherd.importing.round import Round
from shepherd.importing.warc_file import Damage, Record
from shepherd.importing.worker_pool import WorkerPool
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
    Reason.MALFORMED: "it is not an HTTP answer that can be used",
    Reason.DECODING: "its body cannot be decoded",
    Reason.PARSER: "it kills its parser",
}


@dataclass(frozen=True)
class Options:
    weight: int  # of new documents
    round_records: int  # taken in at a time
    links: bool = True
    jobs: int = 1


class Feed:
    """The records of all files, one after the other; `file` is the number of the one at hand."""

    def __init__(self, files: Sequence[ImportFile], most: int, reap: Reap) -> None:
        self.files, self.file, self.ended = files, 0, False
        self._records = self._read(most, reap)

    def _read(self, most: int, reap: Reap) -> Generator[Record | Damage]:
        for number, file in enumerate(self.files):
            self.file = number
            yield from records_of(file, most, reap)

    def close(self) -> None:
        """Read no more."""
        self._records.close()

    def next(self) -> Record | Damage | None:
        """None at the end."""
        record = next(self._records, None)
        self.ended = record is None
        return record

    def place(self, offset: int, file: int | None = None) -> RecordPlace:
        return RecordPlace(self.files[self.file if file is None else file].name, offset)


@dataclass(frozen=True)
class ParseJob:
    """A response to be worked on; its number decides between records of the same time."""

    number: int
    page: WarcPage
    record: Record
    place: RecordPlace


class RoundGathering:
    """One round. `stored_bytes` says how much it has written so far, `stopping` whether to read no more."""

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
        async with WorkerPool(reapd, self._hello, self._options.jobs) as pool:
            try:
                while not stopping() and len(self._round) + len(under) < self._options.round_records:
                    record = feed.next()
                    if record is None:
                        break
                    job = self._job_of(feed, record)
                    if job is None:
                        continue
                    under = await _room_for_one(under, UNDER_WAY * self._options.jobs)
                    under.add(asyncio.create_task(self._work_on(pool, job)))
                    await asyncio.sleep(0)
                    if job.number % LOOK_EVERY == 0 and (full := room.full(stored_bytes())):
                        raise NoSpace(f"{full}; make room and import the same files again: what was taken in stays")
                await _room_for_one(under, 1)
            finally:
                for task in under:
                    task.cancel()
                await asyncio.gather(*under, return_exceptions=True)

    def _job_of(self, feed: Feed, record: Record | Damage) -> ParseJob | None:
        """A response to be worked on; all else is counted, and done with."""
        place, account = feed.place(record.offset), self._account
        if isinstance(record, Damage):
            account.refuse(place, record.why)
            if record.is_last:
                account.given_up.append(place.file)
            return None
        account.records[record.type or "without a type"] += 1
        if record.type not in warcfile.DOCUMENT_TYPES:
            return None
        try:
            page = self._judge.page(record)
        except LeftOut as why:
            account.leave(place, str(why))
            return None
        except Bad as why:
            account.refuse(place, str(why))
            return None
        if page.revisit:
            account.taken_by_kind["revisits"] += 1
            self._round.revisit(page, feed.file, record.offset)
            return None
        self._jobs += 1
        return ParseJob(self._jobs, page, record, place)

    async def _work_on(self, pool: WorkerPool, job: ParseJob) -> None:
        result = await pool.work_on(_request(job))
        if result is None:
            self._account.refuse(job.place, WORDS[Reason.PARSER])
            return
        page = job.page
        item = Item(page.kind, page.norm, page.path, page.site, page.site, page.site, page.url.href, weight=page.weight)
        pending = PendingRequest(item, page.qkey, 0, page.url.href, page.time_ms, provenance=_provenance(job))
        try:
            answer = self._verifier.checked(result, pending, 0, page.time_ms)
        except Corruption as error:
            self._account.refuse(job.place, f"what a worker makes of it does not hold: {error}")
            return
        if self._take(job, answer) and answer.links is not None and self._options.links:
            self._round.link(answer.links)

    def _take(self, job: ParseJob, answer: Answer) -> bool:
        """Whether its links are wanted, too."""
        page, account = job.page, self._account
        entry = answer.record._replace(flags=answer.record.flags & NOT_CONTACTED, retry_after_s=0)
        if answer.result == Result.REDIRECT and page.kind == Kind.ROBOTS:
            account.leave(job.place, ROBOTS_REDIRECTS)  # nobody follows it here: the file is fetched again
            return False
        if (target := self._moved_to(page, answer)) is not None:
            account.leave(job.place, MOVED)
            self._round.enter(replace(page, url=target))
            return False
        if answer.bucket:
            self._round.store(page, entry, answer.bucket, job.number, job.place)
            account.taken_by_kind[ROBOTS_FILES if page.kind == Kind.ROBOTS else word(answer.result)] += 1
        elif answer.reason in ERRORS:
            self._round.fail(page, entry)
            account.taken_by_kind["failed"] += 1
        else:
            account.refuse(job.place, WORDS.get(answer.reason, WORDS[Reason.MALFORMED]))
            return False
        return True

    def _moved_to(self, page: WarcPage, answer: Answer) -> Url | None:
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
        finished, under = await asyncio.wait(under, return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
    return under


def _provenance(job: ParseJob) -> str:
    return f"WARC file {job.place.file}"[:300]


def _request(job: ParseJob) -> wire.Recorded:
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
        provenance=_provenance(job),
        alone=False,
    )
