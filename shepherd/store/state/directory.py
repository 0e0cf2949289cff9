"""A state directory: read through `State`, made through `Builder` (docs/cycle.md).

A Builder works in N.tmp: what does not change is hardlinked, what does is written new, and `publish` is one rename.
No file of a finished directory is ever replaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shepherd.equiv import Equiv, parse_equiv
from shepherd.errors import CHECK_LISTS, Corruption, ShepherdError
from shepherd.formats import tables
from shepherd.formats.check import Bytes, check64
from shepherd.formats.contrib import Block
from shepherd.formats.contribkeys import BlockKeys
from shepherd.formats.control import Control, FileEntry, parse_control
from shepherd.formats.frame import Frame, FrameKind, pack_frame
from shepherd.formats.tables import I64, Array, Records
from shepherd.formats.texts import Spans, Texts
from shepherd.store.disk import fsio, names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.disk.scratch_directory import ScratchDirectory
from shepherd.store.state import logs
from shepherd.store.state.columns import Column, ColumnWriter, Table, TableWriter
from shepherd.store.state.objects import Objects, SegmentWriter
from shepherd.urls import Footprints

if TYPE_CHECKING:
    from shepherd.store.state.documents import StoredDocument


class Parent(Protocol):
    """What a directory is built from: a State, or a damaged one that is being rebuilt."""

    @property
    def path(self) -> Path: ...
    @property
    def name(self) -> StateName: ...
    @property
    def control(self) -> Control: ...


class State:
    """One finished directory: a whole snapshot. Nothing is read but `control` until it is asked for, and all is checked as it is.

    `index`, `sites` and `servers` are tables: `state.index["weight"][0:100]` is an array, `.value(row)` one value, `.rows` their
    number; docs/formats.md has the columns. `objects.get(oid)` is a bucket. Damage raises Corruption, with file and offset.
    """

    def __init__(self, path: Path, version: int = tables.FORMAT_VERSION) -> None:
        name = names.parse_state(path.name)
        if name is None:
            raise Corruption("not the name of a state", path)
        self.path, self.name = path, name
        try:
            data = opening.read_file(path / names.CONTROL)
        except FileNotFoundError:
            raise Corruption("the file is missing", path / names.CONTROL, advice=CHECK_LISTS) from None
        self.control: Control = parse_control(data, str(path / names.CONTROL), version)
        if (self.control.state, self.control.phase) != (name.number, name.phase):
            raise Corruption(f"says that it is {self.control.phase} {self.control.state}", path / names.CONTROL)

    @classmethod
    def of_control(cls, path: Path, control: Control) -> State:
        """The state that a control describes, none of whose files need be there."""
        state = cls.__new__(cls)
        state.path, state.name, state.control = path, StateName(control.state, control.phase), control
        return state

    @property
    def number(self) -> int:
        return self.name.number

    def documents(self, site: str | None = None) -> Iterator[StoredDocument]:
        """The gathered documents, or those of one site, given as host or URL, in the order of the index."""
        from shepherd.store.state.documents import documents  # which reads through this class

        return documents(self, site)

    @cached_property
    def index(self) -> Table:
        """One row for each known URL, sorted by footprint. `lookup` finds rows by URL or site."""
        return Table(self.path / "index", tables.INDEX, self.control.files)

    @cached_property
    def sites(self) -> Table:
        """One row for each site, sorted by footprint; `site_name` has its name."""
        return Table(self.path / "sites", tables.SITES, self.control.files)

    @cached_property
    def servers(self) -> Table:
        """One row for each server, sorted by queue key."""
        return Table(self.path / "servers", tables.SERVERS, self.control.files)

    @cached_property
    def objects(self) -> Objects:
        """The buckets: `get(oid)` a whole one, `head(oid)` one without its body, `scan(segment)` all headers."""
        return Objects(self.path / names.OBJECTS)

    @cached_property
    def _names(self) -> Column:
        path = f"sites/{names.NAMES}"
        if path not in self.control.files:
            raise Corruption("not in control", self.path / path)
        return Column(self.path / path, "u1", self.control.files[path])

    def site_name(self, row: int) -> str:
        """scheme://host[:port] of a row of the site table."""
        start = self.sites["name"].value(row - 1) if row else 0
        return self._names.bytes(start, self.sites["name"].value(row)).decode("ascii")

    def site_names(self, start: int, stop: int) -> list[bytes]:
        """The names of a range of rows."""
        return self.names_between(start, stop).tolist()

    def names_between(self, start: int, stop: int) -> Texts:
        """The names of a range of rows, end to end."""
        ends = self.sites["name"][start:stop].astype(np.int64)
        first = self.sites["name"].value(start - 1) if start else 0
        return Texts(self._names[first : int(ends[-1]) if len(ends) else first], ends - first)

    def names_at(self, rows: I64) -> Spans:
        """The names of some rows."""
        ends = self.sites["name"].take(rows).astype(np.int64)
        starts = np.where(rows > 0, self.sites["name"].take(np.maximum(rows - 1, 0)).astype(np.int64), 0)
        return self._names.spans(starts, ends)

    @cached_property
    def equiv(self) -> Equiv:
        """The url-equiv table that made its norms."""
        return parse_equiv(opening.read_file(self.path / names.EQUIV).decode() if names.EQUIV in self.control.files else "")

    @cached_property
    def prints(self) -> Footprints:
        """Footprints as its rows have them: under its key, with its equivalences."""
        return Footprints(self.control.key, self.equiv.norm_of)

    def segments(self) -> list[int]:
        """The numbers of its segments."""
        numbers = (names.parse_segment(p.partition("/")[2]) for p in self.control.files if p.startswith(f"{names.OBJECTS}/"))
        return sorted(n for n in numbers if n is not None)

    def numbered(self, kind: str) -> list[int]:
        """The numbers of its contrib or journal files."""
        parsed = (names.parse_numbered(p) for p in self.control.files)
        return sorted(f[1] for f in parsed if f is not None and f[0] == kind)

    def contribs(self, number: int, with_texts: bool = True) -> Iterator[Block]:
        """The blocks of one contrib file."""
        return logs.blocks(self.path / names.contrib(number), with_texts)

    def contrib_keys(self, number: int) -> Iterator[BlockKeys]:
        """The keys of the blocks of one contrib file, without their texts."""
        return logs.block_keys(self.path / names.contrib(number))

    def journal(self, number: int) -> Records:
        """The records of one journal: `numbered("journal")` has the numbers."""
        return logs.read_records(self.path / names.journal(number), FrameKind.JOURNAL, tables.JOURNAL)

    def plan(self) -> Records:
        """What a .reap directory is to gather, best first."""
        return logs.read_records(self.path / names.PLAN, FrameKind.PLAN, tables.PLAN)

    def harvests(self) -> list[Path]:
        """The harvests of a .reap directory."""
        directory = self.path / names.HARVESTS
        return sorted(p for p in directory.iterdir() if names.is_harvest(p.name)) if directory.is_dir() else []

    def report(self) -> dict[str, Any]:
        """The counters of the phase that made it."""
        counters: dict[str, Any] = json.loads(opening.read_file(self.path / names.REPORT))
        return counters


