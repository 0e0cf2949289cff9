"""The harvests that a cork takes in: those of N.reap and those that others left in the inbox.

A harvest of ours that is damaged stops the cork: shep-recover knows what to do. A harvest from elsewhere that is damaged, or made
for another database, is refused and reported, and waits where it is: it must not hold up a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from shepherd.errors import BadUrl, Corruption, NothingToDo, RecoveryNeeded, ShepherdError
from shepherd.formats import tables
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import JOURNAL, U64, Array, Kind, Records, in_bucket
from shepherd.politeness.delays import AHEAD_S
from shepherd.store.disk import names
from shepherd.store.state import harvest, inbox, logs
from shepherd.store.state.directory import Builder
from shepherd.store.state.inbox import HARVEST, InboxItem
from shepherd.store.state.inbox_files import MOST_HELD_BYTES, UNREADABLE, inspect_harvest, item_errors
from shepherd.store.state.objects import Objects
from shepherd.urls import Footprints, parse

NewName: TypeAlias = Callable[[], str]
UNENDED: Final = "it has not ended: whoever left it must finish it and leave it again"


@dataclass(frozen=True)
class HarvestSource:
    """One harvest, and the number that its first segment gets."""

    path: Path
    status: harvest.HarvestStatus
    item: str  # its name in the inbox, or nothing
    first_segment: int = 0
    is_copy: bool = False  # that is removed once it was taken in

    @property
    def segments(self) -> int:
        return len(self.status.checkpoint.segments)

    @property
    def order(self) -> tuple[int, str]:
        """Between harvests, the one that ended later is newer; then its name decides."""
        return self.status.checkpoint.time_ms, self.item or self.path.name


def own(paths: Sequence[Path]) -> list[HarvestSource]:
    """The harvests of a .reap."""
    return [_inspected(path, "") for path in paths]


def foreign(
    items: Sequence[InboxItem], prints: Footprints, new_name: NewName | None = None
) -> tuple[list[HarvestSource], dict[str, str]]:
    """Those of the inbox that can be taken, and why the others cannot. `new_name` is for copies, without which none is made."""
    sources, refused = [], {}
    for item in items:
        try:
            sources.append(_foreign_source(item, prints, new_name))
        except RecoveryNeeded:
            refused[item.name] = UNENDED
        except Corruption as error:
            refused[item.name] = error.what
        except BadUrl as error:
            refused[item.name] = f"the URL of its first bucket cannot be read: {error}"
    return sources, refused


def clear_copies(sources: Sequence[HarvestSource]) -> None:
    for source in sources:
        if source.is_copy:
            inbox.clear(source.path)


def _foreign_source(item: InboxItem, prints: Footprints, new_name: NewName | None) -> HarvestSource:
    """Whoever owns a file can change it, whatever its mode is: so what others own is copied, and the copy is what is taken in."""
    with item_errors(item.path):
        is_own = inspect_harvest(item.path)
        source = _verified(item.path, item.name, prints)
        if is_own or new_name is None:
            return source
        copy = inbox.copy_harvest(item, new_name())
        try:
            return replace(_verified(copy, item.name, prints), is_copy=True)
        except BaseException:
            inbox.clear(copy)
            raise


def _verified(path: Path, item: str, prints: Footprints) -> HarvestSource:
    source = _inspected(path, item)
    _must_be_ours(path, source.status, prints)
    for records in logs.records(path / names.JOURNAL, FrameKind.JOURNAL, JOURNAL, most=MOST_HELD_BYTES):
        _must_point_inside(path, records["oid"], source.segments)
    return source


def nothing_taken(directory: Path, refused: Mapping[str, str]) -> ShepherdError:
    """What to say where nothing can be taken in: that something is damaged; or, if nothing is, what waits and for what."""
    damaged = [(name, why) for name, why in refused.items() if why not in (UNENDED, UNREADABLE)]
    name, why = damaged[0] if damaged else next(iter(refused.items()))
    place = f"{directory / name}.{HARVEST}: {why}"
    if damaged:
        return Corruption(f"{place}; move it away")
    return NothingToDo(f"no harvest can be taken in yet: {place}{f' (and {len(refused) - 1} more)' if len(refused) > 1 else ''}")


def _inspected(path: Path, item: str) -> HarvestSource:
    status = harvest.inspect(path)
    # From here on its bytes are ours: what is damaged must not get a checksum that says it is not.
    harvest.verify(path, foreign=bool(item))
    if not status.ended:
        raise RecoveryNeeded(f"{path}: this reap was interrupted; run shep-reap, which continues it")
    harvest.confirm_end(path)
    return HarvestSource(path, status, item)


def _must_be_ours(path: Path, status: harvest.HarvestStatus, prints: Footprints) -> None:
    """A harvest made for another database has footprints that mean nothing here; one bucket shows it."""
    if not status.checkpoint.segments:
        return
    objects = Objects(path, names.local_segment)
    try:
        for oid, header in objects.scan(1, status.checkpoint.segments[0].length):
            _norm, half, site = prints.of(parse(objects.head(oid).url))
            if (site, half) != (header.site, header.path):
                raise Corruption("it was made for another database: its footprints have another key", path)
            return
    finally:
        objects.close()


def number_segments(sources: Sequence[HarvestSource], first: int) -> list[HarvestSource]:
    """Oldest end first, their segments numbered on from `first`."""
    ordered = []
    for source in sorted(sources, key=lambda source: source.order):
        ordered.append(replace(source, first_segment=first))
        first += source.segments
    return ordered


@dataclass(frozen=True)
class JoinedJournal:
    """All journals end to end, their oids made global; and which records are of our own reap."""

    records: Records
    own: Array


def journal(sources: Sequence[HarvestSource], notes: Records | None = None) -> JoinedJournal:
    """With notes of contacts, which settle nothing: those from before the first record first, for back-offs count in order."""
    frames: list[Records] = []
    counts = []
    for source in sources:
        parts = list(logs.records(source.path / names.JOURNAL, FrameKind.JOURNAL, JOURNAL))
        counts.append(sum(map(len, parts)))
        frames += parts
    records, end = logs.join_records(frames, JOURNAL), 0
    for source, count in zip(sources, counts, strict=True):
        part = records[end : end + count]
        end += count
        _must_point_inside(source.path, part["oid"], source.segments)
        part["oid"][in_bucket(part["oid"])] += np.uint64(source.first_segment - 1 << 32)
    own = np.repeat([not source.item for source in sources], counts).astype(bool)
    if notes is None or not len(notes):
        return JoinedJournal(records, own)
    notes = notes.copy()
    notes["group"] = 0  # the group has done its service
    early = notes["start_ms"] < records["start_ms"].min(initial=np.iinfo(np.int64).max)
    before, after = notes[early], notes[~early]
    flags = np.zeros(len(before), bool), own, np.zeros(len(after), bool)
    return JoinedJournal(np.concatenate([before, records, after]), np.concatenate(flags))


def believable(records: Records, now: int) -> Records:
    """As they count for the tables: what ended in the future was recorded when a clock was wrong, and has ended by now."""
    ahead = np.flatnonzero(records["end_ms"] > (now + AHEAD_S) * 1000)
    if not len(ahead):
        return records
    records = records.copy()
    records["end_ms"][ahead] = now * 1000
    return records


def _must_point_inside(path: Path, oid: U64, segments: int) -> None:
    segment = oid[in_bucket(oid)] >> np.uint64(32)
    if len(segment) and not 1 <= int(segment.min()) <= int(segment.max()) <= segments:
        raise Corruption("a record points into a segment that is not there", path / names.JOURNAL)


def adopt(builder: Builder, sources: Sequence[HarvestSource], records: Records) -> None:
    """Segments, contributions and the journal become files of the state."""
    number, segments = builder.control.contribs, builder.control.segments
    builder.write_records(names.journal(number), FrameKind.JOURNAL, records)
    for source in sources:
        for local in range(1, source.segments + 1):
            target = names.segment(source.first_segment + local - 1)
            builder.adopt(f"{names.OBJECTS}/{target}", source.path / names.local_segment(local))
        segments += source.segments
        if source.status.checkpoint.contrib.length:
            builder.adopt(names.contrib(number), source.path / names.CONTRIB)
        number += 1
    resumed = records["end_ms"][records["kind"] == Kind.RESUMED]
    now_ms = (builder.control.now + AHEAD_S) * 1000
    unsure = min(max(builder.control.unsure, *resumed.tolist(), 0), now_ms)
    items = (source.item for source in sources if source.item)
    builder.change(segments=segments, contribs=number, unsure=unsure, applied=(*builder.control.applied, *items))


def urls_of(sources: Sequence[HarvestSource]) -> tuple[Callable[[int], str], ExitStack]:
    """How to read the URL in a bucket by its global oid; and what closes the segments again."""
    stack = ExitStack()
    opened = {source.path: Objects(source.path, names.local_segment) for source in sources}
    for objects in opened.values():
        stack.callback(objects.close)

    def url(oid: int) -> str:
        segment, offset = tables.split_oid(oid)
        source = next(t for t in sources if t.first_segment <= segment < t.first_segment + t.segments)
        return opened[source.path].head(tables.bucket_oid(segment - source.first_segment + 1, offset)).url

    return url, stack
