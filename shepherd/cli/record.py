"""shep-record: give new URLs their buckets."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.cli import common, phase
from shepherd.config import Config


@click.command()
@common.database
@common.configured
@common.timed
@common.standard
def command(db: Path, config: Config, now: int) -> None:
    """Write a thin bucket for each new URL that shep-select has kept, and close the state: readers can use it at once.
    Exit status 4 if nothing has been selected.
    """
    from shepherd.batch import record

    phase.run("shep-record", record.run, db, config, now)


def main() -> None:
    common.run(command)
