"""shep-reap: gather what plan has planned."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.config import Config
from shepherd.console import cf_place, common, phase, progress
from shepherd.master.minutes import Minutes
from shepherd.report import logbook

if TYPE_CHECKING:
    from shepherd.console.progress import Progress
    from shepherd.dispatch.statistics import Figures


def _in_a_directory(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """A file that could not be made after the reap is better refused before it."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"{path.parent} is not a directory")
    return path


@click.command()
@common.database
@common.configured
@click.option("--seconds", type=click.FloatRange(0), help="Begin no fetch after this time.  [default: plan.reap_s]")
@click.option(
    "--servers",
    "table",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_in_a_directory,
    metavar="FILE",
    help="Write a JSON line for each server that was contacted to FILE.",
)
@common.jsonable
@common.standard
def command(db: Path, config: Config, seconds: float | None, table: Path | None, as_json: bool) -> None:
    """Gather the planned documents politely, into the harvest of the .reap directory.

    It continues an interrupted harvest from its last checkpoint. At the first Ctrl-C or SIGTERM it finishes the fetches in flight
    and ends in good order; at the second it stops at once, and loses what came since the last checkpoint. Exit status 12 if the
    disk or the bucket file has reached its limit: what was gathered is kept, and shep-cork takes it in.

    \b
    Examples:
      shep-reap --seconds 600
      shep-reap --servers servers.jsonl --json
    """
    from shepherd.dispatch import reap
    from shepherd.errors import NoSpace
    from shepherd.store.state.database import Database

    start = int(time.time())
    with Database(db).writing("shep-reap", phase.inherited_lock()) as writer, phase.timed(db, "shep-reap"):
        cf_place.require(db, config)
        state = writer.furthest()
        cf_place.note_taken(db, config)
        path = reap.harvest_path(state)
        job = progress.ProgressJob("shep-reap", str(state.name), len(state.plan()), "page")
        minutes = Minutes(db, str(state.name))
        with progress.reporting(db, job, "reap", narrow=True) as work:
            limit_s = config.plan.reap_s if seconds is None else seconds
            summary = reap.reap(state, path, config, limit_s, ReapProgress(work, minutes))
        minutes.end(summary.figures)
        report = {"start": start, "state": str(state.name), **summary.report()}
        phase.append_line(db / "log" / logbook.REAPS, report)
    if table is not None:
        with table.open("w") as file:
            file.writelines(json.dumps(server) + "\n" for server in summary.servers)
    common.LOG.info("reap: %s", summary)
    if as_json:
        common.emit_json(report)
    if summary.full:
        raise NoSpace(f"{summary.full}; what was gathered is kept: shep-cork takes it in")


class ReapProgress:
    """Shows how far a reap is."""

    def __init__(self, work: Progress, minutes: Minutes | None = None) -> None:
        self._work, self._minutes = work, minutes

    def resumed(self, settled: int) -> None:
        self._work.begin_at(settled)

    def settled(self, more: int) -> None:
        self._work.update(more)

    def show(self, figures: Figures) -> None:
        self._work.show(figures._asdict(), figures.short())
        if self._minutes is not None:
            self._minutes.show(figures)


def main() -> None:
    common.run(command)
