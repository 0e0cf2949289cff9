"""shep-cleanup: shake the bucket file down."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import click

from shepherd.console import common, phase
from shepherd.console.shared import many


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Judge every URL and check every reference, even if the filter is the same."
)
@phase.batch
def command(everything: bool, options: phase.PhaseOptions) -> None:
    """Free what nobody needs any more: drop or join segments, trim sleeping documents, forget what the filter rejects. It makes
    closed states, one for each batch that fits on the disk. Exit status 4 if there is nothing to free.

    \b
    Examples:
      shep-cleanup --dry-run
      shep-cleanup --jobs 2
    """
    from shepherd.cycle.cleanup import drive as cleanup

    phase.run("shep-cleanup", functools.partial(cleanup.run, everything=everything), options, _in_words)


def _in_words(report: Mapping[str, Any]) -> Iterator[str]:
    """What was done, how full the segments are, what older states hold, and how large documents are."""
    yield from (f"{what} {count}" for what, count in report["counts"].items() if count)
    if "bytes" in report:
        where = many(report["segments"], "segment")
        yield f"{report['needed percent']} % of {report['bytes']} bytes in {where} needed"
    pinned = report["pinned"]
    if pinned["bytes of older states"]:
        leased = pinned["bytes of leased states"]
        yield f"{pinned['bytes of older states']} bytes held by older states{f', {leased} of them by leases' if leased else ''}"
    for section, average in report.get("averages", {}).items():
        yield f"section {section}: {many(average['documents'], 'document')} of {average['stored bytes']} bytes"


def main() -> None:
    common.run(command)
