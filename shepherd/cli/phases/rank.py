"""shep-rank: weights by the links between documents, as feedback for the next cycle."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.config import Config
from shepherd.console import common, machine, phase, progress, shared
from shepherd.console import rows as console_rows
from shepherd.console.shared import many
from shepherd.errors import NothingToDo

if TYPE_CHECKING:
    from shepherd.cycle.rank.drive import RankOptions, RankResult
    from shepherd.store.state.directory import State
    from shepherd.store.state.inbox import Draft

PROGRAM = "shep-rank"


@click.command()
@common.database
@common.configured
@shared.state_number
@click.option(
    "--damping",
    type=click.FloatRange(0, 0.99),
    default=0.85,
    metavar="SHARE",
    help="The share of a page's rank that its links pass on.  [default: 0.85]",
)
@click.option(
    "--iterations", type=click.IntRange(1, 10_000), default=100, metavar="N", help="Take at most N turns.  [default: 100]"
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1),
    default=1e-6,
    metavar="SHARE",
    help="End when a turn has moved no more than this share of all rank.  [default: 1e-06]",
)
@console_rows.limited(10)
@click.option("--dry-run", is_flag=True, help="Show the distribution of the weights, and the best documents; leave nothing.")
@common.jsonable
@common.standard
def command(
    db: Path,
    config: Config,
    number: int | None,
    damping: float,
    iterations: int,
    tolerance: float,
    limit: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rank the documents of a closed state by the links in their buckets, and leave the weights in the inbox for the next
    shep-feedback. It needs no lock, and works while a cycle runs. Exit status 4 if no weight would change.

    \b
    Examples:
      shep-rank --dry-run
      shep-rank --damping 0.9 --state 124
    """
    machine.tune()
    signal.signal(signal.SIGTERM, phase.terminated)
    from shepherd.cycle.rank.drive import RankOptions
    from shepherd.store.disk import scratch_directory
    from shepherd.store.state.database import Database

    inbox, item = Database(db).inbox, None if dry_run else Database(db).new_item_name(shared.clock_ms())
    directory = (
        inbox.directory if os.access(inbox.directory, os.W_OK) else None
    )  # beside the database is room; elsewhere who knows
    rank_options = RankOptions(damping, iterations, tolerance, limit)
    with contextlib.ExitStack() as stack:
        draft = stack.enter_context(inbox.draft_feedback(item)) if item else None  # first: who may not write need not begin
        if draft:
            stack.enter_context(phase.timed(db, PROGRAM))
        state = stack.enter_context(shared.reading(db, number))
        scratch = scratch_directory.without_lock(directory, shared.clock_ms())
        stack.callback(scratch.remove)
        ranking = _rank(db, state, config, rank_options, scratch.path, draft)
        top = list(ranking.top(state, config.merge.insert_weight))
    if as_json:
        result = {"program": PROGRAM, "state": str(state.name), "dry_run": dry_run, "item": item, "report": _report(ranking, top)}
        common.emit_json(result)
    elif dry_run:
        for line in (f"{PROGRAM}: {_summary(state, ranking)}", "", *_spread(ranking), "", *_best(top)):
            click.echo(line)
    else:
        common.LOG.info("%s: %s, left in the inbox as %s", PROGRAM, _summary(state, ranking), item)
    if ranking.change > tolerance:
        common.LOG.warning(
            "%s: the last of %s still moved %.1e of all rank", PROGRAM, many(ranking.turns, "turn"), ranking.change
        )


def _rank(db: Path, state: State, config: Config, rank_options: RankOptions, scratch: Path, draft: Draft | None) -> RankResult:
    """What was found. A draft is kept if something is in it."""
    from shepherd.cycle.rank import drive as rank

    job = progress.ProgressJob(PROGRAM, str(state.name), state.index.rows, "row")
    holder = db if phase.inherited_lock() is not None else None  # a master that holds it has started us
    with progress.reporting(holder, job) as work, common.progress(_turns(rank_options), "turns", "turn") as bar:

        def turned(change: float) -> None:
            bar.update(1)
            bar.set_postfix_str(f"{change:.1e} moved")

        if draft is None:
            return rank.run(state, config, rank_options, scratch, tick=work.update, on_turn=turned)
        ranking = rank.run(state, config, rank_options, scratch, draft.write, work.update, turned)
    if not ranking.changed:
        raise NothingToDo(f"every document of state {state.name} has the weight of its rank already")
    draft.keep()
    return ranking


def _turns(rank_options: RankOptions) -> int:
    """How many turns are needed at most: each moves what the one before has moved, damped."""
    if not (rank_options.tolerance and rank_options.damping):
        return max(1, rank_options.iterations)
    enough = math.ceil(math.log(rank_options.tolerance / 2) / math.log(rank_options.damping))
    return max(1, min(rank_options.iterations, enough))


# --- telling ----------------------------------------------------------------------------------------------------


def _summary(state: State, ranking: RankResult) -> str:
    size_text = f"{many(ranking.documents, 'document')} and {many(ranking.links, 'link')} of state {state.name}"
    return f"{size_text}, {many(ranking.turns, 'turn')}, {many(ranking.changed, 'weight')} changed"


def _report(ranking: RankResult, top: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("rows", "documents", "buckets", "links", "unknown", "dangling", "turns", "change", "changed")
    return {name: getattr(ranking, name) for name in names} | {"weights": ranking.weights.tolist(), "top": top}


def _spread(ranking: RankResult) -> Iterator[str]:
    """Documents by weight, as `shep stats` shows them."""
    width = (1 << 16) // len(ranking.weights)
    counts = [(place * width, count) for place, count in enumerate(ranking.weights.tolist()) if count]
    rows = [
        (f"{low:,}", f"{low + width - 1:,}", f"{count:,}", f"{100 * count / ranking.documents:.1f} %") for low, count in counts
    ]
    yield from console_rows.table((">from", ">to", ">documents", ">share"), rows)


def _best(top: list[dict[str, Any]]) -> Iterator[str]:
    rows = [(f"{document['times_mean']:,.1f}", document["weight"], document["weight_now"], document["url"]) for document in top]
    yield from console_rows.table((">times the mean", ">weight", ">now", "URL"), rows)


def main() -> None:
    common.run(command)
