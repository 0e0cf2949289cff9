"""shep-plan: choose what the next reap gathers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from shepherd.cli.phases import versus as other
from shepherd.console import common, phase

if TYPE_CHECKING:
    from shepherd.config import Config


@click.command()
@click.option("--pages", type=click.IntRange(min=1), metavar="N", help="Plan at most N pages.  [default: plan.max_pages]")
@other.option
@phase.batch
def command(options: phase.PhaseOptions, versus: Config | None, pages: int | None) -> None:
    """Choose what the next reap is to gather, and how urgently: what is new, or due for a refresh or a retry, as much as each
    server has time for. It reads the newest closed state and makes the next .reap directory. Exit status 4 if nothing is due.

    \b
    What another configuration would plan, beside the present one:
      shep-plan --dry-run --cf cf2/
    """
    from shepherd.cycle.plan import drive as plan

    if pages is not None:
        config = options.config
        options = replace(options, config=replace(config, plan=replace(config.plan, max_pages=pages)))
    other.run("shep-plan", plan.run, options, versus)


def main() -> None:
    common.run(command)
