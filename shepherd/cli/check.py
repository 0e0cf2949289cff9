"""shep-check: verify every byte and every reference of a database."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.console import common, states
from shepherd.console.shared import many
from shepherd.errors import Corruption, IoFailed


@click.command()
@common.database
@common.unconfigured
@states.state_name("all of them, and what else is in DIR")
@click.option("--quick", is_flag=True, help="Names, lengths and headers only.")
@click.option("--all", "every", is_flag=True, help="Print every fault, not only the first of each kind in a table.")
@common.jsonable
@common.standard
def command(db: Path, state: str | None, quick: bool, every: bool, as_json: bool) -> None:
    """Verify checksums, lengths, row order and cross-references of every state; print file and offset of every fault.

    Of many rows with the same fault it prints the first of each table, and counts the others. It needs no lock and changes
    nothing. Exit status 11 if there is a fault, 13 if the disk cannot be read; notes are not faults.

    \b
    Examples:
      shep-check --db db
      shep-check --db db --quick
      shep-check --db db --state 124 --json
    """
    from shepherd.store.check import check
    from shepherd.store.state.database import Database

    database = Database(db)
    only = states.find(database, state) if state is not None else None
    looked_at = 1 if only is not None else len(database.states())
    faults = unread = 0
    total, failed = None, None
    try:
        total = None if quick else check.size(database, only)
    except IoFailed as error:
        failed = error  # where it fails again, the walk names the place
    with common.progress(total, "checking", "B") as bar:
        for fault in check.walk(database, quick, bar.update, only, None if every else check.MOST_LISTED):
            faults += 0 if fault.note else fault.count
            unread += fault.unread
            if as_json:
                record = {"path": fault.path, "offset": fault.offset, "what": fault.what}
                common.emit_json(record | {"note": fault.note, "unread": fault.unread, "count": fault.count})
            else:
                bar.clear()
                click.echo(("note: " if fault.note else "") + common.escape(str(fault)))
    if unread:
        raise IoFailed(
            f"{many(faults, 'fault')} in {db}, {unread} of them because the disk fails; save what it still gives first"
        )
    if failed is not None:
        raise failed
    if faults:
        raise Corruption(f"{many(faults, 'fault')} in {db}; shep-recover --dry-run lists what can be mended")
    common.LOG.info("%s: %s, no fault", db, many(looked_at, "state"))


def main() -> None:
    common.run(command)
