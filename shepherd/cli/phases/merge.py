"""shep-merge: add new URLs to the index."""

from __future__ import annotations

import click

from shepherd.console import common, phase


@click.command()
@phase.batch
def command(options: phase.PhaseOptions) -> None:
    """Add the URLs that pages link to and that operators inserted to the index, one row per document; carry out operators'
    requests; drop what is forgotten or dead. It makes the next .merged directory. Exit status 4 if neither contributions nor
    requests wait, and filter and url-equiv have not changed.

    \b
    Examples:
      shep-merge --dry-run --json
      shep-merge --jobs 2
    """
    from shepherd.cycle.merge import drive as merge

    phase.run("shep-merge", merge.run, options)


def main() -> None:
    common.run(command)
