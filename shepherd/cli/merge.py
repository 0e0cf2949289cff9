"""shep-merge: add new URLs to the index."""

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
    """Merge the URLs that pages linked to and that operators inserted into the index, one row per document; drop what is
    forgotten or dead. Makes the next .merged directory. Exit status 4 if neither contributions nor requests wait.
    """
    from shepherd.batch import merge

    phase.run("shep-merge", merge.run, db, config, now)


def main() -> None:
    common.run(command)
