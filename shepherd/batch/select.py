"""Drives select: N.merged or N.equiv becomes N.selected; only types and reasons change (docs/cycle.md, "How select decides").

The survey of all partitions comes first; then the limits are settled in their order, each by as many passes over what the survey
has put aside as its bars need: none where nothing is above the limit.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shepherd.batch.aside import Aside
from shepherd.batch.board import Board, Members, Strike, Totals
from shepherd.batch.partitions import Tick, whole_norms
from shepherd.batch.pool import ordered
from shepherd.batch.sitesof import SitesOf
from shepherd.config import Config
from shepherd.errors import NothingToDo, UsageError
from shepherd.formats.tables import I64, TABLES, U8, Bools
from shepherd.phases import select, survey
from shepherd.phases.bars import NO_BAR
from shepherd.phases.select import Selected
from shepherd.phases.serverlimits import ServerLimits, server_limits
from shepherd.phases.survey import Place
from shepherd.store import names
from shepherd.store.database import Writer
from shepherd.store.names import StateName
from shepherd.store.state import Builder, State

READABLE = ("merged", "equiv")


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1, *, force: bool = False) -> State:
    """`force` lets go however many gathered documents."""
    state = writer.furthest()
    if state.name.phase not in READABLE and not (writer.rehearsing and state.name.closed):
        raise NothingToDo(f"nothing has been merged (the newest state is {state.name})")
    builder = writer.build(state, StateName(state.number, "selected"), now)
    try:
        counts = _select(state, builder, config, tick, jobs)
        builder.keep_table("index", select.CHANGED)
        for name in TABLES:
            if name != "index":
                builder.keep_table(name)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        report = {"phase": "select", **counts}
        if select.too_many_lost(counts["gathered lost"], counts["gathered"], config.select) and not force:
            if not writer.rehearsing:
                raise UsageError(_brake(counts, config))
            report["stopped by most_lost"] = 1
        return writer.publish(builder, report)
    finally:
        builder.close()


def _brake(counts: dict[str, Any], config: Config) -> str:
    lost, gathered = counts["gathered lost"], counts["gathered"]
    return (
        f"{lost} of {gathered} gathered documents would be lost; [select] most_lost allows {config.select.most_lost} percent; "
        "nothing was changed. Look at the limits and weights (shep-select --dry-run tells the reasons), or use --force"
    )


def _select(state: State, builder: Builder, config: Config, tick: Tick, jobs: int) -> dict[str, Any]:
    ranges = list(whole_norms(state.index, config.store.partition_rows))
    limits = server_limits(state.servers.slice(0, state.servers.rows), config.select, config.plan)
    with contextlib.ExitStack() as stack:
        asides = [stack.enter_context(Aside(builder.scratch)) for _ in range(3)]
        sites = SitesOf(asides[0], state, ranges, limits, config.store.partition_rows, jobs)
        board = Board(state, config, ranges, sites, asides[1], jobs)
        totals = board.survey()
        out = _hard_limits(board, totals, limits, config)
        if out:  # what they strike takes no room below the soft limits, so these are settled without it
            first, board = board, Board(state, config, ranges, sites, asides[2], jobs)
            totals = board.survey(lambda part: _struck(first, part, out))
        verdict = _soft_limits(board, totals, limits, config)
        return _write(board, verdict, builder, tick, jobs)


# --- the limits, in the order in which they strike ---------------------------------------------------------------


def _hard_limits(board: Board, totals: Totals, limits: ServerLimits, config: Config) -> list[Strike]:
    """Servers and sections look at the same rows: those that the hard limits of sites leave."""
    most = select.section_limits(config.sections, config.select.hard_factor)

    def places(part: int) -> U8:
        return _as_if_awake(board.surveyed(part).place)

    return [
        *_over(board, totals.server[[0, 2]], limits.hard, True, Place.SERVER_HARD, places),
        *_over(board, totals.section[[0, 2]], most, False, Place.SECTION_HARD, places),
    ]


def _struck(board: Board, part: int, out: list[Strike]) -> U8:
    """The places of rows that hard limits of servers and sections have struck; all others stay."""
    place = board.strike(part, _as_if_awake(board.surveyed(part).place), out)
    return np.where((place == Place.SERVER_HARD) | (place == Place.SECTION_HARD), place, np.uint8(Place.STAY))


def _as_if_awake(place: U8) -> U8:
    """Hard limits count what sleeps like what stays."""
    return np.where(survey.sleeps(place), np.uint8(Place.STAY), place)


@dataclass(frozen=True)
class Verdict:
    """All that decides about a row beside its own partition."""

    strikes: list[Strike]
    bar: int  # of gathering
    tight: Place  # what is behind it
    sleep_bar: int = NO_BAR

    def before_sleep(self, board: Board, part: int) -> U8:
        place = board.strike(part, board.surveyed(part).place, self.strikes)
        return select.strike_all(place, board.order(part), self.bar, self.tight) if self.bar < NO_BAR else place

    def places(self, board: Board, part: int) -> U8:
        place = self.before_sleep(board, part)
        if self.sleep_bar < NO_BAR:
            place = select.put_out(place, board.order(part), self.sleep_bar)
        found = board.surveyed(part)
        return select.keep_robots(place, found.run_rows, found.run_site)


def _soft_limits(board: Board, totals: Totals, limits: ServerLimits, config: Config) -> Verdict:
    strikes: list[Strike] = []

    def places(part: int) -> U8:
        return board.strike(part, board.surveyed(part).place, strikes)

    most = select.section_limits(config.sections)
    strikes += _over(board, totals.server[1:], limits.soft, True, Place.SERVER_SOFT, places)
    strikes += _over(board, totals.section[1:], most, False, Place.SECTION_SOFT, places)

    living, stay, exempt = totals.section.sum(axis=1).tolist()
    room = select.most_gathered(config.select, config.plan, board.state.control.speed) - exempt
    bar = _one_bar(board, room, lambda part: _members(board, part, places(part) == Place.STAY)) if stay > room else NO_BAR
    verdict = Verdict(strikes, bar, Place.BELOW_BAR)
    if config.select.space_bytes:
        room = config.select.space_bytes - totals.exempt_bytes
        bar = _one_bar(board, room, lambda part: _bytes(board, part, places(part) == Place.STAY, config))
        verdict = Verdict(strikes, bar, Place.SPACE) if bar < verdict.bar else verdict
    if living <= config.select.sleeping:
        return verdict
    dreaming = verdict
    bar = _one_bar(
        board,
        config.select.sleeping,
        lambda part: _members(board, part, survey.sleeps(dreaming.before_sleep(board, part))),
    )
    return replace(verdict, sleep_bar=bar)


def _over(board: Board, count: I64, limit: I64, by_server: bool, struck: Place, places: Callable[[int], U8]) -> Iterator[Strike]:
    """The strike of one kind of limit, if any group is above it. `count` is of rows, and of exempt ones."""
    groups = select.crowded(count[0], count[1], limit)
    if not len(groups):
        return

    def members(part: int) -> Members:
        group = board.group(part, groups, by_server)
        rows = np.flatnonzero((group >= 0) & (places(part) == Place.STAY))
        return group[rows], board.order(part)[rows], None

    yield Strike(groups, board.find_bars(groups.room, members), by_server, struck)


def _one_bar(board: Board, room: int, members: Callable[[int], Members]) -> int:
    return int(board.find_bars(np.array([room], np.int64), members)[0])


def _members(board: Board, part: int, taking_part: Bools) -> Members:
    return None, board.order(part)[taking_part], None


def _bytes(board: Board, part: int, taking_part: Bools, config: Config) -> Members:
    index = board.state.index.slice(*board.ranges[part], survey.OF_COST)
    return None, board.order(part)[taking_part], survey.cost(index, taking_part, config.select)


# --- the result --------------------------------------------------------------------------------------------------


def _write(board: Board, verdict: Verdict, builder: Builder, tick: Tick, jobs: int) -> dict[str, Any]:
    state, counts = board.state, Counter[str]()
    slept, forgotten = Counter[str](), Counter[str]()

    def one(part: int) -> Selected:
        index = state.index.slice(*board.ranges[part], select.READ)
        return select.assign(index, verdict.places(board, part), state=state.number)

    table = builder.table("index", select.CHANGED)
    for (start, stop), selected in zip(board.ranges, ordered(one, range(len(board.ranges)), jobs), strict=True):
        table.append(dict(selected.columns))
        counts.update(selected.counts)
        slept.update(selected.slept)
        forgotten.update(selected.forgotten)
        tick(stop - start)
    builder.finish_table(table)
    return {**counts, "asleep by reason": dict(slept), "forgotten by reason": dict(forgotten)}
