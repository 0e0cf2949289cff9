"""The tables of a state as rows for shep-dump: index, sites and servers, read a step at a time.

Columns come in the order of docs/formats.md, and their kind decides how they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from shepherd.cli.dump import fields
from shepherd.cli.dump.fields import DumpTable

if TYPE_CHECKING:
    from shepherd.cli.dump.urls import Urls
    from shepherd.formats.tables import I64, U64, Array
    from shepherd.store.state.columns import Table
    from shepherd.store.state.directory import State

STEP_ROWS = 4_096  # few, because every value becomes an object


def index(state: State, site: str | None, types: Sequence[str], first: int, urls: bool) -> DumpTable:
    from shepherd.cli.dump.urls import Urls
    from shepherd.formats import tables

    names = _flags_last(tables.INDEX)
    type_numbers = [int(tables.RowType[name.upper()]) for name in types]
    row_range = _from(_rows_of(state, site), first)
    steps = _typed(state, row_range, type_numbers)
    rows = _values(state.index, names, steps)
    last = [fields.text("url")] if urls else []
    if urls:
        oids = (state.index["oid"][step.start : step.stop] for step in _steps(row_range))
        rows = _with_urls(rows, 1 + names.index("oid"), Urls(state), oids)
    return DumpTable([fields.number("row", 4), *fields.of_table("index", names), *last], rows)


def sites(state: State, site: str | None, first: int) -> DumpTable:
    from shepherd.formats import tables

    names = [name for name in tables.SITES if name != "name"]
    steps = _steps(range(state.sites.rows)[first:]) if site is None else _rows_from(site_rows(state, site), first)
    rows = ([*row, state.site_name(row[0])] for row in _values(state.sites, names, steps))
    return DumpTable([fields.number("row", 4), *fields.of_table("sites", names), fields.text("name")], rows)


def servers(state: State, site: str | None, first: int) -> DumpTable:
    from shepherd.formats import tables

    steps = _steps(range(state.servers.rows)[first:]) if site is None else _rows_from(_server_rows(state, site), first)
    rows = _values(state.servers, list(tables.SERVERS), steps)
    return DumpTable([fields.number("row", 4), *fields.of_table("servers", tables.SERVERS)], rows)


# --- which rows -------------------------------------------------------------------------------------------------


def norm_of(state: State, site: str) -> int:
    """The footprint of the normalised site that an operator means by a host or URL."""
    from shepherd.report.find import norm_of_host

    return norm_of_host(state, site)


def site_rows(state: State, site: str) -> list[int]:
    """The rows of the site table that belong to a normalised site: those that its rows of the index name."""
    import numpy as np

    from shepherd.store.state import lookup

    footprints: set[int] = set()
    for rows in _steps(_rows_of(state, site)):
        footprints.update(np.unique(state.index["site"][rows.start : rows.stop]).tolist())
    candidates = (lookup.site_row(state, footprint) for footprint in sorted(footprints))
    return [row for row in candidates if row is not None]


def _server_rows(state: State, site: str) -> list[int]:
    from shepherd.store.state import lookup

    qkeys = sorted({state.sites["qkey"].value(row) for row in site_rows(state, site)})
    candidates = (lookup.server_row(state, qkey) for qkey in qkeys)
    return [row for row in candidates if row is not None]


def _rows_of(state: State, site: str | None) -> range:
    """All rows of the index, or those of one normalised site, found by bisection."""
    from shepherd.store.state import lookup

    return range(state.index.rows) if site is None else lookup.rows_of_norm(state, norm_of(state, site))


def _from(rows: range, first: int) -> range:
    return range(max(rows.start, first), rows.stop)


def _steps(rows: range) -> Iterator[range]:
    for start in range(rows.start, rows.stop, STEP_ROWS):
        yield range(start, min(start + STEP_ROWS, rows.stop))


def _typed(state: State, rows: range, types: list[int]) -> Iterator[range | I64]:
    """The rows of these types, a step at a time; all without one."""
    import numpy as np

    for step in _steps(rows):
        if not types:
            yield step
        elif len(offsets := np.flatnonzero(np.isin(state.index["type"][step.start : step.stop], types))):
            yield offsets + step.start


def _rows_from(rows: Sequence[int], first: int) -> Iterator[I64]:
    import numpy as np

    yield np.array([row for row in rows if row >= first], np.int64)


# --- what is shown of them --------------------------------------------------------------------------------------


def _flags_last(table: Mapping[str, str]) -> list[str]:
    return [*(name for name in table if name != "flags"), "flags"]


def _values(table: Table, names: Sequence[str], steps: Iterator[range | I64]) -> Iterator[list[Any]]:
    """Each row as its number and the values of its columns."""
    for rows in steps:
        part: dict[str, Array] = table.slice(rows.start, rows.stop, names) if isinstance(rows, range) else table.take(rows, names)
        numbers = rows if isinstance(rows, range) else rows.tolist()
        for row in zip(numbers, *(part[name].tolist() for name in names), strict=True):
            yield list(row)


def _with_urls(rows: Iterator[list[Any]], oid: int, urls: Urls, oids: Iterable[U64]) -> Iterator[list[Any]]:
    """More and more rows at a time: new URLs still stand in contrib and are read in its order, but a limit may stop us soon.

    Where none has stopped us after the largest step, the URLs of all `oids` are put aside in one pass.
    """
    steps = (min(1 << power, STEP_ROWS) for power in count())
    while step := list(islice(rows, next(steps))):
        if len(step) == STEP_ROWS:
            urls.put_aside(oids)
        for row, url in zip(step, urls.of_oids([row[oid] for row in step]), strict=True):
            yield [*row, url]
