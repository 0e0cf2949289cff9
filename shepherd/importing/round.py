"""What an import takes in at a time: harvests for the inbox, and the phases that take them in.

A record of a URL that has no row settles nothing, and of several records of a row one cork sees only the newest. So a round
leaves up to three harvests, each when the one before it is in the tables: the new URLs as contributions, which cork, merge,
select and record make rows; the documents, in the order of their times; then what only speaks of documents that are there:
failures and revisits.

Killed anywhere, what was left in the inbox is taken in by the next cork, once, and what was not is imported again: its rows do
not know of it yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from shepherd.arrays.partitions import no_progress
from shepherd.config import Config
from shepherd.cycle.common.norms import version_of
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.cork import drive as cork
from shepherd.cycle.equiv import drive as equiv
from shepherd.cycle.merge import drive as merge
from shepherd.cycle.record import drive as record
from shepherd.cycle.select import drive as select
from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.verify import NewLinks
from shepherd.equiv import load_equiv
from shepherd.errors import Corruption, NothingToDo, UsageError
from shepherd.formats import contrib
from shepherd.formats.block_builder import BlockBuilder
from shepherd.formats.check import Bytes
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JOURNAL, NO_OID, NO_ROW, ContribFlag, Kind, Reason, Records, Result
from shepherd.importing.account import RecordPlace
from shepherd.importing.judge import WarcPage, row_of
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import State
from shepherd.store.state.inbox import HARVEST, HarvestDraft
from shepherd.urls import Footprints

PHASES: Final = {"closed": merge, "merged": equiv, "equiv": select, "selected": record}
ORDER: Final = (merge, equiv, select, record)
AT_ONCE: Final = 4_096
WHERE: Final = "group"  # until a record is settled, this field says where it stands in the import; in a journal it is 0


class RoundSink(Protocol):
    """Where documents and links go: a harvest, or nowhere."""

    def store(self, data: bytes) -> int: ...
    def contribute(self, records: int, block: Bytes) -> None: ...


class Nowhere:
    """Where they go if they are only counted."""

    def store(self, data: bytes) -> int:
        return 0

    def contribute(self, records: int, block: Bytes) -> None:
        pass


class UnsettledListener(Protocol):
    """Is called for records that turn out to settle nothing."""

    def on_rowless(self, place: RecordPlace) -> None:
        """A robots file of a site without a page."""

    def on_unknown(self, file: int, offset: int) -> None:
        """A revisit of what is not known."""


class Round:
    """Collects. Documents and links are written at once; a journal record is held, 128 bytes, until the round is settled."""

    def __init__(self, urls: RoundSink, documents: RoundSink, prints: Footprints, filter_version: int) -> None:
        self._urls, self._documents = urls, documents
        self.links = Contributions(documents.contribute, filter_version)
        self._new = BlockBuilder(prints, filter_version)
        self._stored, self._late = bytearray(), bytearray()
        self._robots: dict[int, RecordPlace] = {}  # by their numbers, where robots files stand
        self.new = 0

    def __len__(self) -> int:
        """Journal records."""
        return (len(self._stored) + len(self._late)) // JOURNAL.itemsize

    def store(self, page: WarcPage, entry: Entry, bucket: bytes, number: int, place: RecordPlace) -> None:
        """A document or redirect; `number` decides between records of the same time."""
        if page.kind == Kind.ROBOTS:
            self._robots[number] = place
        self._stored += entry._replace(oid=self._documents.store(bucket), stored_bytes=len(bucket), **{WHERE: number}).pack()
        self.enter(page)

    def fail(self, page: WarcPage, entry: Entry) -> None:
        """A server's answer that brought no document."""
        self._late += entry.pack()
        self.enter(page)

    def revisit(self, page: WarcPage, file: int, offset: int) -> None:
        """That a document was unchanged; whether it is known shows when the round is settled. Where the record stands is kept."""
        entry = Entry(
            norm=page.norm,
            path=page.path,
            site=page.site,
            answered=page.site,
            qkey=page.qkey,
            start_ms=page.refers_ms,
            end_ms=page.time_ms,
            plan_row=file,
            kind=page.kind,
            result=Result.UNCHANGED,
            reason=Reason.UNCHANGED,
            section=page.section,
            **{WHERE: offset},
        )
        self._late += entry.pack()

    def link(self, links: NewLinks) -> None:
        self.links.add(links.block, links.rows, links.texts)

    def enter(self, page: WarcPage) -> None:
        """A URL that has no row is contributed, with a weight of its own; merge makes the rows of robots files."""
        if page.has_row or page.kind == Kind.ROBOTS:
            return
        self.new += 1
        flags = ContribFlag.OWN_WEIGHT | (ContribFlag.HTTPS if page.url.site.startswith("https:") else 0)
        self._new.add(page.url.site, page.url.path, page.weight, page.section, int(flags))
        if self._new.is_full:
            self.flush_urls()

    def flush_urls(self) -> None:
        if len(self._new):
            block = self._new.block()
            self._urls.contribute(len(block), contrib.encode(block))

    def stored(self, state: State, on_rowless: Callable[[RecordPlace], object]) -> Records:
        """The records of documents, oldest first; `state` has their rows. A robots file has one if its site has pages."""
        records = np.frombuffer(bytes(self._stored), JOURNAL).copy()
        keep = np.ones(len(records), np.bool_)
        for n in np.flatnonzero(records["kind"] == Kind.ROBOTS).tolist():
            row = records[n]
            if row_of(state, int(row["norm"]), int(row["path"]), int(row["site"])) is None:
                keep[n] = False
                on_rowless(self._robots[int(row[WHERE])])
        order = np.lexsort((records[WHERE], records["end_ms"]))
        records[WHERE] = 0
        return records[order[keep[order]]]

    def late(self) -> Records:
        """The other records, oldest first."""
        records = np.frombuffer(bytes(self._late), JOURNAL).copy()
        return records[np.argsort(records["end_ms"], kind="stable")]


