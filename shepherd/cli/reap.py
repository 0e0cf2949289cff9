"""shep-reap: gather what plan has planned."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.cli import common, phase
from shepherd.config import Config


@click.command()
@common.database
@common.configured
@click.option("--seconds", type=click.FloatRange(0), help="Hand out nothing after this long.  [default: plan.reap_s]")
@common.standard
def command(db: Path, config: Config, seconds: float | None) -> None:
    """Gather the planned documents politely, into the harvest of the .reap directory.

    An interrupted harvest is continued from its last checkpoint. The first Ctrl-C or SIGTERM lets what is in flight finish and
    ends in good order; a second one stops at once, which costs what came since the last checkpoint.
    """
    from shepherd.net import reap
    from shepherd.store.database import Database

    with Database(db).writing("shep-reap", phase.inherited_lock()) as writer, phase.timed(db, "shep-reap"):
        state = writer.furthest()
        path = reap.harvest_path(state)
        with common.progress(len(state.plan()), "reap", "page") as bar:
            summary = reap.reap(state, path, config, config.plan.reap_s if seconds is None else seconds, bar.update)
    common.LOG.info("reap: %s", summary)


def main() -> None:
    common.run(command)
