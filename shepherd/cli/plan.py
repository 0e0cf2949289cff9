"""shep-plan: choose what the next reap gathers."""

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
    """Choose what the next reap is to gather, and how urgently: what is new, due for a refresh or a retry, as much as each server
    has time for. Reads the newest closed state and makes the next .reap directory. Exit status 4 if nothing is due.
    """
    from shepherd.batch import plan

    phase.run("shep-plan", plan.run, db, config, now)


def main() -> None:
    common.run(command)
