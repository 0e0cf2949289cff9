"""shep-recover: mend a database after a crash."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.cli import common


@click.command()
@common.database
@click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing.")
@common.standard
def command(db: Path, dry_run: bool) -> None:
    """Remove what killed programs left, roll an interrupted reap back to its last checkpoint, drop a damaged directory
    whose phase can run again.

    Needs no decision, never writes into a closed state, may be killed and run again. The other programs do the first two by
    themselves; this one says so.
    """
    from shepherd.store import recover
    from shepherd.store.database import Database

    database = Database(db)
    if dry_run:
        steps = recover.survey(database)
    else:
        with database.writing("shep-recover", tidy=False) as writer:
            steps = recover.recover(writer)
    for step in steps:
        lost = f" (lost: {step.lost})" if step.lost else ""
        click.echo(common.escape(("would " if dry_run else "done: ") + step.what + lost))
    if not steps:
        common.LOG.info("%s: nothing to recover", db)


def main() -> None:
    common.run(command)
