"""The logs of a state as rows for shep-dump: journal, contrib, plan and checkpoints, frame by frame.

Sealed logs are read whole; those of a harvest up to its newest checkpoint, behind which a running reap may be writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.cli.dump import fields
from shepherd.cli.dump.fields import DumpTable
from shepherd.errors import Corruption, UsageError
from shepherd.formats import kinds

if TYPE_CHECKING:
    import numpy as np

    from shepherd.cli.dump.urls import Urls
    from shepherd.formats.checkpoint import Checkpoint, Mark
    from shepherd.formats.contrib import Block
    from shepherd.formats.tables import Records
    from shepherd.store.state.directory import State

STEP_RECORDS = 4_096
FILE_WIDTH = len("harvest/reap/journal")
URL_WIDTH = 60  # of one that is not the last field

Log = tuple[Path, int | None]  # a log and how much of it counts; None: all


def logs_of(state: State, kind: str) -> Iterator[Log]:
    """The sealed logs of a kind, and those of harvests. What is sound is read before damage is reported."""
    from shepherd.store.disk import names
    from shepherd.store.state import harvest

    name_of = {names.JOURNAL: names.journal, names.CONTRIB: names.contrib}[kind]
    for number in state.numbered(kind):
        yield state.path / name_of(number), None
    for path in state.harvests():
        contents = harvest.inspect(path)
        length = getattr(contents.checkpoint, kind).length
        if length:
            yield path / kind, length
        if contents.damage:
            raise Corruption(f"{contents.damage}; shep-check prints the place, shep-recover goes back to what is sound", path)


# --- journal and plan -------------------------------------------------------------------------------------------


def journal(state: State, site: str | None, results: Sequence[str], urls: bool) -> DumpTable:
    from shepherd.cli.dump.urls import Urls
    from shepherd.formats import tables
    from shepherd.formats.frame import FrameKind
    from shepherd.store.disk import names
    from shepherd.store.state import logs

    field_names = _field_names(tables.JOURNAL)
    allowed_values = _allowed_values(state, site, "result", [tables.Result[name.upper()] for name in results])

    def rows() -> Iterator[list[Any]]:
        url_lookup = Urls(state) if urls else None
        for path, length in logs_of(state, names.JOURNAL):
            file = str(path.relative_to(state.path))
            for part in logs.records(path, FrameKind.JOURNAL, tables.JOURNAL, length):
                for record in _steps(_matching(part, allowed_values)):
                    more = [_asked_for(url_lookup, record, sealed=length is None)] if url_lookup else []
                    yield [file, *(record[name] for name in field_names), *more]

    last = [fields.text("url")] if urls else []
    return DumpTable([fields.text("file", FILE_WIDTH), *fields.of_record("journal", tables.JOURNAL, field_names), *last], rows())


def plan(state: State, site: str | None, whys: Sequence[str], urls: bool) -> DumpTable:
    from shepherd.cli.dump.urls import Urls
    from shepherd.formats import tables
    from shepherd.formats.frame import FrameKind
    from shepherd.store.disk import names
    from shepherd.store.state import logs

    path = state.path / names.PLAN
    if names.PLAN not in state.control.files:
        raise UsageError(f"{state.name} has no plan: only a .reap directory has one, while its reap is under way")
    field_names = _field_names(tables.PLAN)
    allowed_values = _allowed_values(state, site, "why", [tables.Why[name.upper()] for name in whys])

    def rows() -> Iterator[list[Any]]:
        url_lookup = Urls(state) if urls else None
        for part in logs.records(path, FrameKind.PLAN, tables.PLAN):
            for record in _steps(_matching(part, allowed_values)):
                more = url_lookup.of_oids([record["oid"]]) if url_lookup else []
                yield [*(record[name] for name in field_names), *more]

    return DumpTable([*fields.of_record("plan", tables.PLAN, field_names), *([fields.text("url")] if urls else [])], rows())


def _field_names(dtype: np.dtype[np.void]) -> list[str]:
    named = [name for name in dtype.names or () if not name.startswith("spare")]
    return [*(name for name in named if name != "flags"), "flags"]


def _allowed_values(state: State, site: str | None, name: str, values: Sequence[int]) -> dict[str, list[int]]:
    """The fields that are selected by, and the values that they may have."""
    from shepherd.cli.dump.rows import norm_of

    allowed = {"norm": [norm_of(state, site)]} if site is not None else {}
    return allowed | ({name: list(values)} if values else {})


def _matching(part: Records, allowed_values: dict[str, list[int]]) -> Records:
    import numpy as np

    keep = np.ones(len(part), np.bool_)
    for name, values in allowed_values.items():
        keep &= np.isin(part[name], np.array(values, part[name].dtype))
    return part if keep.all() else part[keep]


def _steps(part: Records) -> Iterator[dict[str, Any]]:
    """Each record by name, some at a time: as Python's objects they are ten times as large."""
    for start in range(0, len(part), STEP_RECORDS):
        for record in part[start : start + STEP_RECORDS].tolist():
            yield dict(zip(part.dtype.names or (), record, strict=True))


