"""shep top: the pages, sites or servers that have most of something."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.cli.shep import servers as shep_servers
from shepherd.cli.shep.list import show_rows
from shepherd.console import common, selectors, shared
from shepherd.console import rows as console_rows
from shepherd.console.selectors import Selection
from shepherd.errors import UsageError
from shepherd.formats import kinds
from shepherd.report import servers

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State

LIMIT: Final = 20
PAGES: Final = {"weight": "weight", "size": "size", "download": "download_ms"}
SERVERS: Final = {"slowest": "slowest", "failing": "errors"}  # how `shep servers` sorts them
ERRORS: Final = "errors"
TITLES: Final = (">errors", ">urls", ">share", "mostly", "address", "site")


@click.command("top")
@selectors.selecting
@click.option(
    "--by",
    type=click.Choice((*PAGES, *SERVERS, ERRORS)),
    default="weight",
    show_default=True,
    help="Pages by weight, size stored or download time; servers by average download time (slowest) or by failed contacts "
    "(failing); sites by pages that are errors.",
)
@console_rows.limited(LIMIT)
@common.database
@common.filtered
@shared.state_number
@common.jsonable
@common.standard
def command(selection: Selection, by: str, limit: int, db: Path, cf: Path, number: int | None, as_json: bool) -> None:
    """Show the extreme pages, servers or sites. These are the heaviest, largest or slowest pages, the slowest or failing servers,
    or the sites with most errors.

    Selectors choose pages and errors, without robots files; there are no selectors for servers.

    \b
    Examples:
      shep top --by size --section pdf
      shep top --by errors --reason connection --limit 10
      shep top --by slowest
    """
    if by in SERVERS and console_rows.asks(selection):
        raise UsageError(f"--by {by} lists servers, and selectors choose pages; leave them out, or see `shep servers --help`")
    with shared.reading(db, number) as state:
        if by in SERVERS:
            shep_servers.show(state, servers.largest(state, SERVERS[by], limit), int(time.time()), as_json)
            return
        with console_rows.choosing(state, selection, cf) as row_batches:
            if by in PAGES:
                best = console_rows.largest(state, _pages(state, row_batches), PAGES[by], limit)
                if not show_rows(state, iter([best]), as_json, timed=by == "download"):
                    common.LOG.info("no page is like that")
            else:
                console_rows.show(_with_errors(state, row_batches, limit), TITLES, _row, as_json, "no matching page is an error")


def _pages(state: State, row_batches: Iterator[I64]) -> Iterator[I64]:
    from shepherd.arrays.keys import with_flag
    from shepherd.formats.tables import Flag

    for rows in row_batches:
        yield rows[~with_flag(state.index["flags"].take(rows), Flag.ROBOTS)]


# --- sites with errors ------------------------------------------------------------------------------------------


def _row(site: dict[str, Any]) -> tuple[Any, ...]:
    share = site["errors"] / max(site["urls"], 1)
    return f"{site['errors']:,}", f"{site['urls']:,}", f"{share:.1%}", site["mostly"], site["address"], site["site"]


def _with_errors(state: State, row_batches: Iterator[I64], limit: int) -> list[dict[str, Any]]:
    from shepherd.arrays.site_types import ERROR_COLUMNS, Errors
    from shepherd.formats.tables import is_resolved

    sites, errors = state.sites["site"][0 : state.sites.rows], Errors()
    with common.progress(None, "counting", " rows") as bar:
        for rows in row_batches:
            errors = errors.with_more(sites, state.index.take(rows, ERROR_COLUMNS))
            bar.update(len(rows))
    records = []
    for site_errors in errors.most(limit):
        qkey = state.sites["qkey"].value(site_errors.place)
        records.append(
            {
                "site": state.site_name(site_errors.place),
                "errors": site_errors.errors,
                "urls": state.sites["documents"].value(site_errors.place),
                "mostly": kinds.REASON.json(site_errors.mostly),
                "address": kinds.QUEUE_KEY.json(qkey) if is_resolved(qkey) else None,
            }
        )
    return records
