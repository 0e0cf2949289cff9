"""shep-recover: mend a database after a crash."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.config import Config
from shepherd.console import common, phase


@click.command()
@common.database
@common.configured
@click.option("--dry-run", is_flag=True, help="Print what would be done, change nothing.")
@click.option("--deep", is_flag=True, help="Read every byte first. This is the default if a crash has left nothing to mend.")
@common.timed
@common.jsonable
@common.standard
def command(db: Path, config: Config, dry_run: bool, deep: bool, now: int, as_json: bool) -> None:
    """Mend a database, without asking: after a crash, after damage, with the index lost.

    It removes what killed programs left, and rolls an interrupted reap back to its last checkpoint; other programs do this, too.
    It removes a damaged directory whose phase can run again. It makes a damaged closed state again under a new number: from its
    sound blocks, from its buckets, and from the newest sound older state; it reports every kind of loss. It never writes into a
    closed state. You may kill it and run it again; a second run does nothing more.

    \b
    Examples:
      shep-recover --dry-run
      shep-recover --deep
    """
    from shepherd.cycle.rebuild import recover
    from shepherd.store.check import check, places
    from shepherd.store.check.recover import survey
    from shepherd.store.state.database import Database

    database = Database(db)
    if dry_run:
        steps = places.describe(db)
        with common.progress(check.size(database), "recover", "B"):
            findings = survey(database, deep)
            steps += recover.describe(findings) or (recover.describe(survey(database, deep=True)) if not deep else [])
    else:
        steps = places.clear_lock(db)
        with database.writing("shep-recover", phase.inherited_lock(), tidy=False) as writer:
            steps += places.clear(writer)
            with common.progress(check.size(database), "recover", "B") as bar:
                mended = recover.recover(writer, config, now, deep, bar.update)
                if not mended and not deep:
                    mended = recover.recover(writer, config, now, True, bar.update)
            steps += mended
    for step in steps:
        if as_json:
            common.emit_json({"done": not dry_run, "what": step.what, "lost": step.loss, "details": step.details})
        else:
            loss_text = f" (lost: {step.loss})" if step.loss else ""
            first = ("would " if dry_run else "done: ") + step.what + loss_text
            for line in (first, *(f"  {detail}" for detail in step.details)):
                click.echo(common.escape(line))
    if not steps:
        common.LOG.info("%s: nothing to recover; every byte was read", db)


def main() -> None:
    common.run(command)
