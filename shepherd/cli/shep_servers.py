"""shep servers: the addresses of a state, with what politeness and experience say of each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.cli import common, looking
from shepherd.cli import shep_shared as shared
from shepherd.cli.selector_words import read_server
from shepherd.cli.selectors import Parsed
from shepherd.telling.onerow import values

if TYPE_CHECKING:
    from shepherd.formats.tables import I64, Array
    from shepherd.store.state import State

STEP_ROWS: Final = 1 << 17
LIMIT: Final = 50
SORTS: Final = {
    "pages": "documents",
    "sites": "",
    "slowest": "avg_ms",
    "errors": "errors",
    "fetches": "fetches",
    "delay": "delay_ms",
    "next": "next_ms",
}
TITLES: Final = (
    ">sites", ">pages", ">fetches", ">errors", ">average", ">delay", ">back-off", ">slots", "next contact", "address",
)  # fmt: skip


@click.command("servers")
@click.argument("addresses", nargs=-1, type=Parsed("server", read_server), metavar="[ADDRESS]...")
@click.option("--backing-off", is_flag=True, help="Only servers whose delay is longer than usual, because they failed.")
@click.option("--sort", type=click.Choice(tuple(SORTS)), default="pages", show_default=True, help="Largest first.")
@looking.limited(LIMIT)
@common.database
@common.unconfigured
@shared.state_number
@common.jsonable
@common.standard
def command(
    addresses: tuple[int, ...], backing_off: bool, sort: str, limit: int, db: Path, number: int | None, as_json: bool
) -> None:
    """List servers: sites and pages on them, contacts and how many failed, average download time, delay, next contact.

    A server is an address. `pages` are those gathered or to be gathered, as the last record counted them; `delay` is the time
    between two fetches, and `back-off` what that is multiplied by since it failed; it has so many `slots` for fetches at a time.

    \b
    Examples:
      shep servers --sort slowest --limit 10
      shep servers --backing-off
      shep servers 192.0.2.7 --json
    """
    with shared.reading(db, number) as state:
        rows = largest(state, sort, limit, addresses, backing_off)
        show(state, rows, int(time.time()), as_json)


def largest(state: State, sort: str, limit: int, addresses: tuple[int, ...] = (), backing_off: bool = False) -> I64:
    """Rows of the server table."""
    import numpy as np

    from shepherd.phases.largest import Largest

    sites = _sites(state) if not SORTS[sort] else None
    best = Largest(limit)
    for start in range(0, state.servers.rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, state.servers.rows)
        keep = np.ones(stop - start, np.bool_)
        if addresses:
            keep &= np.isin(state.servers["qkey"][start:stop], np.array(addresses, np.uint64))
        if backing_off:
            keep &= state.servers["backoff"][start:stop] > 0
        found: Array = sites[start:stop] if sites is not None else state.servers[SORTS[sort]][start:stop]
        rows = np.flatnonzero(keep)
        best = best.with_more(rows + start, found[rows])
    return best.rows


def _sites(state: State) -> I64:
    """How many sites each server has."""
    import numpy as np

    from shepherd.phases.keys import find_servers

    known = state.servers["qkey"][0 : state.servers.rows]
    counts = np.zeros(len(known), np.int64)
    for start in range(0, state.sites.rows, STEP_ROWS):
        place = find_servers(known, state.sites["qkey"][start : min(start + STEP_ROWS, state.sites.rows)])
        counts += np.bincount(place[place >= 0], minlength=len(known))
    return counts


def show(state: State, rows: I64, now: int, as_json: bool) -> None:
    found = _objects(state, rows)
    if as_json:
        for one in found:
            common.emit_json(one)
        return
    for line in looking.table(TITLES, (_row(one, now) for one in found)):
        click.echo(line)
    if not len(rows):
        common.LOG.info("no server is like that")


def _objects(state: State, rows: I64) -> Iterator[dict[str, Any]]:
    from shepherd.formats.tables import show_qkey

    sites = _sites(state) if len(rows) else rows
    for row in rows.tolist():
        server = values(state.servers, row)
        assert server is not None
        yield {
            "address": show_qkey(server["qkey"]),
            "sites": int(sites[row]),
            "pages": server["documents"],
            "fetches": server["fetches"],
            "errors": server["errors"],
            "average_ms": server["avg_ms"] or None,
            "delay_ms": server["delay_ms"],
            "backoff": server["backoff"],
            "slots": server["slots"],
            "group": f"{server['group']:016x}" if server["group"] else None,
            "next_contact": shared.iso(max(server["next_ms"], 0) // 1_000) or None,
            "next_ms": server["next_ms"],
        }


def _row(one: dict[str, Any], now: int) -> tuple[Any, ...]:
    left = -(-one["next_ms"] // 1_000) - now
    return (
        *(f"{one[name]:,}" for name in ("sites", "pages", "fetches", "errors")),
        f"{one['average_ms']:,} ms" if one["average_ms"] else None,
        f"{one['delay_ms'] / 1_000:g} s",
        f"x{1 << one['backoff']}" if one["backoff"] else None,
        one["slots"] or 1,
        f"in {shared.span(left)}" if left > 0 else "at once",
        one["address"],
    )
