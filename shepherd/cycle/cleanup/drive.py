"""Drives cleanup: closed N becomes closed N+1, N+2 ..., one for each batch; documents stay what they are.

First rows are marked (cycle/cleanup/rules): what is forgotten, filtered out or asleep lets go of its bytes. Then segments of
which little is left, and small ones, are copied together (cycle/cleanup/shakedown), as many at a time as the disk has room for.
Every step is decided by the state that it finds and by nothing that an earlier step remembers: killed anywhere, a cleanup simply
continues.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from shepherd.arrays.partitions import Tick, no_progress, partitions
from shepherd.config import Config
from shepherd.cycle.cleanup import mark as cleanup_mark
from shepherd.cycle.cleanup import rules as cleanup
from shepherd.cycle.cleanup import shakedown
from shepherd.cycle.cleanup.copy import copy_segments
from shepherd.cycle.cleanup.judge import ROWS, FilterJudgement, judge
from shepherd.cycle.cleanup.report import LastFullCleanup, averages, last_full_cleanup, pinned, remember
from shepherd.cycle.cleanup.shakedown import Fill, SegmentChoice
from shepherd.cycle.cleanup.survey import IndexWishes, SegmentSurvey, claims, survey
from shepherd.cycle.cleanup.tombs import Tombs, find_tombs
from shepherd.cycle.common.bucket_moves import BucketMoves
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

_NONE: Final = IndexWishes()


@dataclass(frozen=True)
class CleanupJob:
    """What one cleanup works with from its beginning to its end."""

    writer: Writer
    config: Config
    filters: Filter
    now: int
    jobs: int
    tombs: Tombs
    judgement: FilterJudgement | None

    @property
    def wishes(self) -> IndexWishes:
        return IndexWishes(hollow=self.tombs.hollow, settled=self.tombs.settled)

    @property
    def step(self) -> int:
        return self.config.store.partition_rows

    def choose(self, fill: Fill) -> SegmentChoice:
        return shakedown.choose(fill, self.config.cleanup, self.config.store.segment_bytes, self.tombs.forced)


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1, *, everything: bool = False) -> State:
    """`everything` judges all URLs by the filter and checks all references even if the last cleanup has, by the same filter."""
    state = writer.furthest()
    if not state.name.closed:
        raise not_now(state, "a cleanup needs a closed state")
    filters = load_filter(config.filter_path)
    last = LastFullCleanup() if everything else last_full_cleanup(writer.database, state.control.cleaned)
    again = last.filter != filters.version
    segment_survey = survey(state, _NONE, config.store.partition_rows, jobs, no_progress if again else tick)
    tombs = find_tombs(state, segment_survey.deleted, jobs, last.unseen)
    judgement = judge(state, segment_survey, filters, config.store.partition_rows, jobs, tick) if again else None
    job = CleanupJob(writer, config, filters, now, jobs, tombs, judgement)
    wishes = judgement.wishes(job.wishes) if judgement is not None else job.wishes
    segment_survey = survey(state, wishes, job.step, jobs)
    if writer.is_dry_run:
        return _rehearse(job, state, segment_survey)
    first, totals = state, Counter[str]()
    while True:
        following = _next(job, state, segment_survey, wishes)
        if following is None:
            break
        state, job = following
        wishes = job.wishes
        totals.update(state.report()["counts"])
        segment_survey = survey(state, wishes, job.step, jobs)
    this = LastFullCleanup(filters.version, state.control.segments)
    if this != last or state is not first:
        remember(writer.database, state.name, state.control.cleaned, this, totals)
    if state is first:
        raise NothingToDo(_full(segment_survey.fill))
    return state


def _full(fill: Fill) -> str:
    if not len(fill.number):
        return "nothing to reclaim: nothing has been stored yet"
    return (
        f"nothing to reclaim: {fill.share} % of the {int(fill.length.sum())} bytes in {len(fill.number)} segments are needed, "
        "and no segment is sparse or to be joined"
    )


def _next(job: CleanupJob, state: State, segment_survey: SegmentSurvey, wishes: IndexWishes) -> tuple[State, CleanupJob] | None:
    """Takes one step: the new state and the job from there on; None where nothing is left to do."""
    excess = _excess(job.config, segment_survey)
    if segment_survey.look.marks or (excess and segment_survey.look.weights.any()):
        return _publish_marks(job, state, segment_survey, wishes, excess)
    choice = job.choose(segment_survey.fill)
    if not len(choice.places):
        return None
    places = shakedown.batch(segment_survey.fill, choice, _room(job, state), ROWS)
    if not len(places):
        _prune(job)  # the one before us may have been killed before it came to that
        places = shakedown.batch(segment_survey.fill, choice, _room(job, state), ROWS)
    if not len(places):
        if _only_small(choice):
            return None
        raise NoSpace(
            f"{state.path.parent}: no room to copy any of {len(choice.places)} segments; free some, take a lease away that pins "
            "old states, or make cleanup.reserve_bytes or cleanup.batch_bytes fit: nothing was lost"
        )
    return _publish_batch(job, state, segment_survey, choice, places)


def _only_small(choice: SegmentChoice) -> bool:
    return not (choice.empty or choice.sparse or choice.forced)


def _excess(config: Config, segment_survey: SegmentSurvey) -> int:
    """How many bytes beyond the limit of size would be needed, even without any waste."""
    limit = config.cleanup.size_bytes
    return max(segment_survey.needed - limit, 0) if limit else 0


def _room(job: CleanupJob, state: State) -> int:
    """The bytes that a batch may copy."""
    disk = os.statvfs(state.path)
    columns = (state.index.rows + state.sites.rows) * 8
    free = disk.f_bavail * disk.f_frsize - columns - job.config.cleanup.reserve_bytes
    most = job.config.cleanup.batch_bytes
    return max(min(free, most) if most else free, 0)


# --- marks ------------------------------------------------------------------------------------------------------


def _publish_marks(
    job: CleanupJob, state: State, segment_survey: SegmentSurvey, wishes: IndexWishes, excess: int
) -> tuple[State, CleanupJob]:
    """Types, reasons, sections and thin buckets; the bytes themselves go with the batches that follow."""
    bar = cleanup.bar_for(segment_survey.look.weights, excess)
    builder = _begin(job, state)
    try:
        builder.keep_objects()
        result = cleanup_mark.write(builder, state, wishes, bar, segment_survey, job.config)
        if job.judgement is not None:
            job = replace(job, judgement=replace(job.judgement, plain=job.judgement.plain - result.plain))
        is_last = not (result.rows_waiting or _is_over(job, result.after)) and not len(job.choose(result.after.fill).places)
        report: dict[str, Any] = {"counts": result.counts}
        return _publish(job, builder, result.after, report, is_last), job
    finally:
        builder.close()


def _is_over(job: CleanupJob, after: SegmentSurvey) -> bool:
    return bool(_excess(job.config, after) and after.look.weights.any())


# --- batches ----------------------------------------------------------------------------------------------------


def _publish_batch(
    job: CleanupJob, state: State, segment_survey: SegmentSurvey, choice: SegmentChoice, places: I64
) -> tuple[State, CleanupJob]:
    fill = segment_survey.fill
    numbers = fill.number[places]
    needed = claims(state, numbers, segment_survey.robots, job.step)
    staying = np.setdiff1d(fill.number, numbers)
    limit = job.config.store.segment_bytes
    builder = _begin(job, state)
    try:
        segments = builder.segment_writer(limit)
        moved = copy_segments(state, numbers[fill.rows[places] > 0], needed, segments, limit, job.jobs)
        first = builder.control.segments
        builder.finish_segments(segments)
        builder.keep(f"{names.OBJECTS}/{names.segment(number)}" for number in staying.tolist())
        _move(builder, state, needed.row, moved, job.step)
        after = _after(segment_survey, staying, moved, needed.size, first, builder.control.segments)
        later = replace(job, tombs=job.tombs.without(numbers))
        is_last = not len(later.choose(after.fill).places) and len(later.tombs.settled) == len(job.tombs.settled)
        counts = {
            "segments copied": int(np.count_nonzero(fill.rows[places])),
            "segments dropped": int(np.count_nonzero(fill.rows[places] == 0)),
            "segments made": builder.control.segments - first,
            "buckets copied": len(needed),
            "bytes copied": int(needed.size.sum()),
            "bytes freed": int(fill.length[places].sum() - needed.size.sum()),
        }
        reasons = {"empty": choice.empty, "sparse": choice.sparse, "small": choice.small, "purged": choice.forced}
        purged = job.tombs.forced.intersection(numbers.tolist())
        return _publish(job, builder, after, {"counts": counts, "chosen": reasons}, is_last, purged), later
    finally:
        builder.close()


def _move(builder: Builder, state: State, row: I64, moved: BucketMoves, step: int) -> None:
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


def _after(segment_survey: SegmentSurvey, staying: I64, moved: BucketMoves, size: I64, first: int, end: int) -> SegmentSurvey:
    """How full the segments are with the copies in place: of what was copied nothing is waste."""
    stay = np.isin(segment_survey.fill.number, staying)
    segment = (moved.new >> np.uint64(32)).astype(np.int64) - first
    rows, bytes_ = np.bincount(segment, minlength=end - first).astype(np.int64), np.zeros(end - first, np.int64)
    np.add.at(bytes_, segment, size)
    parts = ((segment_survey.fill.number[stay], np.arange(first, end)), (segment_survey.fill.length[stay], bytes_))
    fill = Fill(*map(np.concatenate, (*parts, (segment_survey.fill.rows[stay], rows), (segment_survey.fill.bytes[stay], bytes_))))
    return SegmentSurvey(segment_survey.look, fill, segment_survey.robots, segment_survey.deleted)


# --- what all steps share ---------------------------------------------------------------------------------------


def _begin(job: CleanupJob, state: State) -> Builder:
    """The next closed state, with everything that a cleanup never touches."""
    builder = job.writer.build(state, StateName(state.number + 1, CLOSED), job.now)
    builder.keep_table("servers")
    builder.keep(p for p in state.control.files if p.partition("/")[0] not in (*tables.TABLES, names.OBJECTS, names.REPORT))
    return builder


def _publish(
    job: CleanupJob, builder: Builder, after: SegmentSurvey, report: dict[str, Any], is_last: bool, purged: Collection[int] = ()
) -> State:
    """The last step of a cleanup says so in control, and reports what was measured on the way.

    A report says nothing that would be another if the cleanup were killed here and began again.
    """
    staying = set(after.fill.number.tolist())
    fields = {"phase": "cleanup", **report, "needed percent": after.fill.share}
    fields |= {"segments": len(staying), "bytes": int(after.fill.length.sum())}
    fields["pinned"] = pinned(job.writer.database, job.config, staying, purged, job.now)
    if is_last:
        builder.change(cleaned=job.now)
        fields["averages"] = averages(after.look, job.judgement.plain if job.judgement is not None else None, job.config)
        fields |= {"references checked": int(after.fill.rows.sum())} if job.judgement is not None else {}
    state = job.writer.publish(builder, fields)
    _prune(job)  # only then is anything free
    return state


def _rehearse(job: CleanupJob, state: State, segment_survey: SegmentSurvey) -> State:
    """What a cleanup would do, as far as that can be known without doing it."""
    look, choice, excess = segment_survey.look, job.choose(segment_survey.fill), _excess(job.config, segment_survey)
    if not (look.marks or len(choice.places) or (excess and look.weights.any())):
        raise NothingToDo(_full(segment_survey.fill))
    counts = {
        "filtered": look.rejected,
        "deleted rows to be dropped": look.settled,
        "forgotten rows without their buckets": look.stale,
        "trimmed": look.trims,
        "sections changed": look.moved,
        "bytes over the limit": excess,
        "segments copied": int(np.count_nonzero(segment_survey.fill.rows[choice.places])),
        "segments dropped": choice.empty,
        "bytes copied": int(segment_survey.fill.bytes[choice.places].sum()),
        "bytes freed": int((segment_survey.fill.length - segment_survey.fill.bytes)[choice.places].sum()),
    }
    reasons = {"empty": choice.empty, "sparse": choice.sparse, "small": choice.small, "purged": choice.forced}
    staying = set(np.delete(segment_survey.fill.number, choice.places).tolist())
    report = {"phase": "cleanup", "counts": counts, "chosen": reasons, "needed percent": segment_survey.fill.share}
    report["deleted documents waiting"] = len(np.unique(job.tombs.older_row))
    report["pinned"] = pinned(job.writer.database, job.config, staying, job.tombs.forced, job.now)
    report["averages"] = averages(look, job.judgement.plain if job.judgement is not None else None, job.config)
    return job.writer.publish(job.writer.build(state, StateName(state.number + 1, CLOSED), job.now), report)


def _prune(job: CleanupJob) -> None:
    store = job.config.store
    job.writer.prune(store.keep_states, job.now, store.keep_journals, job.config.export.cursors)
