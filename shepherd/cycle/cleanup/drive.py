"""Drives cleanup: closed N becomes closed N+1, N+2 ..., one for each batch; documents stay what they are.

First rows are marked (cycle/cleanup/rules): what is forgotten, filtered out or asleep lets go of its bytes. Then segments of
which little is left, and small ones, are copied together (cycle/cleanup/shakedown), as many at a time as the disk has room for.
Every step is decided by the state that it finds and by nothing that an earlier step remembers: killed anywhere, a cleanup simply
goes on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from shepherd.arrays.partitions import Tick, partitions, silent
from shepherd.config import Config
from shepherd.cycle.cleanup import mark as cleanup_mark
from shepherd.cycle.cleanup import rules as cleanup
from shepherd.cycle.cleanup import shakedown
from shepherd.cycle.cleanup.copy import Moved, copy_segments
from shepherd.cycle.cleanup.judge import ROWS, Judged, judge
from shepherd.cycle.cleanup.report import Seen, averages, last_seen, pinned, remember
from shepherd.cycle.cleanup.shakedown import Choice, Fill
from shepherd.cycle.cleanup.survey import Known, Survey, claims, survey
from shepherd.cycle.cleanup.tombs import Tombs, find_tombs
from shepherd.cycle.common.turn import not_now
from shepherd.errors import NoSpace, NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.formats import tables
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import I64
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State

_NONE: Final = Known()


@dataclass(frozen=True)
class Job:
    """What one cleanup goes by from its beginning to its end."""

    writer: Writer
    config: Config
    filters: Filter
    now: int
    jobs: int
    tombs: Tombs
    judged: Judged | None

    @property
    def known(self) -> Known:
        return Known(hollow=self.tombs.hollow, settled=self.tombs.settled)

    @property
    def step(self) -> int:
        return self.config.store.partition_rows

    def choose(self, fill: Fill) -> Choice:
        return shakedown.choose(fill, self.config.cleanup, self.config.store.segment_bytes, self.tombs.forced)


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1, *, everything: bool = False) -> State:
    """`everything` judges all URLs by the filter and checks all references even if the last cleanup has, by the same filter."""
    state = writer.furthest()
    if not state.name.closed:
        raise not_now(state, "a cleanup needs a closed state")
    filters = load_filter(config.filter_path)
    seen = Seen() if everything else last_seen(writer.database, state.control.cleaned)
    again = seen.filter != filters.version
    found = survey(state, _NONE, config.store.partition_rows, jobs, silent if again else tick)
    tombs = find_tombs(state, found.deleted, jobs, seen.unseen)
    judged = judge(state, found, filters, config.store.partition_rows, jobs, tick) if again else None
    job = Job(writer, config, filters, now, jobs, tombs, judged)
    known = judged.known(job.known) if judged is not None else job.known
    found = survey(state, known, job.step, jobs)
    if writer.rehearsing:
        return _rehearse(job, state, found)
    first, totals = state, Counter[str]()
    while True:
        made = _next(job, state, found, known)
        if made is None:
            break
        state, job = made
        known = job.known
        totals.update(state.report()["counts"])
        found = survey(state, known, job.step, jobs)
    now_seen = Seen(filters.version, state.control.segments)
    if now_seen != seen or state is not first:
        remember(writer.database, state.name, state.control.cleaned, now_seen, totals)
    if state is first:
        raise NothingToDo(_full(found.fill))
    return state


def _full(fill: Fill) -> str:
    if not len(fill.number):
        return "nothing to reclaim: nothing has been stored yet"
    return (
        f"nothing to reclaim: {fill.share} % of the {int(fill.length.sum())} bytes in {len(fill.number)} segments are needed, "
        "and no segment is sparse or to be joined"
    )


def _next(job: Job, state: State, found: Survey, known: Known) -> tuple[State, Job] | None:
    """One step further, and what to go by from there; None where there is none."""
    excess = _excess(job.config, found)
    if found.look.marks or (excess and found.look.weights.any()):
        return _publish_marks(job, state, found, known, excess)
    choice = job.choose(found.fill)
    if not len(choice.places):
        return None
    places = shakedown.batch(found.fill, choice, _room(job, state), ROWS)
    if not len(places):
        _prune(job)  # the one before us may have been killed before it came to that
        places = shakedown.batch(found.fill, choice, _room(job, state), ROWS)
    if not len(places):
        if _only_small(choice):
            return None
        raise NoSpace(
            f"{state.path.parent}: no room to copy any of {len(choice.places)} segments; free some, take a lease away that pins "
            "old states, or make cleanup.reserve_bytes or cleanup.batch_bytes fit: nothing was lost"
        )
    return _publish_batch(job, state, found, choice, places)


def _only_small(choice: Choice) -> bool:
    return not (choice.empty or choice.sparse or choice.forced)


def _excess(config: Config, found: Survey) -> int:
    """How many bytes beyond the limit of size would be needed, even without any waste."""
    limit = config.cleanup.size_bytes
    return max(found.needed - limit, 0) if limit else 0


def _room(job: Job, state: State) -> int:
    """The bytes that a batch may copy."""
    disk = os.statvfs(state.path)
    columns = (state.index.rows + state.sites.rows) * 8
    free = disk.f_bavail * disk.f_frsize - columns - job.config.cleanup.reserve_bytes
    most = job.config.cleanup.batch_bytes
    return max(min(free, most) if most else free, 0)


# --- marks ------------------------------------------------------------------------------------------------------


def _publish_marks(job: Job, state: State, found: Survey, known: Known, excess: int) -> tuple[State, Job]:
    """Types, reasons, sections and thin buckets; the bytes themselves go with the batches that follow."""
    bar = cleanup.bar_for(found.look.weights, excess)
    builder = _begin(job, state)
    try:
        builder.keep_objects()
        made = cleanup_mark.write(builder, state, known, bar, found, job.config)
        if job.judged is not None:
            job = replace(job, judged=replace(job.judged, plain=job.judged.plain - made.plain))
        done = not (made.left or _is_over(job, made.after)) and not len(job.choose(made.after.fill).places)
        report: dict[str, Any] = {"counts": made.counts}
        return _publish(job, builder, made.after, report, done), job
    finally:
        builder.close()


def _is_over(job: Job, after: Survey) -> bool:
    return bool(_excess(job.config, after) and after.look.weights.any())


# --- batches ----------------------------------------------------------------------------------------------------


def _publish_batch(job: Job, state: State, found: Survey, choice: Choice, places: I64) -> tuple[State, Job]:
    fill = found.fill
    numbers = fill.number[places]
    held = claims(state, numbers, found.robots, job.step)
    kept = np.setdiff1d(fill.number, numbers)
    limit = job.config.store.segment_bytes
    builder = _begin(job, state)
    try:
        segments = builder.segment_writer(limit)
        moved = copy_segments(state, numbers[fill.rows[places] > 0], held, segments, limit, job.jobs)
        first = builder.control.segments
        builder.finish_segments(segments)
        builder.keep(f"{names.OBJECTS}/{names.segment(number)}" for number in kept.tolist())
        _move(builder, state, held.row, moved, job.step)
        after = _after(found, kept, moved, held.size, first, builder.control.segments)
        later = replace(job, tombs=job.tombs.without(numbers))
        done = not len(later.choose(after.fill).places) and len(later.tombs.settled) == len(job.tombs.settled)
        counts = {
            "segments copied": int(np.count_nonzero(fill.rows[places])),
            "segments dropped": int(np.count_nonzero(fill.rows[places] == 0)),
            "segments made": builder.control.segments - first,
            "buckets copied": len(held),
            "bytes copied": int(held.size.sum()),
            "bytes freed": int(fill.length[places].sum() - held.size.sum()),
        }
        reasons = {"empty": choice.empty, "sparse": choice.sparse, "small": choice.small, "purged": choice.forced}
        purged = job.tombs.forced.intersection(numbers.tolist())
        return _publish(job, builder, after, {"counts": counts, "chosen": reasons}, done, purged), later
    finally:
        builder.close()


def _move(builder: Builder, state: State, row: I64, moved: Moved, step: int) -> None:
    """The columns that name places: `oid` of the index, `robots_oid` of the sites."""
    order = np.argsort(row, kind="stable")
    order = order[np.searchsorted(row[order], 0) :]  # the others are robots files that only sites hold
    rows, oids = row[order], moved.new[order]
    table = builder.table("index", ["oid"])
    for start, stop in partitions(state.index.rows, step):
        first, last = np.searchsorted(rows, [start, stop]).tolist()
        column = state.index["oid"][start:stop].copy()
        column[rows[first:last] - start] = oids[first:last]
        table.append({"oid": column})
    builder.finish_table(table)
    table = builder.table("sites", ["robots_oid"])
    for start, stop in partitions(state.sites.rows, step):
        table.append({"robots_oid": moved.follow(state.sites["robots_oid"][start:stop])})
    builder.finish_table(table)
    builder.keep_table("index", ["oid"])
    builder.keep_table("sites", ["robots_oid"])


def _after(found: Survey, kept: I64, moved: Moved, size: I64, first: int, end: int) -> Survey:
    """How full the segments are with the copies in place: of what was copied nothing is waste."""
    stay = np.isin(found.fill.number, kept)
    segment = (moved.new >> np.uint64(32)).astype(np.int64) - first
    rows, bytes_ = np.bincount(segment, minlength=end - first).astype(np.int64), np.zeros(end - first, np.int64)
    np.add.at(bytes_, segment, size)
    parts = ((found.fill.number[stay], np.arange(first, end)), (found.fill.length[stay], bytes_))
    fill = Fill(*map(np.concatenate, (*parts, (found.fill.rows[stay], rows), (found.fill.bytes[stay], bytes_))))
    return Survey(found.look, fill, found.robots, found.deleted)


# --- what all steps share ---------------------------------------------------------------------------------------


def _begin(job: Job, state: State) -> Builder:
    """The next closed state, with everything that a cleanup never touches."""
    builder = job.writer.build(state, StateName(state.number + 1, CLOSED), job.now)
    builder.keep_table("servers")
    builder.keep(p for p in state.control.files if p.partition("/")[0] not in (*tables.TABLES, names.OBJECTS, names.REPORT))
    return builder


def _publish(
    job: Job, builder: Builder, after: Survey, report: dict[str, Any], done: bool, purged: Collection[int] = ()
) -> State:
    """The last step of a cleanup says so in control, and tells what was found out on the way.

    A report says nothing that would be another if the cleanup were killed here and began again.
    """
    kept = set(after.fill.number.tolist())
    told = {"phase": "cleanup", **report, "needed percent": after.fill.share}
    told |= {"segments": len(kept), "bytes": int(after.fill.length.sum())}
    told["pinned"] = pinned(job.writer.database, job.config, kept, purged, job.now)
    if done:
        builder.change(cleaned=job.now)
        told["averages"] = averages(after.look, job.judged.plain if job.judged is not None else None, job.config)
        told |= {"references checked": int(after.fill.rows.sum())} if job.judged is not None else {}
    state = job.writer.publish(builder, told)
    _prune(job)  # only then is anything free
    return state


def _rehearse(job: Job, state: State, found: Survey) -> State:
    """What a cleanup would do, as far as that can be known without doing it."""
    look, choice, excess = found.look, job.choose(found.fill), _excess(job.config, found)
    if not (look.marks or len(choice.places) or (excess and look.weights.any())):
        raise NothingToDo(_full(found.fill))
    counts = {
        "filtered": look.rejected,
        "deleted rows to be dropped": look.settled,
        "forgotten rows without their buckets": look.stale,
        "trimmed": look.trims,
        "sections changed": look.moved,
        "bytes over the limit": excess,
        "segments copied": int(np.count_nonzero(found.fill.rows[choice.places])),
        "segments dropped": choice.empty,
        "bytes copied": int(found.fill.bytes[choice.places].sum()),
        "bytes freed": int((found.fill.length - found.fill.bytes)[choice.places].sum()),
    }
    reasons = {"empty": choice.empty, "sparse": choice.sparse, "small": choice.small, "purged": choice.forced}
    kept = set(np.delete(found.fill.number, choice.places).tolist())
    report = {"phase": "cleanup", "counts": counts, "chosen": reasons, "needed percent": found.fill.share}
    report["deleted documents waiting"] = len(np.unique(job.tombs.left))
    report["pinned"] = pinned(job.writer.database, job.config, kept, job.tombs.forced, job.now)
    report["averages"] = averages(look, job.judged.plain if job.judged is not None else None, job.config)
    return job.writer.publish(job.writer.build(state, StateName(state.number + 1, CLOSED), job.now), report)


def _prune(job: Job) -> None:
    store = job.config.store
    job.writer.prune(store.keep_states, job.now, store.keep_journals, job.config.export.cursors)