class Builder:
    """Makes the next directory in N.tmp. Abandoned, it leaves nothing that counts; the next holder of the lock removes it.
    What a phase puts aside meanwhile lies in N.scratch, beside it: that goes before the state is published.

    Begun by `Writer.build` and ended by `Writer.publish`. Between them every file of the directory is either kept from the
    parent, by a hard link (`keep`, `keep_table`, `keep_objects`, `keep_logs`), or written new (`write`, `write_records`,
    `write_table`, `write_site_names`; `table` and `segment_writer` for what is too large to have at once; `adopt` for files of a
    harvest).
    """

    def __init__(self, root: Path, name: StateName, control: Control, parent: Parent | None) -> None:
        self.root, self.name, self.parent = root, name, parent
        self.control = control
        self.path = root / names.tmp(name.number)
        self._files: dict[str, FileEntry] = {}
        self._open: list[TableWriter | ColumnWriter | SegmentWriter] = []
        self._scratch = ScratchDirectory(root / names.scratch(name.number))
        fsio.add_directory(self.path)
        for directory in (*tables.TABLES, names.OBJECTS):
            fsio.add_directory(self.path / directory)

    @property
    def scratch(self) -> Path:
        """The directory for files that a phase needs only while it runs. Other processes open them by name."""
        return self._scratch.path

    # --- what stays as it was

    def keep(self, paths: Iterable[str]) -> None:
        """Hardlink files of the parent; columns bring their block tables."""
        assert self.parent is not None
        for path in paths:
            fsio.link(self.parent.path / path, self.path / path)
            if path.partition("/")[0] in tables.TABLES:
                fsio.link(self.parent.path / f"{path}{names.CHECK}", self.path / f"{path}{names.CHECK}")
            self._files[path] = self.parent.control.files[path]

    def keep_table(self, table: str, changed: Iterable[str] = ()) -> None:
        """Hardlink every column but the changed ones."""
        assert self.parent is not None
        changed = {f"{table}/{name}" for name in changed}
        self.keep(p for p in self.parent.control.files if p.startswith(f"{table}/") and p not in changed)

    def keep_objects(self) -> None:
        """Hardlink every segment."""
        assert self.parent is not None
        self.keep(p for p in self.parent.control.files if p.startswith(f"{names.OBJECTS}/"))

    def keep_logs(self, kind: str) -> None:
        """Hardlink the parent's contrib or journal files."""
        assert self.parent is not None
        self.keep(p for p in self.parent.control.files if (n := names.parse_numbered(p)) is not None and n[0] == kind)

    # --- what is new

    def write(self, path: str, data: Bytes) -> None:
        """A whole small file."""
        fsio.write_file(self.path / path, data)
        self._files[path] = FileEntry(len(data), check64(data))

    def write_records(self, path: str, kind: FrameKind, records: Records) -> None:
        """A framed file of fixed-width records."""
        log = logs.LogWriter(self.path / path)
        try:
            for start in range(0, len(records), 1 << 16):
                log.append_records(kind, records[start : start + (1 << 16)])
            log.file.seal()
        finally:
            log.file.close()
        self._enter(path)

    def write_frames(self, path: str, frames: Iterable[Frame]) -> int:
        """A log of frames that stood elsewhere; how many bytes it has."""
        file = fsio.AppendFile(self.path / path)
        try:
            for frame in frames:
                file.write(pack_frame(frame.kind, frame.records, frame.payload))
            file.seal()
        finally:
            file.close()
        self._enter(path)
        return file.length

    def table(self, table: str, columns: Iterable[str] | None = None) -> TableWriter:
        """Begin some columns of a table (all by default). `finish_table` ends them."""
        dtypes = tables.TABLES[table]
        writer = TableWriter(self.path / table, {n: dtypes[n] for n in (columns if columns is not None else dtypes)})
        self._open.append(writer)
        return writer

    def finish_table(self, writer: TableWriter) -> None:
        """End what `table` has begun: seal the columns."""
        self._files.update(writer.finish())

    def write_table(self, table: str, columns: dict[str, Array]) -> None:
        """Whole columns at once; for tables that fit in memory."""
        writer = self.table(table, columns)
        writer.append(columns)
        self.finish_table(writer)

    def write_site_names(self, parts: Iterable[bytes]) -> None:
        """The names of the sites, in the order of their rows."""
        writer = self.site_names()
        for part in parts:
            writer.append_bytes(part)
        self.finish_site_names(writer)

    def site_names(self) -> ColumnWriter:
        """Begin the names of the sites, for what is too large to have at once. `finish_site_names` ends them."""
        writer = ColumnWriter(self.path / "sites" / names.NAMES, "u1")
        self._open.append(writer)
        return writer

    def finish_site_names(self, writer: ColumnWriter) -> None:
        """End what `site_names` has begun: seal the file."""
        self._files[f"sites/{names.NAMES}"] = writer.finish()

    def adopt(self, path: str, source: Path) -> None:
        """Take over a file that a harvest made: seal it, link it, enter its checksum."""
        fsio.seal(source)
        fsio.link(source, self.path / path)
        self._enter(path)

    def segment_writer(self, limit: int) -> SegmentWriter:
        """Fresh segments with the next free numbers. `finish_segments` ends them."""
        writer = SegmentWriter(self.path / names.OBJECTS, names.segment, self.control.segments, limit)
        self._open.append(writer)
        return writer

    def finish_segments(self, writer: SegmentWriter) -> None:
        """End what `segment_writer` has begun: seal the segments."""
        writer.flush()
        writer.close()
        for number in range(self.control.segments, writer.next):
            path = f"{names.OBJECTS}/{names.segment(number)}"
            fsio.seal(self.path / path)
            self._enter(path)
        self.change(segments=writer.next)

    def change(self, **fields: Any) -> None:
        """Set fields of the control to be."""
        self.control = dataclasses.replace(self.control, **fields)

    def _enter(self, path: str) -> None:
        self._files[path] = logs.entry_of(self.path / path)

    # --- the commit

    def publish(self, report: dict[str, Any], prove: Callable[[State], None] | None = None) -> State:
        """Sync everything, then the one rename that makes it so. `prove` sees it before, and raises if it must not be."""
        self._scratch.remove()
        if self.parent is not None and self.control.equiv == self.parent.control.equiv and names.EQUIV not in self._files:
            self.keep(path for path in self.parent.control.files if path == names.EQUIV)
        self.write(names.REPORT, json.dumps(report, sort_keys=True, indent=1).encode() + b"\n")
        self.change(files=self._files)
        fsio.write_file(self.path / names.CONTROL, self.control.pack())
        if prove is not None:
            prove(State.of_control(self.path, self.control))
        return commit(self.path, self.root / str(self.name))

    def close(self) -> None:
        """Close what is still open and, after a failure, remove what was built: leftovers are then the sign of a kill."""
        for writer in self._open:
            writer.close()
        with contextlib.suppress(ShepherdError):  # the failure that brought us here is the one to report
            self._scratch.remove()
        if self.path.exists():
            with contextlib.suppress(ShepherdError):
                fsio.remove_tree(self.path)


def commit(building: Path, final: Path) -> State:
    """What was built, all of it sealed, becomes a state: its names are made durable, then the one rename."""
    for directory in (*tables.TABLES, names.OBJECTS):
        fsio.sync_directory(building / directory)
    fsio.sync_directory(building)
    fsio.rename(building, final)
    return State(final)
