"""shep-reap: gather what plan has planned."""

from __future__ import annotations

import time
from pathlib import Path

import click

from shepherd.cli import common, phase
from shepherd.config import Config


@click.command()
@common.database
@common.configured
@click.option("--seconds", type=click.FloatRange(0), help="Hand out nothing after this long.  [default: plan.reap_s]")
@common.jsonable
@common.standard
def command(db: Path, config: Config, seconds: float | None, as_json: bool) -> None:
    """Gather the planned documents politely, into the harvest of the .reap directory.

    An interrupted harvest is continued from its last checkpoint. The first Ctrl-C or SIGTERM lets what is in flight finish and
    ends in good order; a second one stops at once, which costs what came since the last checkpoint. Exit status 12 if the disk or
    the bucket file has reached its limit: what was gathered is kept, and shep-cork takes it in.
    """
    from shepherd.errors import NoSpace
    from shepherd.net import reap
    from shepherd.store.database import Database

    start = int(time.time())
    with Database(db).writing("shep-reap", phase.inherited_lock()) as writer, phase.timed(db, "shep-reap"):
        state = writer.furthest()
        path = reap.harvest_path(state)
        with common.progress(len(state.plan()), "reap", "page") as bar:
            limit_s = config.plan.reap_s if seconds is None else seconds
            summary = reap.reap(state, path, config, limit_s, bar.update, lambda figures: bar.set_postfix_str(figures.short()))
        report = {"start": start, "state": str(state.name), **summary.report()}
        phase.append_line(db / "log" / phase.REAPS, report)
    common.LOG.info("reap: %s", summary)
    if as_json:
        common.emit_json(report)
    if summary.full:
        raise NoSpace(f"{summary.full}; what was gathered is kept: shep-cork takes it in")


def main() -> None:
    common.run(command)
