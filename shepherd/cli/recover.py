"""shep-recover: mend a database after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.config import Config
from shepherd.console import common, phase
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.store.check.recover import RecoveryStep
    from shepherd.store.state.database import Database


@click.command()
@common.database
@common.configured
@click.option("--dry-run", is_flag=True, help="Print what would be done, change nothing.")
@click.option(
    "--mirror",
    "mirrors",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="A mirror of this database: what is lost here is looked for there, too. May be given several times.",
)
@click.option("--deep", is_flag=True, help="Read every byte first. This is the default if a crash has left nothing to mend.")
@common.timed
@common.jsonable
@common.standard
def command(db: Path, config: Config, dry_run: bool, mirrors: tuple[Path, ...], deep: bool, now: int, as_json: bool) -> None:
    """Mend a database, without asking: after a crash, after damage, with the index lost.

    It removes what killed programs left, and rolls an interrupted reap back to its last checkpoint; other programs do this, too.
    It looks at every state. A file that is damaged or missing is put back if its bytes still stand somewhere: in another
    state, in a harvest, in a mirror that you name. It removes a damaged directory whose phase can run again. A closed state with
    damage that nothing makes up for is made again under a new number: from its sound blocks, from all sound buckets, and from the
    newest sound older state; what will be found and lost is said before. What a closed state says is never changed. You may kill
    it and run it again; a second run does nothing more.

    \b
    Examples:
      shep-recover --dry-run
      shep-recover --deep
      shep-recover --mirror /backup/db
    """
    from shepherd.cycle.rebuild.recover import Recovery, describe, recover
    from shepherd.store.check import check, places
    from shepherd.store.check.recover import survey
    from shepherd.store.state.database import Database

    database = Database(db)
    run = Recovery(
        config, now, lambda _bytes: None, [_mirror_of(database, path) for path in mirrors], partial(_print, as_json, "will ")
    )
    steps = places.describe(db) if dry_run else places.clear_lock(db)
    with common.progress(check.size(database), "recover", "B") as bar:
        run = replace(run, tick=bar.update)
        if dry_run:
            mended = describe(database, survey(database, deep, mirrors=run.mirrors), run)
            if not mended and not deep:
                mended = describe(database, survey(database, deep=True, mirrors=run.mirrors), run)
        else:
            with database.writing("shep-recover", phase.inherited_lock(), tidy=False) as writer:
                steps += places.clear(writer)
                mended = recover(writer, run, deep)
                if not mended and not deep:
                    mended = recover(writer, run, deep=True)
    steps += mended
    _print(as_json, "would " if dry_run else "done: ", steps)
    if not steps:
        common.LOG.info("%s: nothing to recover; every byte was read", db)


def _print(as_json: bool, how: str, steps: Sequence[RecoveryStep]) -> None:
    for step in steps:
        if as_json:
            is_done = how == "done: "
            common.emit_json({"done": is_done, "what": step.what, "lost": step.loss, "details": step.details})
        else:
            loss_text = f" (lost: {step.loss})" if step.loss else ""
            for line in (how + step.what + loss_text, *(f"  {detail}" for detail in step.details)):
                click.echo(common.escape(line))


def _mirror_of(database: Database, path: Path) -> Database:
    """The database at a path, if its footprints have the same key: else it is a mirror of something else."""
    from shepherd.store.check import salvage
    from shepherd.store.state.database import Database

    mirror = Database(path)
    keys = [
        {control.key for name in base.states() if (control := salvage.own_control(base.states_path / str(name))) is not None}
        for base in (database, mirror)
    ]
    if not keys[1] or (keys[0] and not keys[0] & keys[1]):
        raise UsageError(f"{path}: no mirror of {database.path}, its states have another key; give --mirror one that is")
    return mirror


def main() -> None:
    common.run(command)
