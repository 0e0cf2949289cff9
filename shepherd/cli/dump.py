"""shep-dump: show what is in the files of a database, as it stands there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.cli import common

if TYPE_CHECKING:
    from shepherd.store.state import State

STEP_ROWS = 65_536


@click.group()
@common.versioned
def command() -> None:
    """Show the index, sites, journals, buckets ... of a state, read in place and checked on the way."""


def _shared(function: Callable[..., Iterator[dict[str, Any]]]) -> Callable[..., None]:
    """--db, --state, --limit and --json; the function yields rows, all with the same keys."""

    @wraps(function)
    def run(db: Path, state: str | None, limit: int | None, as_json: bool, **kwargs: Any) -> None:
        show(function(_open(db, state), **kwargs), limit, as_json)

    decorated: Callable[..., None] = run
    for decorate in (
        common.standard,
        common.jsonable,
        click.option("--limit", type=click.IntRange(1), help="Stop after this many rows."),
        click.option("--state", metavar="NAME", help="A state such as 12 or 000012.reap.  [default: the furthest]"),
        common.database,
    ):
        decorated = decorate(decorated)
    return decorated


def _open(db: Path, name: str | None) -> State:
    from shepherd.errors import UsageError
    from shepherd.store import names
    from shepherd.store.database import Database

    database = Database(db)
    if name is None:
        parsed = database.furthest().name
    else:
        given = names.parse_state(name.zfill(6) if name.isdigit() else name)
        if given is None or given not in database.states():
            raise UsageError(f"no state {name}; there are {', '.join(map(str, database.states()))}")
        parsed = given
    if parsed.closed:  # leased until we are done; an unfinished directory belongs to the program that makes the next
        lease = database.reading("shep-dump", time.time_ns() // 1_000_000, parsed.number)
        return click.get_current_context().with_resource(lease)
    return database.open(parsed)


def show(rows: Iterator[dict[str, Any]], limit: int | None, as_json: bool) -> None:
    """Print rows while they come: aligned text under one header line, or JSON lines."""
    widths: list[int] = []
    for count, row in enumerate(rows):
        if limit is not None and count >= limit:
            break
        if as_json:
            common.emit_json(row)
            continue
        cells = [common.escape(str(value)) for value in row.values()]
        if not widths:
            widths = [max(len(cell), len(key)) for cell, key in zip(cells, row, strict=True)]
            click.echo("  ".join(key.ljust(width) for key, width in zip(row, widths, strict=True)).rstrip())
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


@command.command()
@_shared
def control(state: State) -> Iterator[dict[str, Any]]:
    """The control file: what the directory is, and every file in it."""
    from shepherd.store import names

    for line in (state.path / names.CONTROL).read_text("ascii").splitlines():
        key, _, value = line.partition(" ")
        yield {"key": key, "value": "(secret)" if key == "key" else value}


@command.command()
@click.option("-u", "--urls", is_flag=True, help="Resolve each row to its URL, from its bucket.")
@_shared
def index(state: State, urls: bool) -> Iterator[dict[str, Any]]:
    """The index, row by row, in its own order."""
    from shepherd.formats import tables

    for start in range(0, state.index.rows, STEP_ROWS):
        part = state.index.slice(start, min(start + STEP_ROWS, state.index.rows))
        for values in zip(*(part[name].tolist() for name in part), strict=True):
            row = dict(zip(part, values, strict=True))
            shown = {name: _hex(row[name]) for name in ("norm", "path", "site", "oid", "digest")}
            shown |= {"type": tables.RowType(row["type"]).name.lower(), "reason": tables.Reason(row["reason"]).name.lower()}
            shown |= {name: row[name] for name in row if name not in shown}
            if urls:
                shown["url"] = state.objects.head(row["oid"]).url if row["oid"] < tables.CONTRIB_BIT else ""
            yield shown


@command.command()
@_shared
def sites(state: State) -> Iterator[dict[str, Any]]:
    """The site table, with names."""
    from shepherd.formats import tables

    for start in range(0, state.sites.rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, state.sites.rows)
        part = state.sites.slice(start, stop)
        columns = [part[name].tolist() for name in part]
        for name, *values in zip(state.site_names(start, stop), *columns, strict=True):
            row = dict(zip(part, values, strict=True))
            row.pop("name")
            shown = {"name": name.decode("ascii"), "qkey": tables.show_qkey(row.pop("qkey"))}
            yield shown | {k: _hex(v) if k in ("site", "norm", "robots_oid") else v for k, v in row.items()}


@command.command()
@_shared
def servers(state: State) -> Iterator[dict[str, Any]]:
    """The server table."""
    from shepherd.formats import tables

    part = state.servers.slice(0, state.servers.rows)
    for values in zip(*(part[name].tolist() for name in part), strict=True):
        row = dict(zip(part, values, strict=True))
        yield row | {"qkey": tables.show_qkey(row["qkey"])}


@command.command()
@_shared
def journal(state: State) -> Iterator[dict[str, Any]]:
    """The journals: those that cork sealed, and those of harvests, as far as they check."""
    from shepherd.formats import tables
    from shepherd.formats.frame import FrameKind
    from shepherd.store import harvest, logs, names

    sealed = [(state.path / names.journal(number), None) for number in state.numbered("journal")]
    growing = [(path / names.JOURNAL, harvest.inspect(path).checkpoint.journal.length) for path in state.harvests()]
    for path, length in [*sealed, *growing]:
        if length != 0:
            for part in logs.records(path, FrameKind.JOURNAL, tables.JOURNAL, length):
                for record in part:
                    yield _journal_row(record)


def _journal_row(record: Any) -> dict[str, Any]:
    from shepherd.formats import tables

    shown: dict[str, Any] = {}
    for name in tables.JOURNAL.names or ():
        value = int(record[name])
        if name in ("norm", "path", "site", "answered", "oid", "digest"):
            shown[name] = _hex(value)
        elif name == "qkey":
            shown[name] = tables.show_qkey(value)
        elif not name.startswith("spare"):
            shown[name] = value
    shown["kind"] = tables.Kind(record["kind"]).name.lower()
    shown["result"] = tables.Result(record["result"]).name.lower()
    shown["reason"] = tables.Reason(record["reason"]).name.lower()
    return shown


@command.command()
@_shared
def plan(state: State) -> Iterator[dict[str, Any]]:
    """The plan of a .reap directory, best first."""
    from shepherd.errors import UsageError
    from shepherd.formats import tables
    from shepherd.store import names

    if not (state.path / names.PLAN).exists():
        raise UsageError(f"{state.name} has no plan; only a .reap directory has one")
    for record in state.plan():
        row = {name: int(record[name]) for name in tables.PLAN.names or () if name != "spare"}
        shown = {name: _hex(row[name]) for name in ("norm", "path", "site", "oid", "digest")}
        shown |= {"qkey": tables.show_qkey(row["qkey"]), "kind": tables.Kind(row["kind"]).name.lower()}
        yield shown | {"why": tables.Why(row["why"]).name.lower()} | {k: v for k, v in row.items() if k not in (*shown, "why")}


@command.command()
@_shared
def buckets(state: State) -> Iterator[dict[str, Any]]:
    """Every bucket of every segment, referred to or not."""
    for number in state.segments():
        for oid, header in state.objects.scan(number):
            yield {
                "oid": _hex(oid),
                "state": header.state,
                "time_ms": header.time_ms,
                "codec": header.codec.name.lower(),
                "flags": header.flags,
                "stored": header.body_bytes,
                "plain": header.plain_bytes,
                "url": state.objects.head(oid).url,
            }


def _hex(value: int) -> str:
    return f"{value:016x}"


def main() -> None:
    common.run(command)
