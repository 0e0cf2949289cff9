"""shep-record: give new URLs their buckets."""

from __future__ import annotations

import click

from shepherd.console import common, phase


@click.command()
@phase.batch
def command(options: phase.PhaseOptions) -> None:
    """Write a thin bucket for each new URL that shep-select has kept, and a tombstone for each deleted document; forget failed
    lookups that are too old; close the state: readers can use it at once. Exit status 4 if there is no selected directory.

    \b
    Example:
      shep-record --jobs 2
    """
    from shepherd.cycle.record import drive as record

    phase.run("shep-record", record.run, options)


def main() -> None:
    common.run(command)
