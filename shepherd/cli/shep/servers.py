"""shep servers: the addresses of a state, with what politeness and experience say of each."""

from __future__ import annotations

import time
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.console import rows as console_rows
from shepherd.console import shared
from shepherd.console.selector_words import read_server
from shepherd.console.selectors import Parsed
from shepherd.report.servers import SORTS, as_objects, largest

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State

LIMIT: Final = 50
TITLES: Final = (
    ">sites", ">pages", ">fetches", ">errors", ">average", ">delay", ">back-off", ">slots", "asked by", "next contact", "address",
)  # fmt: skip


@click.command("servers")
@click.argument("addresses", nargs=-1, type=Parsed("server", read_server), metavar="[ADDRESS]...")
@click.option("--backing-off", is_flag=True, help="Only servers whose delay is longer than usual, because they failed.")
@click.option("--sort", type=click.Choice(tuple(SORTS)), default="pages", show_default=True, help="Largest first.")
@console_rows.list_of_a_state(LIMIT)
def command(
    addresses: tuple[int, ...], backing_off: bool, sort: str, limit: int, db: Path, number: int | None, as_json: bool
) -> None:
    """List servers, with delays and failures. Columns are sites and pages on them, contacts and how many failed, average download
    time, delay, the site that asks the server for most patience, next contact.

    A server is an address. `pages` are those gathered or to be gathered, as of the last shep-record; `delay` is the time between
    two fetches; `back-off` multiplies it since the server failed; `slots` is how many fetches it may have at a time.

    \b
    Examples:
      shep servers --sort slowest --limit 10
      shep servers --backing-off
      shep servers 192.0.2.7 --json
    """
    with shared.reading(db, number) as state:
        rows = largest(state, sort, limit, addresses, backing_off)
        show(state, rows, int(time.time()), as_json)


def show(state: State, rows: I64, now: int, as_json: bool) -> None:
    console_rows.show(as_objects(state, rows), TITLES, lambda server: _row(server, now), as_json, "no server matches")


def _row(server: dict[str, Any], now: int) -> tuple[Any, ...]:
    from datetime import datetime

    next_s = ceil(datetime.fromisoformat(server["next_contact"]).timestamp()) if server["next_contact"] else 0
    wait_s = next_s - now
    return (
        *(f"{server[name]:,}" for name in ("sites", "pages", "fetches", "errors")),
        f"{server['average_ms']:,} ms" if server["average_ms"] else None,
        f"{server['delay_ms'] / 1_000:g} s",
        f"x{1 << server['backoff']}" if server["backoff"] else None,
        server["slots"] or 1,
        asked_by(server["asks"]) if server["asks"] else None,
        f"in {shared.span(wait_s)}" if wait_s > 0 else "at once",
        server["address"],
    )


def asked_by(ask: dict[str, Any]) -> str:
    """The site that asks for most patience, and for what."""
    wish = f"until {ask['until']}" if ask["until"] else f"{ask['crawl_delay_ms'] / 1_000:g} s between fetches"
    return f"{ask['site']}, {wish}"
