"""shep-feedback: take indexers' weights into the index."""

from __future__ import annotations

import click

from shepherd.console import common, phase


@click.command()
@phase.batch
def command(options: phase.PhaseOptions) -> None:
    """Apply feedback that indexers have uploaded to the index: weights, and marks of documents that nothing links to any more. It
    reads the newest closed state and makes the next one, which readers can use at once. A damaged upload is reported and stays in
    the inbox. Exit status 4 if no feedback waits.

    \b
    Example:
      shep-feedback --dry-run
    """
    from shepherd.cycle.feedback import drive as feedback

    phase.run("shep-feedback", feedback.run, options)


def main() -> None:
    common.run(command)
