"""shep-feedback: take indexers' weights into the index."""

from __future__ import annotations

import click

from shepherd.console import common, phase


@click.command()
@phase.batch
def command(how: phase.How) -> None:
    """Take the weights, and the marks of what nothing links to any more, that indexers have uploaded into the index. Reads the
    newest closed state and makes the next one, which readers can use at once. A damaged upload is left where it is and
    reported. Exit status 4 if no feedback waits.

    \b
    Example:
      shep-feedback --dry-run
    """
    from shepherd.cycle.feedback import drive as feedback

    phase.run("shep-feedback", feedback.run, how)


def main() -> None:
    common.run(command)
