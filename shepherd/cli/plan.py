"""shep-plan: choose what the next reap gathers."""

from __future__ import annotations

import click

from shepherd.cli import common, phase


@click.command()
@phase.batch
def command(how: phase.How) -> None:
    """Choose what the next reap is to gather, and how urgently: what is new, due for a refresh or a retry, as much as each server
    has time for. Reads the newest closed state and makes the next .reap directory. Exit status 4 if nothing is due.
    """
    from shepherd.batch import plan

    phase.run("shep-plan", plan.run, how)


def main() -> None:
    common.run(command)
