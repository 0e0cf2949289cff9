"""shep-upgrade: bring a database of an older format version up to date."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.console import common
from shepherd.errors import NothingToDo


@click.command()
@common.database
@common.unconfigured
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@common.timed
@common.jsonable
@common.standard
def command(db: Path, dry_run: bool, now: int, as_json: bool) -> None:
    """Bring a database of an older format version up to date.

    It builds new directories beside the old ones, sharing unchanged files by hard links, and then replaces the old ones: you may
    kill it and run it again. An unfinished reap continues from its last checkpoint; its harvest is copied, which needs as much
    space again. Leased old states stay until their leases end. Exit status 4 if no state is old.

    \b
    Examples:
      shep-upgrade --dry-run
      shep-upgrade --db /srv/shepherd/db
    """
    from shepherd.formats.tables import FORMAT_VERSION
    from shepherd.store.check import upgrade
    from shepherd.store.state.database import Database

    database = Database(db)
    if dry_run:
        steps = upgrade.survey(database)
    else:
        with database.writing("shep-upgrade", tidy=False) as writer:
            steps = upgrade.upgrade(writer, now)
    if not steps:
        database.furthest()  # says what is wrong with one that is not old but newer, damaged or gone
        raise NothingToDo(f"{db}: already of format version {FORMAT_VERSION}")
    for step in steps:
        if as_json:
            common.emit_json({"old": str(step.old), "version": step.version, "new": str(step.new)})
        else:
            click.echo(f"{'would do: ' if dry_run else ''}{step}")


def main() -> None:
    common.run(command)
