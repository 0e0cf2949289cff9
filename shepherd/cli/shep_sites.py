"""shep sites: the sites of a state, with their pages by type, robots.txt, delay and address."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.cli import common, looking
from shepherd.cli import shep_shared as shared
from shepherd.cli.selector_words import TYPES, read_glob, read_server
from shepherd.cli.selectors import Parsed
from shepherd.telling.onerow import Values, values

if TYPE_CHECKING:
    from shepherd.formats.tables import I64, Bools, Columns
    from shepherd.store.state import State

STEP_ROWS: Final = 1 << 17
FEW: Final = 1_000  # sites up to which their rows are looked up; for more the whole index is read
LIMIT: Final = 50
SORTS: Final = {
    "urls": "documents",
    "gathered": "gathered",
    "slowest": "avg_ms",
    "crawl-delay": "crawl_delay_ms",
    "moves": "moves",
}
ROBOTS: Final = ("answered", "absent", "unreachable", "not-asked", "ignored")
TITLES: Final = (*(f">{name}" for name in TYPES), "robots", "of", ">delay", ">average", "address", "site")


@click.command("sites")
@click.argument("hosts", nargs=-1, metavar="[HOST|URL]...")
@click.option("--server", type=Parsed("server", read_server), metavar="ADDRESS", help="Only sites on this server.")
@click.option(
    "--glob",
    type=Parsed("glob", read_glob),
    metavar="PATTERN",
    help="Only sites named like this, scheme and port included: 'https://*.example.org'; * is any text, ? is one character.",
)
@click.option("--robots", type=click.Choice(ROBOTS), help="Only sites whose robots.txt is that.")
@click.option("--sort", type=click.Choice(tuple(SORTS)), default="urls", show_default=True, help="Largest first.")
@looking.limited(LIMIT)
@common.database
@common.unconfigured
@shared.state_number
@common.jsonable
@common.standard
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
    """List sites: pages by type, what robots.txt answered and when, the delay of the server, average download time, address.

    A site is scheme, host and port; a HOST means all sites that are one with it, whatever the scheme, with and without www.
    Every option narrows what the others leave. Robots files are no pages here.

    \b
    Examples:
      shep sites --sort slowest --limit 10
      shep sites example.org
      shep sites --robots unreachable --json | jq -r .site
    """
    with shared.reading(db, number) as state:
        rows = _largest(state, hosts, server, glob, robots, SORTS[sort], limit)
        show(state, rows, int(time.time()), as_json)


# --- which ------------------------------------------------------------------------------------------------------


def _largest(
    state: State, hosts: tuple[str, ...], server: int | None, glob: str | None, robots: str | None, column: str, limit: int
) -> I64:
    """Rows of the site table."""
    import numpy as np

    from shepherd.filters import patterns
    from shepherd.phases.largest import Largest
    from shepherd.telling.find import norm_of_host

    norms = np.array([norm_of_host(state, host) for host in hosts], np.uint64)
    matches = patterns.glob_matcher(glob) if glob is not None else None
    best = Largest(limit)
    for start in range(0, state.sites.rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, state.sites.rows)
        part = state.sites.slice(start, stop, ("norm", "qkey", *_ROBOTS_COLUMNS))
        keep = np.isin(part["norm"], norms) if hosts else np.ones(stop - start, np.bool_)
        if server is not None:
            keep &= part["qkey"] == np.uint64(server)
        if robots is not None:
            keep &= _robots_are(part, robots)
        found = np.flatnonzero(keep) + start
        if matches is not None:
            names = state.names_at(found).texts().tolist()
            found = found[np.fromiter(map(matches, names), np.bool_, len(names))]
        best = best.with_more(found, state.sites[column].take(found))
    return best.rows


_ROBOTS_COLUMNS: Final = ("robots_checked", "robots_since", "robots_status", "policy")


def _robots_are(part: Columns, wanted: str) -> Bools:
    """Which sites have a robots.txt of this kind; see `robots_word`."""
    import numpy as np

    words = {name: part[name].astype(np.int64) for name in _ROBOTS_COLUMNS}
    ignored, unreachable = words["policy"] == 1, words["robots_since"] > 0
    asked = (words["robots_checked"] > 0) | (words["robots_status"] > 0)
    absent = (words["robots_status"] >= 400) & (words["robots_status"] < 500)
    states = {
        "ignored": ignored,
        "unreachable": unreachable & ~ignored,
        "not-asked": ~asked & ~unreachable & ~ignored,
        "absent": absent & asked & ~unreachable & ~ignored,
        "answered": ~absent & asked & ~unreachable & ~ignored,
    }
    return np.asarray(states[wanted])


def robots_word(site: Values) -> str:
    """How the robots.txt of a site stands: it answered, or with 4xx, which allows all; it is unreachable, so that nothing is
    gathered; it was never asked for; or the filter says to ignore it."""
    import numpy as np

    one = {name: np.array([site[name]]) for name in _ROBOTS_COLUMNS}
    return next(word for word in ROBOTS if _robots_are(one, word)[0])


# --- what is told of them ---------------------------------------------------------------------------------------


def show(state: State, rows: I64, now: int, as_json: bool) -> None:
    found = _objects(state, rows)
    if as_json:
        for one in found:
            common.emit_json(one)
        return
    for line in looking.table(TITLES, (_row(one, now) for one in found)):
        click.echo(line)
    if not len(rows):
        common.LOG.info("no site is like that")


def _objects(state: State, rows: I64) -> Iterator[dict[str, Any]]:
    from shepherd.formats.tables import NO_LIMIT, RowType, is_resolved, show_qkey
    from shepherd.store import lookup

    pages = _types(state, rows)
    for row in rows.tolist():
        site = values(state.sites, row)
        assert site is not None
        name = state.site_name(row)
        scheme, _, host = name.partition("://")
        server = values(state.servers, lookup.server_row(state, site["qkey"]))
        types = {kind.name.lower(): int(pages[row][kind]) for kind in RowType}
        yield {
            "site": name,
            "scheme": scheme,
            "host": host,
            "urls": site["documents"],
            "types": types,
            "robots": robots_word(site),
            "robots_status": site["robots_status"] or None,
            "robots_checked": shared.iso(site["robots_checked"]) or None,
            "robots_unreachable_since": shared.iso(site["robots_since"]) or None,
            "crawl_delay_ms": site["crawl_delay_ms"] or None,
            "filter_delay_ms": site["delay_ms"] if site["delay_ms"] != NO_LIMIT else None,
            "server_delay_ms": server["delay_ms"] << server["backoff"] if server else None,
            "average_ms": site["avg_ms"] or None,
            "address": show_qkey(site["qkey"]) if is_resolved(site["qkey"]) else None,
            "address_checked": shared.iso(site["qkey_checked"]) or None,
        }


def _row(one: dict[str, Any], now: int) -> tuple[Any, ...]:
    from datetime import datetime

    checked = one["robots_unreachable_since"] or one["robots_checked"]
    age = shared.span(max(now - int(datetime.fromisoformat(checked).timestamp()), 0)) if checked else None
    robots = one["robots"] + (f" {one['robots_status']}" if one["robots_status"] else "")
    delay, average = one["server_delay_ms"], one["average_ms"]
    return (
        *(f"{count:,}" for count in one["types"].values()),
        robots,
        age,
        None if delay is None else f"{delay / 1_000:g} s",
        None if average is None else f"{average:,} ms",
        one["address"],
        one["site"],
    )


def _types(state: State, rows: I64) -> dict[int, I64]:
    """How many pages of each type the sites in some rows of the site table have, by row."""
    import numpy as np

    from shepherd.phases.sitetypes import COLUMNS, TYPES, types_of_sites

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

    from shepherd.store import lookup

    if len(rows) > FEW:
        return [range(state.index.rows)]
    return [lookup.rows_of_norm(state, norm) for norm in np.unique(state.sites["norm"].take(rows)).tolist()]
