"""shep-select: decide what is worth gathering."""

from __future__ import annotations

import functools

import click

from shepherd.cli import common, phase


@click.command()
@click.option("--force", is_flag=True, help="Go on even if more gathered documents are lost than select.most_lost allows.")
@phase.batch
def command(how: phase.How, force: bool) -> None:
    """Decide by weight and limits which rows are gathered, which sleep and which are forgotten. Makes the .selected directory of
    what shep-merge or shep-equiv has made. Exit status 4 if nothing has been merged, 2 if too many gathered documents would be
    lost.
    """
    from shepherd.batch import select

    phase.run("shep-select", functools.partial(select.run, force=force), how)


def main() -> None:
    common.run(command)
