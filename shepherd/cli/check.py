"""shep-check: verify every byte and every reference of a database."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.cli import common
from shepherd.errors import Corruption


@click.command()
@common.database
@click.option("--quick", is_flag=True, help="Names, lengths and controls only.")
@common.jsonable
@common.standard
def command(db: Path, quick: bool, as_json: bool) -> None:
    """Verify checksums, lengths, row order and cross-references of every state, and name file and offset of every fault.

    Needs no lock and changes nothing. Exit status 11 if there is a fault.
    """
    from shepherd.store import check
    from shepherd.store.database import Database

    database = Database(db)
    faults = 0
    with common.progress(None if quick else check.size(database), "checking", "B") as bar:
        for fault in check.walk(database, quick, bar.update):
            faults += not fault.note
            if as_json:
                common.emit_json({"path": fault.path, "offset": fault.offset, "what": fault.what, "note": fault.note})
            else:
                click.echo(("note: " if fault.note else "") + common.escape(str(fault)))
    if faults:
        raise Corruption(f"{faults} faults in {db}; shep-recover --dry-run tells what can be mended")
    common.LOG.info("%s: %d states, no fault", db, len(database.states()))


def main() -> None:
    common.run(command)
