"""shep list: rows of the index with their URLs, printed while they are read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.console import common, selectors, shared
from shepherd.console import rows as console_rows
from shepherd.console.selectors import Selection
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State

SORTED_LIMIT = 100
LINE = "{:<10}  {:>6}  {:>6}  {:<20}  {:<18}  {:>10}  {}\n"
TITLES = ("type", "status", "weight", "checked", "reason", "size", "url")
JSON_COLUMNS = ("type", "reason", "status", "weight", "size", "download_ms", "gathered", "checked", "changed", "flags")
COLUMNS = (*JSON_COLUMNS, "path", "site")


@click.command("list")
@selectors.selecting
@click.option(
    "--sort",
    type=click.Choice(("weight", "size", "checked")),
    help=f"Largest first; shows {SORTED_LIMIT} rows unless --limit says otherwise.  [default: by footprint]",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after this many rows.")
@common.database
@common.filtered
@shared.state_number
@common.jsonable
@common.standard
def command(
    selection: Selection,
    sort: str | None,
    limit: int | None,
    db: Path,
    cf: Path,
    number: int | None,
    as_json: bool,
) -> None:
    """List known URLs. Columns are type, HTTP status, weight, time of the last check (UTC), reason, bytes stored, URL.

    A row is listed if it meets all options. An unknown URL is reported, with exit status 2 at the end. Rows come in the order of
    their footprints, with --glob in the order of the disk: --glob reads the URL of every row that meets the other options, unless
    it spells out the host.

    \b
    Examples:
      shep list --site example.org --type error
      shep list --sort weight --limit 20
      shep list --glob '*://*.example.org/*.pdf' --older 30d
      shep list --status 5xx --server 192.0.2.7 --json
    """
    with shared.reading(db, number) as state, console_rows.choosing(state, selection, cf) as row_batches:
        if sort:
            row_batches = iter([console_rows.largest(state, row_batches, sort, limit or SORTED_LIMIT)])
        count = show_rows(state, _first(row_batches, limit), as_json)
    if not count:
        common.LOG.info("no row matches")


def _first(row_batches: Iterable[I64], limit: int | None) -> Iterator[I64]:
    for rows in row_batches:
        if limit is None:
            yield rows
            continue
        yield rows[:limit]
        limit -= len(rows)
        if limit <= 0:
            return


def show_rows(state: State, row_batches: Iterator[I64], as_json: bool, timed: bool = False) -> int:
    """Rows as they come, `timed` with how long the download took before all else; how many they were."""
    from shepherd.readers import search

    count = 0
    for rows in row_batches:
        columns = state.index.take(rows, COLUMNS)
        for url, *values in zip(search.urls_of(state, rows), *(columns[name].tolist() for name in COLUMNS), strict=True):
            if not count and not as_json:
                sys.stdout.write(f"{'download':>10}  " * timed + LINE.format(*TITLES))
            count += 1
            text, row = url.decode("ascii") if url is not None else None, dict(zip(COLUMNS, values, strict=True))
            if as_json:
                common.emit_json(_object(text, row))
            else:
                sys.stdout.write(f"{row['download_ms']:>7} ms  " * timed + _line(state, text, row))
        sys.stdout.flush()
    return count


def _line(state: State, url: str | None, values: dict[str, int]) -> str:
    from shepherd.formats.tables import KINDS

    texts = (KINDS["index"][name].text(values[name]) for name in TITLES[:-1])
    return LINE.format(*texts, common.escape(url if url is not None else _place(state, values)))


def _object(url: str | None, values: dict[str, int]) -> dict[str, Any]:
    from shepherd.formats.tables import KINDS

    return {"url": url} | kinds.row_as_json(KINDS["index"], values, JSON_COLUMNS)


def _place(state: State, values: dict[str, int]) -> str:
    """What is still known of a row whose bucket is gone."""
    from shepherd.store.state import lookup

    site = lookup.site_row(state, values["site"])
    name = state.site_name(site) if site is not None else "a site that is gone"
    return f"{name} (path {kinds.FOOTPRINT.text(values['path'])}: its text is gone)"
