"""A phase without its consequences: `--dry-run` computes everything and writes nothing.

A DryRun stands where a phase expects a Writer, and a DryRunBuilder where it expects a Builder. Whatever is built is thrown away
as it comes; only the counters and the report stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shepherd.formats.check import Bytes
from shepherd.formats.control import Control
from shepherd.formats.frame import Frame, FrameKind, pack_frame
from shepherd.formats.tables import Array, Columns, Records, bucket_oid
from shepherd.store.disk import scratch_directory
from shepherd.store.disk.names import StateName
from shepherd.store.state.columns import ColumnWriter, TableWriter
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import Builder, Parent, State
from shepherd.store.state.objects import SegmentWriter


class DryRunState(State):
    """What would have been published: a state that is not there, of which only name and report can be asked."""

    def __init__(self, name: StateName, report: dict[str, Any]) -> None:
        self.name, self._report = name, report

    def report(self) -> dict[str, Any]:
        return self._report


class DryRun(Writer):
    """A Writer that changes nothing. `state` is the one that the phase begins with."""

    is_dry_run = True

    def __init__(self, database: Database, state: State) -> None:
        super().__init__(database)
        self._state = state

    def furthest(self) -> State:
        return self._state

    def _builder(self, name: StateName, control: Control, parent: Parent) -> Builder:
        return DryRunBuilder(name, control, parent)

    def publish(self, builder: Builder, report: dict[str, Any], prove: Callable[[State], None] | None = None) -> State:
        return DryRunState(builder.name, report)


class DryRunBuilder(Builder):
    """A Builder that has no directory."""

    def __init__(self, name: StateName, control: Control, parent: Parent) -> None:
        self.name, self.control, self.parent = name, control, parent
        self._scratch = scratch_directory.without_lock(None, control.now * 1000)

    def keep(self, paths: Iterable[str]) -> None:
        pass

    def write(self, path: str, data: Bytes) -> None:
        pass

    def write_records(self, path: str, kind: FrameKind, records: Records) -> None:
        pass

    def write_frames(self, path: str, frames: Iterable[Frame]) -> int:
        return sum(len(pack_frame(frame.kind, frame.records, frame.payload)) for frame in frames)

    def table(self, table: str, columns: Iterable[str] | None = None) -> TableWriter:
        return _NoTable()

    def finish_table(self, writer: TableWriter) -> None:
        pass

    def write_table(self, table: str, columns: dict[str, Array]) -> None:
        pass

    def site_names(self) -> ColumnWriter:
        return _NoColumn()

    def finish_site_names(self, writer: ColumnWriter) -> None:
        pass

    def adopt(self, path: str, source: Path) -> None:
        pass

    def segment_writer(self, limit: int) -> SegmentWriter:
        return _NoSegments(self.control.segments, limit)

    def finish_segments(self, writer: SegmentWriter) -> None:
        self.change(segments=writer.next)

    def close(self) -> None:
        self._scratch.remove()


class _NoTable(TableWriter):
    def __init__(self) -> None:
        pass

    def append(self, columns: Columns) -> None:
        pass

    def discard(self) -> None:
        pass


class _NoColumn(ColumnWriter):
    def __init__(self) -> None:
        pass

    def append(self, values: Array) -> None:
        pass

    def append_bytes(self, data: Bytes) -> None:
        pass


class _NoSegments(SegmentWriter):
    """Gives out places as if it wrote."""

    def __init__(self, first: int, limit: int) -> None:
        self.next, self._limit, self._length = first, limit, 0

    def append(self, data: Bytes) -> int:
        if self._length + len(data) > self._limit or self._length == 0:
            self._roll()
        oid = bucket_oid(self.next - 1, self._length)
        self._length += len(data)
        return oid

    def _roll(self) -> None:
        self.next, self._length = self.next + 1, 0

    def _end(self) -> int:
        return self._length

    def _hold(self, data: memoryview) -> None:
        self._length += len(data)
