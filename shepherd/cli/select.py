"""shep-select: decide what is worth gathering."""

from __future__ import annotations

import click

from shepherd.cli import common, phase


@click.command()
@phase.batch
def command(how: phase.How) -> None:
    """Decide by weight and limits which rows are gathered, which sleep and which are forgotten. Makes the .selected directory of
    what shep-merge has merged. Exit status 4 if nothing has been merged.
    """
    from shepherd.batch import select

    phase.run("shep-select", select.run, how)


def main() -> None:
    common.run(command)
