"""shep-cork: take the harvest into the tables."""

from __future__ import annotations

import click

from shepherd.console import common, phase


@click.command()
@phase.batch
def command(options: phase.PhaseOptions) -> None:
    """Take the harvests of an ended reap, and those in the inbox, into index, sites and servers, and close the state: readers can
    use it at once. New URLs wait in its contrib files for shep-merge. Exit status 4 if there is no harvest.

    \b
    Example:
      shep-cork --dry-run --json
    """
    from shepherd.cycle.cork import drive as cork

    phase.run("shep-cork", cork.run, options)


def main() -> None:
    common.run(command)
