"""shep-select: decide what is worth gathering."""

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
    """Decide by weight and limits which rows are gathered, which sleep and which are forgotten. Makes the .selected directory of
    what shep-merge has merged. Exit status 4 if nothing has been merged.
    """
    from shepherd.batch import select

    phase.run("shep-select", select.run, db, config, now)


def main() -> None:
    common.run(command)
