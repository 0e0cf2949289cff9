"""shep-equiv: bring the normalised sites to what cf/url-equiv says."""

from __future__ import annotations

import click

from shepherd.console import common, phase


@click.command()
@phase.batch
@click.option("--detect", is_flag=True, help="Instead, propose classes from pages that are equal, in the syntax of url-equiv.")
def command(how: phase.How, detect: bool) -> None:
    """Where cf/url-equiv has changed, give the sites that it concerns their new normalised sites, and join the documents that are
    now the same. Reads the .merged directory and makes .equiv; with --dry-run also on a closed state. A site that leaves its
    class does not get back what was dropped when it was joined. Exit status 4 if the table has not changed.

    \b
    Examples:
      shep-equiv --dry-run
      shep-equiv --detect >> cf/url-equiv
    """
    if detect:
        from shepherd.cli.phases.equiv_detect import propose

        propose(how)
        return
    from shepherd.cycle.equiv import drive as equiv

    phase.run("shep-equiv", equiv.run, how)


def main() -> None:
    common.run(command)