class Settling:
    """Takes a round in, under the lock."""

    def __init__(self, writer: Writer, config: Config, now: int, new_name: Callable[[], str], jobs: int) -> None:
        self._writer, self._config, self._now, self._new_name, self._jobs = writer, config, now, new_name, jobs

    def begin(self) -> State:
        """A closed state to go on from: what an earlier import, or another program, was killed at is finished first."""
        state = self._writer.furthest()
        if state.name.phase == "reap":
            raise not_now(state, "an import begins at a closed state")
        if not state.name.closed:
            state = self._to_closed()
        if self._writer.database.inbox.waiting(state.control.applied, HARVEST):
            with contextlib.suppress(NothingToDo, Corruption):  # one that cannot be taken is for shep-cork to report
                state = self._cork()
        if state.control.equiv != version_of(load_equiv(self._config.equiv_path)):  # footprints must hold until the round is in
            state = self._to_closed()
        self._equiv = state.control.equiv
        return state

    def draft(self) -> HarvestDraft:
        return self._writer.database.inbox.draft_harvest(self._new_name(), self._config.store.segment_bytes)

    def take_in(self, round_: Round, urls: HarvestDraft, documents: HarvestDraft, listener: UnsettledListener) -> dict[str, int]:
        """What cork counted."""
        round_.flush_urls()
        round_.links.flush()
        if round_.new:
            urls.keep(self._now * 1000)
            self._must_be_taken(urls.name, self._cork())
            if self._to_closed().control.equiv != self._equiv:
                raise UsageError(f"{self._config.equiv_path} was changed meanwhile; import the same files again")
        counts: dict[str, int] = {}
        stored = round_.stored(self._writer.furthest(), listener.on_rowless)
        if len(stored):
            _add(counts, self._corked(documents, stored))
        late = _resolved(self._writer.furthest(), round_.late(), listener.on_unknown)
        if len(late):
            with self.draft() as draft:
                _add(counts, self._corked(draft, late))
        return counts

    def _corked(self, draft: HarvestDraft, records: Records) -> dict[str, int]:
        for start in range(0, len(records), AT_ONCE):
            for row in records[start : start + AT_ONCE]:
                draft.harvest.journal(row.tobytes())
        draft.keep(self._now * 1000)
        state = self._cork()
        self._must_be_taken(draft.name, state)
        counts: dict[str, int] = state.report()["settled"]
        return counts

    def _cork(self) -> State:
        return cork.run(self._writer, self._config, self._now, no_progress, self._jobs)

    def _must_be_taken(self, name: str, state: State) -> None:
        why = state.report().get("refused harvests", {}).get(name)
        if why:
            raise Corruption(f"what was just written cannot be read: {why}", f"inbox/{name}.{HARVEST}")

    def _to_closed(self) -> State:
        """merge, equiv, select and record, from where the cycle stands."""
        state = self._writer.furthest()
        for phase in ORDER[ORDER.index(PHASES[state.name.phase]) :]:
            with contextlib.suppress(NothingToDo) if phase is equiv else contextlib.nullcontext():
                state = phase.run(self._writer, self._config, self._now, no_progress, self._jobs)
        return state


def _resolved(state: State, late: Records, on_unknown: Callable[[int, int], object]) -> Records:
    """Without revisits of what the state does not know; those that stay no longer say where they stand."""
    keep = np.ones(len(late), np.bool_)
    for n in np.flatnonzero(late["result"] == Result.UNCHANGED).tolist():
        if not _is_unchanged(state, late[n]):
            keep[n] = False
            on_unknown(int(late["plan_row"][n]), int(late[WHERE][n]))
    late = late[keep]
    late["plan_row"], late[WHERE], late["oid"], late["start_ms"] = NO_ROW, 0, NO_OID, late["end_ms"]
    return late


def _is_unchanged(state: State, revisit: np.void) -> bool:
    """Whether the body that a revisit refers to is the one that its row has: fetched then or before, and the same since."""
    row = row_of(state, int(revisit["norm"]), int(revisit["path"]), int(revisit["site"]))
    if row is None or not state.index["digest"].value(row):
        return False
    gathered, checked = state.index["gathered"].value(row), state.index["checked"].value(row)
    refers = int(revisit["start_ms"]) // 1000 or gathered
    return 0 < gathered <= refers <= checked and gathered <= int(revisit["end_ms"]) // 1000


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count
