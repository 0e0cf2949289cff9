"""shep-cleanup: shake the bucket file down."""

from __future__ import annotations

import functools

import click

from shepherd.cli import common, phase


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Judge every URL and check every reference, even if the filter is the same."
)
@phase.batch
def command(everything: bool, how: phase.How) -> None:
    """Free what nobody needs any more: drop and copy together segments, trim what sleeps, forget what the filter rejects. Makes
    closed states, one for each batch that fits on the disk. Exit status 4 if there is nothing to reclaim.
    """
    from shepherd.batch import cleanup

    phase.run("shep-cleanup", functools.partial(cleanup.run, everything=everything), how)


def main() -> None:
    common.run(command)
