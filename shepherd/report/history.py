"""The outcome of each cycle on record for one URL: planned or left out, fetched with which result, kept or dropped.

Read are the rows of all closed states, the journals of states and of those that were deleted (db/log), and the plan and harvests
of a reap under way. Journals are not sorted by URL: they are looked through from the newest on, as far as a budget of bytes goes,
and what was not looked through is marked as such. So the same database always gives the same story, on a slow machine, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shepherd import text as words
from shepherd.errors import Corruption, UsageError
from shepherd.formats import kinds
from shepherd.report import one_row as onerow
from shepherd.report.one_row import Line, Values

if TYPE_CHECKING:
    from shepherd.formats.tables import Records
    from shepherd.report.find import UrlPosition
    from shepherd.store.state.database import Database
    from shepherd.store.state.directory import State

SMALL_BYTES: Final = 1 << 20  # a journal up to this size is always looked through


class ReadBudget:
    """How much of the journals, and of a plan, is looked through where nobody wants to wait."""

    def __init__(self, most_bytes: float) -> None:
        self._bytes = most_bytes

    def take(self, length: int) -> bool:
        """Whether so many bytes may be read: all of a file or nothing, for half of it would be half the truth."""
        if length > max(self._bytes, SMALL_BYTES):
            return False
        self._bytes -= length
        return True


@dataclass(frozen=True)
class FetchRecord:
    """One record of a journal."""

    start_ms: int
    result: int
    reason: int
    status: int
    download_ms: int
    hops: int
    flags: int

    def text(self) -> str:
        from shepherd.formats.tables import JournalFlag

        more = self.flags & ~JournalFlag.CONTACTED
        flags = f", {kinds.RECORD_FLAGS.text(more)}" if more else ""
        hops = f" after {words.many(self.hops, 'hop')}" if self.hops else ""
        result, reason = kinds.RESULT.text(self.result), kinds.REASON.text(self.reason)
        outcome = result if reason == result else f"{result} ({reason})"
        when = kinds.TIME_MS.text(self.start_ms)
        if not self.flags & JournalFlag.CONTACTED:
            return f"not fetched: {outcome}{hops} at {when}, nobody was asked{flags}"
        return f"fetched: {outcome}{hops} at {when}, status {kinds.STATUS.text(self.status)}, {self.download_ms} ms{flags}"

    def as_object(self) -> dict[str, Any]:
        from shepherd.formats.tables import KINDS

        return kinds.row_as_json(KINDS["journal"], vars(self))


@dataclass(frozen=True)
class CycleEntry:
    """What one directory says. `row` is None where it does not know the URL, or has no index any more; `fetches` is None where
    nobody looked, or there is no journal; `planned` belongs to a reap under way."""

    name: str
    phase: str
    made_s: int
    row: Values | None
    fetches: tuple[FetchRecord, ...] | None
    indexed: bool = True
    journal: bool = False
    planned: str = ""

    def line(self) -> Line:
        return f"state {self.name.lstrip('0')}", "; ".join(self._phrases())

    def _phrases(self) -> Iterator[str]:
        yield f"{self.phase or 'made'} {kinds.TIME_S.text(self.made_s)}"
        row = self.row
        if row is not None:
            yield f"{onerow.type_name(row)}, {kinds.REASON.text(row['reason'])}, weight {row['weight']}"
        elif self.indexed:
            yield "not known"
        if self.planned:
            yield self.planned
        if self.fetches:
            yield from (fetch.text() for fetch in self.fetches)
        elif self.journal and self.fetches is None:
            yield "its journal was not looked through (--deep does)"
        elif self.journal and row is not None and row["deferred"]:
            yield f"left out by the plan: {kinds.DEFERRED.text(row['deferred'])}"
        elif self.journal:
            yield "not fetched"

    def as_object(self) -> dict[str, Any]:
        fetches = [fetch.as_object() for fetch in self.fetches] if self.fetches is not None else None
        row = onerow.as_object(self.row, None) if self.row is not None else None
        return {
            "state": self.name,
            "phase": self.phase or None,
            "made": kinds.TIME_S.json(self.made_s),
            "known": self.row is not None if self.indexed else None,
            "row": row,
            "planned": self.planned or None,
            "fetches": fetches,
            "journal": "none" if not self.journal else "not looked through" if self.fetches is None else "looked through",
        }


def cycles(database: Database, position: UrlPosition, purpose: str, now_ms: int, budget: ReadBudget) -> list[CycleEntry]:
    """Oldest first. A state that is deleted meanwhile is skipped."""
    return list(reversed(list(_newest_first(database, position, purpose, now_ms, budget))))


def _newest_first(
    database: Database, position: UrlPosition, purpose: str, now_ms: int, budget: ReadBudget
) -> Iterator[CycleEntry]:
    from shepherd.store.state import journals

    names = database.states()
    if names and names[-1].phase == "reap":
        yield _of_reap(database.open(names[-1]), position, budget)
    closed = [name.number for name in names if name.closed]
    for number in reversed(closed):
        try:
            with database.reading(purpose, now_ms, number) as state:
                yield _of_state(state, position, budget)
        except UsageError:  # it has just been deleted
            continue
    for name in reversed(journals.numbers(database.log_path)):
        if name.number not in closed:
            yield _of_journal(journals.open_state(database.log_path, name), position, budget)


def _of_state(state: State, position: UrlPosition, budget: ReadBudget) -> CycleEntry:
    row, journal = _row(state, position), bool(state.numbered("journal"))
    fetches = _fetches(_journal(state), position, budget) if journal else None
    phase = state.report().get("phase", "")
    return CycleEntry(str(state.number), str(phase), state.control.now, row, fetches, journal=journal)


def _of_journal(state: State, position: UrlPosition, budget: ReadBudget) -> CycleEntry:
    """Of a deleted state only its journal is kept."""
    fetches = _fetches(_journal(state), position, budget)
    return CycleEntry(str(state.number), "cork", state.control.now, None, fetches, indexed=False, journal=True)


def _of_reap(state: State, position: UrlPosition, budget: ReadBudget) -> CycleEntry:
    row, planned = _row(state, position), _planned(state, position, budget)
    fetches = _fetches([of_harvest(path) for path in state.harvests()], position, budget)
    return CycleEntry(str(state.name), "plan", state.control.now, row, fetches, journal=True, planned=planned)


def _row(state: State, position: UrlPosition) -> Values | None:
    """By the state's own equivalences, which may not be those of today."""
    from shepherd.store.state import lookup

    for url in (position.stripped, position.parsed):
        norm, path, site = state.prints.of(url)
        rows = lookup.rows_of(state, norm, path)
        if rows:
            return onerow.values(state.index, min(rows, key=lambda row: state.index["site"].value(row) != site))
    return None


