"""shep list: rows of the index with their URLs, printed while they are read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.cli import common
from shepherd.cli import shep_shared as shared

if TYPE_CHECKING:
    from shepherd.formats.tables import I64, U8
    from shepherd.store.state import State

STEP_ROWS = 65_536
SORTED_LIMIT = 100
LINE = "{:<10}  {:>6}  {:>6}  {:<20}  {:<28}  {:>10}  {}\n"
TITLES = ("type", "status", "weight", "checked", "reason", "size", "url")
SHOWN = ("type", "reason", "flags", "status", "weight", "gathered", "checked", "changed", "size", "path", "site")

# Names of the vocabularies in shepherd.formats.tables, which is not imported before a command runs; a test compares them.
TYPES = ("sleeping", "ungathered", "gathered", "error", "forgotten")
REASONS = (
    "none", "link", "inserted", "gathered", "unchanged", "redirect", "moved", "body-lost", "site-soft", "site-hard",
    "below-bar", "below-sleep", "filter", "duplicate", "deleted", "dead", "purged", "robots-denied", "robots-unreachable",
    "no-address", "guard",
    "connection", "deadline", "too-slow", "malformed", "client-error", "server-error", "decoding", "moves", "type",
    "reaper-lost", "server-soft", "server-hard", "section-soft", "section-hard", "space", "fresh",
    "site-empty", "tls", "lookup", "parser",
)  # fmt: skip


@click.command("list")
@click.option("--site", metavar="HOST|URL", help="Only this site; scheme and www. make no difference.")
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="Only rows of this type; may be given again.")
@click.option(
    "--reason", "reasons", multiple=True, type=click.Choice(REASONS), help="Only rows with this reason; may be given again."
)
@click.option(
    "--sort",
    type=click.Choice(("weight", "size", "checked")),
    help=f"Largest first; shows {SORTED_LIMIT} rows unless --limit says otherwise.  [default: by footprint]",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after this many rows.")
@common.database
@common.unconfigured
@shared.state_number
@common.jsonable
@common.standard
def command(
    site: str | None,
    types: tuple[str, ...],
    reasons: tuple[str, ...],
    sort: str | None,
    limit: int | None,
    db: Path,
    number: int | None,
    as_json: bool,
) -> None:
    """List what is known: type, HTTP status, weight, time of the last check (UTC), reason, bytes stored, URL.

    \b
    Examples:
      shep list --site example.org --type error
      shep list --sort weight --limit 20
      shep list --reason robots-denied --json
    """
    with shared.reading(db, number) as state:
        found = _matching(state, _rows(state, site), types, reasons)
        if sort:
            found = iter([_largest(state, found, sort, limit or SORTED_LIMIT)])
        shown = _show(state, _first(found, limit), as_json)
    if not shown:
        common.LOG.info("no row is like that")


def _rows(state: State, site: str | None) -> range:
    """All rows, or those of one normalised site."""
    if site is None:
        return range(state.index.rows)
    from shepherd.cli.shep_find import norm_of_host
    from shepherd.store import lookup

    return lookup.rows_of_norm(state, norm_of_host(state, site))


def _matching(state: State, rows: range, types: tuple[str, ...], reasons: tuple[str, ...]) -> Iterator[I64]:
    """The wanted rows, a partition at a time."""
    import numpy as np

    from shepherd.formats.tables import Reason, RowType

    wanted: dict[str, U8] = {}
    if types:
        wanted["type"] = np.array([RowType[name.upper()] for name in types], np.uint8)
    if reasons:
        wanted["reason"] = np.array([Reason[name.upper().replace("-", "_")] for name in reasons], np.uint8)
    for start in range(rows.start, rows.stop, STEP_ROWS):
        stop = min(start + STEP_ROWS, rows.stop)
        keep = np.ones(stop - start, bool)
        for name, values in wanted.items():
            keep &= np.isin(state.index[name][start:stop], values)
        yield np.flatnonzero(keep) + start


def _largest(state: State, found: Iterator[I64], column: str, limit: int) -> I64:
    """The rows with the largest values, largest first, ties by footprint; never more than a partition is held beside them."""
    import numpy as np

    rows, values = np.zeros(0, np.int64), np.zeros(0, np.int64)
    with common.progress(state.index.rows, "sorting", " rows") as bar:
        for part in found:
            rows = np.concatenate((rows, part))
            values = np.concatenate((values, state.index[column].take(part).astype(np.int64)))
            order = np.argsort(-values, kind="stable")[:limit]
            rows, values = rows[order], values[order]
            bar.update(STEP_ROWS)
    return rows


def _first(found: Iterable[I64], limit: int | None) -> Iterator[I64]:
    for rows in found:
        if limit is None:
            yield rows
            continue
        yield rows[:limit]
        limit -= len(rows)
        if limit <= 0:
            return


def _show(state: State, found: Iterator[I64], as_json: bool) -> int:
    shown = 0
    for rows in found:
        columns = state.index.take(rows, SHOWN)
        for row, *values in zip(rows.tolist(), *(columns[name].tolist() for name in SHOWN), strict=True):
            if not shown and not as_json:
                sys.stdout.write(LINE.format(*TITLES))
            shown += 1
            _show_row(state, row, dict(zip(SHOWN, values, strict=True)), as_json)
        sys.stdout.flush()
    return shown


def _show_row(state: State, row: int, values: dict[str, int], as_json: bool) -> None:
    from shepherd.cli.shep_find import url_of
    from shepherd.formats.tables import REASON_TEXT, Flag, Reason, RowType

    url = url_of(state, row)
    kind, reason = RowType(values["type"]).name.lower(), Reason(values["reason"])
    if not as_json:
        status, checked = values["status"] or "-", shared.iso(values["checked"]) or "never"
        place = common.escape(url if url is not None else _place(state, values))
        sys.stdout.write(LINE.format(kind, status, values["weight"], checked, REASON_TEXT[reason], values["size"], place))
        return
    shown: dict[str, Any] = {"url": url, "type": kind, "reason": reason.name.lower().replace("_", "-")}
    shown |= {name: values[name] for name in ("status", "weight", "size")}
    shown |= {name: shared.iso(values[name]) or None for name in ("gathered", "checked", "changed")}
    common.emit_json(shown | {"flags": [flag.name.lower() for flag in Flag if values["flags"] & flag and flag.name]})


def _place(state: State, values: dict[str, int]) -> str:
    """What is still known of a row whose bucket is gone."""
    from shepherd.store import lookup

    site = lookup.site_row(state, values["site"])
    name = state.site_name(site) if site is not None else "a site that is gone"
    return f"{name} (path {values['path']:016x}: its text is gone)"
