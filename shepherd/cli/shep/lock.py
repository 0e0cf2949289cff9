"""shep lock and unlock: hold a closed state for as long as somebody needs it, and give it back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.cli.shep import change_log as changelog
from shepherd.cli.shep import lease_rows
from shepherd.config import DAY_S
from shepherd.console import common, selector_words, shared
from shepherd.console import rows as console_rows
from shepherd.console.selectors import Parsed
from shepherd.errors import NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.store.state.database import Database
    from shepherd.store.state.lease import Lease

NEWEST: Final = "newest"
TITLES: Final = (">state", "since", "until", ">pins", "by", "purpose", "id")
LONGEST_S: Final = 3_650 * DAY_S


def _read_duration(text: str) -> int:
    seconds = selector_words.read_age(text)
    if not 0 < seconds <= LONGEST_S:
        raise ValueError("allowed is from 1s to 3650d")
    return seconds


@click.command("lock")
@click.argument("state", required=False, metavar="[STATE]")
@click.option(
    "--for",
    "seconds",
    type=Parsed("duration", _read_duration),
    default="1d",
    show_default=True,
    metavar="DURATION",
    help="How long: 90m, 12h, 30d, 2w.",
)
@click.option("--purpose", default="", metavar="TEXT", help="Why you keep it; others see this.")
@common.database
@common.unconfigured
@common.jsonable
@common.standard
def command(state: str | None, seconds: int, purpose: str, db: Path, as_json: bool) -> None:
    """Keep a closed state, or list who keeps which. STATE is its number, or `newest`: no cycle deletes it before the time is over
    or you say `shep unlock`.

    Without a STATE it lists who holds which state, since when and until when, and how many bytes that pins: those of files that
    no newer state has. The list includes programs that read; they give back their leases when they end.

    \b
    Examples:
      shep lock newest --for 7d --purpose 'index of November'
      shep lock
      shep unlock 12
    """
    from shepherd.store.state.database import Database

    database = Database(db)
    if state is None:
        _list(database, as_json)
        return
    if state != NEWEST and not (state.isascii() and state.isdigit() and len(state) < 10):
        raise UsageError(f"{shared.redact(state)}: allowed is the number of a closed state, or `{NEWEST}`")
    text = f"{lease_rows.LOCK}: {' '.join(purpose.split())}" if purpose.strip() else lease_rows.LOCK
    lease = database.lease(None if state == NEWEST else int(state), changelog.who(), text, shared.clock_ms(), seconds)
    if as_json:
        common.emit_json(lease_rows.as_object(lease, None))
    else:
        until = shared.moment(lease.expires, int(time.time()))
        click.echo(f"state {lease.state} is held until {until}; `shep unlock {lease.name}` ends the lock")


@click.command("unlock")
@click.argument("names", nargs=-1, required=True, metavar="ID|STATE...")
@click.option("--force", is_flag=True, help="Also a lease whose program still reads, or may do so on another machine.")
@common.database
@common.unconfigured
@common.jsonable
@common.standard
def unlock(names: tuple[str, ...], force: bool, db: Path, as_json: bool) -> None:
    """Give back a lock. Name a state by its number to end all its locks, or any lease by its ID.

    The next cycle may then delete the state. The lease of a running program ends only with --force. Exit status 4 if there is no
    such lease.

    \b
    Examples:
      shep unlock 12
      shep lock --json | jq -r 'select(.purpose | contains("shep-mirror")) | .id' | xargs -r shep unlock
    """
    from shepherd.store.state.database import Database

    database = Database(db)
    leases = [lease for name in names for lease in _leases_of(database, name, force)]
    for lease in dict.fromkeys(leases):
        with database.leases.locked():  # a server that is just renewing it for a client must not bring it back
            database.leases.remove(lease)
        if as_json:
            common.emit_json(lease_rows.as_object(lease, None))
        else:
            click.echo(common.escape(f"state {lease.state} is not held any more by {lease.owner} ({lease.purpose})"))


def _leases_of(database: Database, name: str, force: bool) -> list[Lease]:
    leases = database.leases.all()
    by_name = [lease for lease in leases if lease.name == name]
    if by_name:
        for lease in by_name:
            if not force and not lease_rows.is_lock(lease) and not lease.is_abandoned:
                what = common.escape(lease.purpose)
                raise UsageError(f"{name}: {what} may still be reading; --force ends its lease anyway")
        return by_name
    if not (name.isascii() and name.isdigit()):
        raise NothingToDo(f"{shared.redact(name)}: no lease has this ID; `shep lock` lists all leases")
    of_state = [lease for lease in leases if lease.state == int(name)]
    locks = [lease for lease in of_state if lease_rows.is_lock(lease)]
    if not locks:
        others = f"; name the leases of {shared.many(len(of_state), 'program')} by ID" if of_state else ""
        raise NothingToDo(f"state {name} has no lock{others}")
    return locks


def _list(database: Database, as_json: bool) -> None:
    from shepherd.store.state.usage import pins, usage

    used = usage(database)
    closed = [name.number for name in database.states() if name.closed]
    now = int(time.time())
    leases = lease_rows.valid(database, now)
    for lease in lease_rows.orphaned(database, now):
        what = common.escape(lease.purpose)
        common.LOG.info("state %d is not held any more by %s, pid %d: it has ended", lease.state, what, lease.pid)
    rows = [lease_rows.as_object(lease, pins(lease, used, closed[-1] if closed else None)) for lease in leases]
    console_rows.show(rows, TITLES, _row, as_json, "nobody holds a state")


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    pins = row["pinned_bytes"]
    pinned = None if pins is None else shared.size(pins)
    return row["state"], row["since"], row["until"], pinned, row["owner"], row["purpose"], row["id"]
