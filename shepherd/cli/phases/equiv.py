"""shep-equiv: bring the normalised sites to what cf/url-equiv says; --detect: propose lines for it, with their evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shepherd.console import common, phase
from shepherd.errors import NothingToDo

if TYPE_CHECKING:
    from shepherd.cycle.equiv.detect import Evidence, Proposal


@click.command()
@phase.batch
@click.option("--detect", is_flag=True, help="Instead propose classes from equal pages, in the syntax of url-equiv.")
def command(options: phase.PhaseOptions, detect: bool) -> None:
    """If cf/url-equiv has changed, give its sites their new normalised sites, and join the documents that are now the same. It
    reads the .merged directory and makes .equiv; with --dry-run it also reads a closed state. A site that leaves its class does
    not get back the rows that were dropped when it was joined. Exit status 4 if the table has not changed.

    \b
    Examples:
      shep-equiv --dry-run
      shep-equiv --detect >> cf/url-equiv
    """
    if detect:
        propose(options)
        return
    from shepherd.cycle.equiv import drive as equiv

    phase.run("shep-equiv", equiv.run, options)


LEAST_COMMON = 2  # pages, the root among them
SHARE_PERCENT = 80


def propose(options: phase.PhaseOptions) -> None:
    """Print what the newest closed state suggests: one class a line, its evidence as comments above it."""
    from shepherd.cycle.equiv import detect
    from shepherd.store.state.database import Database

    with (
        Database(options.db).reading("shep-equiv --detect", options.now * 1000) as state,
        common.progress(state.index.rows, "shep-equiv", "row") as bar,
    ):
        proposals = list(detect.propose(state, LEAST_COMMON, SHARE_PERCENT, bar.update))
    for proposal in proposals:
        _show(proposal, options.as_json)
    if not proposals:
        raise NothingToDo("no two sites look like one")


def _show(proposal: Proposal, as_json: bool) -> None:
    others = list(zip(proposal.names[1:], proposal.evidence, strict=True))
    if as_json:
        common.emit_json({"names": list(proposal.names), "evidence": [_plain(name, evidence) for name, evidence in others]})
        return
    for name, evidence in others:
        click.echo(common.escape(f"# {name}: {evidence}"))
    click.echo(common.escape(" ".join(proposal.names)))


def _plain(name: str, evidence: Evidence) -> dict[str, object]:
    numbers = {"common": evidence.agreement.common, "equal": evidence.agreement.equal, "near": evidence.near}
    return {"name": name, **numbers, "roots_equal": evidence.roots_equal, "redirect": evidence.redirect}


def main() -> None:
    common.run(command)