# --- looking through --------------------------------------------------------------------------------------------


def _journal(state: State) -> list[tuple[Path, int]]:
    """Its journals, and how long each is."""
    from shepherd.store.disk import names

    paths = [state.path / names.journal(number) for number in state.numbered("journal")]
    return [(path, path.stat().st_size) for path in paths]


def of_harvest(path: Path) -> tuple[Path, int]:
    """The journal of one harvest of a reap, up to its newest checkpoint: dispatchers may have worked side by side."""
    from shepherd.store.disk import names
    from shepherd.store.state import harvest

    harvest_status = harvest.inspect(path)
    if harvest_status.damage:
        raise Corruption(f"{harvest_status.damage}; shep-check names the place", path)
    return path / names.JOURNAL, harvest_status.checkpoint.journal.length


def _records(path: Path, length: int) -> Iterator[Records]:
    from shepherd.formats.frame import FrameKind
    from shepherd.formats.tables import JOURNAL
    from shepherd.store.state import logs

    return logs.records(path, FrameKind.JOURNAL, JOURNAL, length)


def _mine(position: UrlPosition) -> Callable[[Records], Any]:
    """Which records are of this document: by footprint; or by site, if another url-equiv had made its norm."""
    import numpy as np

    norm, path, site = (np.uint64(half) for half in (position.norm, position.path, position.site))
    return lambda part: (part["path"] == path) & ((part["norm"] == norm) | (part["site"] == site))


def _fetches(files: Sequence[tuple[Path, int]], position: UrlPosition, budget: ReadBudget) -> tuple[FetchRecord, ...] | None:
    """All that the journals of one state say, or None where they are too long."""
    from shepherd.formats.tables import Kind

    fetches, mine = [], _mine(position)
    if not budget.take(sum(length for _path, length in files)):
        return None
    for part in (part for path, length in files if length for part in _records(path, length)):
        if len(part):
            hits = part[mine(part)]
            fetches += [_fetch(record) for record in hits if record["kind"] in (Kind.PAGE, Kind.ROBOTS)]
    return tuple(fetches)


def _fetch(record: Any) -> FetchRecord:
    return FetchRecord(*(int(record[field.name]) for field in dataclasses.fields(FetchRecord)))


def _planned(state: State, position: UrlPosition, budget: ReadBudget) -> str:
    """Where the plan has it, in words."""
    import numpy as np

    from shepherd.formats.frame import FrameKind
    from shepherd.formats.tables import PLAN
    from shepherd.store.disk import names
    from shepherd.store.state import logs

    path, mine, before = state.path / names.PLAN, _mine(position), 0
    if not budget.take(path.stat().st_size):
        return "its plan was not looked through (--deep does)"
    for part in logs.records(path, FrameKind.PLAN, PLAN):
        hits = np.flatnonzero(mine(part)).tolist()
        if hits:
            record = part[hits[0]]
            why = kinds.WHY.text(int(record["why"]))
            return f"planned as number {before + hits[0] + 1:,}: {why}, priority {int(record['priority'])}"
        before += len(part)
    return f"not among the {before:,} that are planned"