def _asked_for(urls: Urls, record: dict[str, Any], sealed: bool) -> str | None:
    """What a journal record is about: a document, or a site that was looked up."""
    from shepherd.formats.tables import Kind

    if record["kind"] == Kind.QKEY:
        return urls.of_site(record["site"])
    if sealed and record["answered"] == record["site"] and urls.is_stored(record["oid"]):
        return urls.of_oids([record["oid"]])[0]  # quicker than to look for its row
    return urls.of(record["norm"], record["path"], record["site"])


# --- contributions ----------------------------------------------------------------------------------------------


def contributions(state: State, site: str | None, urls: bool) -> DumpTable:
    import numpy as np

    from shepherd.cli.dump.rows import norm_of
    from shepherd.cli.dump.urls import Urls, urls_of
    from shepherd.store.disk import names
    from shepherd.store.state import logs

    columns = [
        fields.text("file", FILE_WIDTH),
        fields.number("ordinal", 4),
        *(fields.of_kind(name, kinds.FOOTPRINT) for name in ("norm", "path", "site")),
        fields.of_kind("lastmod", kinds.TIME_S),
        fields.of_kind("parent_weight", kinds.WEIGHT, 2),
        fields.of_kind("section", kinds.SECTION),
        *(fields.of_kind(name, kinds.FOOTPRINT) for name in ("parent_site", "parent_path")),
        fields.of_kind("flags", kinds.LINK_FLAGS),
        fields.text("url", URL_WIDTH if urls else 0),
        *([fields.text("parent_url")] if urls else []),
    ]

    norm = norm_of(state, site) if site is not None else None

    def rows() -> Iterator[list[Any]]:
        url_lookup = Urls(state) if urls else None
        for path, length in logs_of(state, names.CONTRIB):
            file, first = str(path.relative_to(state.path)), 0
            for block in logs.blocks(path, length=length):
                places = range(len(block)) if norm is None else np.flatnonzero(block.norm == np.uint64(norm)).tolist()
                for place, url in zip(places, urls_of(block, places), strict=True):
                    yield [file, first + place, *_contribution(block, place), url, *_parent(block, place, url_lookup)]
                first += len(block)

    return DumpTable(columns, rows())


def _contribution(block: Block, place: int) -> Iterator[int]:
    parent = block.parent[place]
    yield from (int(getattr(block, name)[place]) for name in ("norm", "path", "site", "lastmod", "parent_weight", "section"))
    yield from (int(block.parents_site[parent]), int(block.parents_path[parent]), int(block.flags[place]))


def _parent(block: Block, place: int, urls: Urls | None) -> list[str | None]:
    """The URL of the page that a contribution was found on, if URLs are wanted."""
    parent = block.parent[place]
    return [urls.of_page(int(block.parents_site[parent]), int(block.parents_path[parent]))] if urls is not None else []


# --- checkpoints ------------------------------------------------------------------------------------------------


def checkpoints(state: State) -> DumpTable:
    """Every checkpoint of every harvest, and whether its files still are as it says."""
    from shepherd.formats import frame
    from shepherd.formats.checkpoint import unpack_checkpoint
    from shepherd.formats.frame import FrameKind
    from shepherd.store.disk import names
    from shepherd.store.state import logs

    columns = [
        fields.text("harvest", 12),
        fields.number("sequence", 4),
        fields.text("kind", len("checkpoint")),
        fields.of_kind("time_ms", kinds.TIME_MS),
        fields.size("journal_bytes"),
        fields.size("contrib_bytes"),
        fields.number("segments", 4),
        fields.size("segment_bytes"),
        fields.text("holds", 5),
    ]

    def rows() -> Iterator[list[Any]]:
        for path in state.harvests():
            log = path / names.CHECKPOINTS
            for record in frame.frames(logs.map_file(log)) if log.exists() else ():
                point = unpack_checkpoint(record.payload)
                kind = "end" if record.kind == FrameKind.END else "checkpoint"
                sizes = [point.journal.length, point.contrib.length, len(point.segments), sum(s.length for s in point.segments)]
                yield [path.name, point.sequence, kind, point.time_ms, *sizes, "yes" if _holds(path, point) else "no"]

    return DumpTable(columns, rows())


def _holds(path: Path, point: Checkpoint) -> bool:
    from shepherd.store.disk import names
    from shepherd.store.state import logs

    files: list[tuple[str, Mark]] = [(names.JOURNAL, point.journal), (names.CONTRIB, point.contrib)]
    files += [(names.local_segment(number), mark) for number, mark in enumerate(point.segments, 1)]
    return all(logs.mark(path / name, mark.length) == mark for name, mark in files)
