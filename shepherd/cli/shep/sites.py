"""shep sites: the sites of a state, with their pages by type, robots.txt, delay and address."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.console import common, shared
from shepherd.console import rows as console_rows
from shepherd.console.selector_words import TYPES, read_glob, read_server
from shepherd.console.selectors import Parsed
from shepherd.report.sites import ROBOTS, SORTS, STEP_ROWS, as_object, largest

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State

FEW: Final = 1_000  # sites up to which their rows are looked up; for more the whole index is read
LIMIT: Final = 50
TITLES: Final = (*(f">{name}" for name in TYPES), "robots", "of", ">delay", ">average", "address", "site")


@click.command("sites")
@click.argument("hosts", nargs=-1, metavar="[HOST|URL]...")
@click.option("--server", type=Parsed("server", read_server), metavar="ADDRESS", help="Only sites on this server.")
@click.option(
    "--glob",
    type=Parsed("glob", read_glob),
    metavar="PATTERN",
    help="Only sites whose name matches, with scheme and port: 'https://*.example.org'; * is any text, ? is one character.",
)
@click.option("--robots", type=click.Choice(ROBOTS), help="Only sites whose robots.txt is in this state.")
@click.option("--sort", type=click.Choice(tuple(SORTS)), default="urls", show_default=True, help="Largest first.")
@console_rows.list_of_a_state(LIMIT)
def command(
    hosts: tuple[str, ...],
    server: int | None,
    glob: str | None,
    robots: str | None,
    sort: str,
    limit: int,
    db: Path,
    number: int | None,
    as_json: bool,
) -> None:
    """List sites, with pages, robots.txt and delay. Columns are pages by type, what robots.txt answered and when, the delay of
    the server, average download time, address.

    A site is scheme, host and port; a HOST means all its equivalent sites, whatever the scheme, with and without www. A site is
    listed if it meets all options. Robots files do not count as pages.

    \b
    Examples:
      shep sites --sort slowest --limit 10
      shep sites example.org
      shep sites --robots unreachable --json | jq -r .site
    """
    with shared.reading(db, number) as state:
        rows = largest(state, hosts, server, glob, robots, SORTS[sort], limit)
        show(state, rows, int(time.time()), as_json)


# --- showing ---------------------------------------------------------------------------------------


def show(state: State, rows: I64, now: int, as_json: bool) -> None:
    console_rows.show(_objects(state, rows), TITLES, lambda site: _row(site, now), as_json, "no site matches")


def _objects(state: State, rows: I64) -> Iterator[dict[str, Any]]:
    from shepherd.formats.vocabulary import RowType, word

    pages = _types(state, rows)
    for row in rows.tolist():
        yield as_object(state, row) | {"types": {word(kind): int(pages[row][kind]) for kind in RowType}}


def _row(site: dict[str, Any], now: int) -> tuple[Any, ...]:
    from datetime import datetime

    checked = site["robots_unreachable_since"] or site["robots_checked"]
    age = shared.span(max(now - int(datetime.fromisoformat(checked).timestamp()), 0)) if checked else None
    robots = site["robots"] + (f" {site['robots_status']}" if site["robots_status"] else "")
    delay, average = site["server_delay_ms"], site["average_ms"]
    return (
        *(f"{count:,}" for count in site["types"].values()),
        robots,
        age,
        None if delay is None else f"{delay / 1_000:g} s",
        None if average is None else f"{average:,} ms",
        site["address"],
        site["site"],
    )


def _types(state: State, rows: I64) -> dict[int, I64]:
    """How many pages of each type the sites in some rows of the site table have, by row."""
    import numpy as np

    from shepherd.arrays.site_types import COLUMNS, TYPES, types_of_sites

    rows = np.sort(rows)
    sites = state.sites["site"].take(rows)
    total = np.zeros((len(rows), TYPES), np.int64)
    with common.progress(sum(map(len, ranges := _where(state, rows))), "counting", " rows") as bar:
        for part in ranges:
            for start in range(part.start, part.stop, STEP_ROWS):
                stop = min(start + STEP_ROWS, part.stop)
                total += types_of_sites(sites, state.index.slice(start, stop, COLUMNS))
                bar.update(stop - start)
    return dict(zip(rows.tolist(), total, strict=True))


def _where(state: State, rows: I64) -> list[range]:
    """Ranges of the index with all pages of some sites."""
    import numpy as np

    from shepherd.store.state import lookup

    if len(rows) > FEW:
        return [range(state.index.rows)]
    return [lookup.rows_of_norm(state, norm) for norm in np.unique(state.sites["norm"].take(rows)).tolist()]
