"""Drives select: N.merged or N.equiv becomes N.selected; only types and reasons change (docs/cycle.md, "How select decides").

The survey of all partitions comes first; then the limits are settled in their order, each by as many passes over what the survey
has put aside as its bars need: none where nothing is above the limit.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shepherd.batch.aside import Aside
from shepherd.batch.board import Board, Totals
from shepherd.batch.partitions import Tick, whole_norms
from shepherd.batch.pool import ordered
from shepherd.batch.sitesof import SitesOf
from shepherd.config import Config
from shepherd.errors import NothingToDo, UsageError
from shepherd.formats.tables import I64, TABLES, U8, Bools
from shepherd.phases import select, survey
from shepherd.phases.bars import NO_BAR, Members
from shepherd.phases.select import Groups, Selected
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

        def new() -> Aside:
            return stack.enter_context(Aside(builder.scratch))

        sites = SitesOf(new(), state, ranges, limits, config.store.partition_rows, jobs)
        board = Board(state, config, ranges, sites, new, jobs)
        totals = board.survey()
        if _hard_limits(board, totals, limits, config):
            totals = board.survey(again=True)  # what they strike takes no room below the soft limits
        _soft_limits(board, totals, limits, config)
        return _write(board, _totals(board, totals, config), builder, tick, jobs)


# --- the limits, in the order in which they strike ---------------------------------------------------------------


def _hard_limits(board: Board, totals: Totals, limits: ServerLimits, config: Config) -> bool:
    """Servers and sections look at the same rows: those that the hard limits of sites leave. Whether any is over its limit."""
    servers = select.crowded(totals.server[0], totals.server[2], limits.hard)
    most = select.section_limits(config.sections, config.select.hard_factor)
    sections = select.crowded(totals.section[0], totals.section[2], most)

    def living(part: int) -> Bools:
        place = board.place(part)
        return np.asarray((place == Place.STAY) | survey.sleeps(place))

    of_server = _find(board, servers, True, living)
    of_section = _find(board, sections, False, living)

    def places(part: int) -> U8:
        candidates, place = living(part), board.place(part).copy()
        place[_behind(board, part, candidates, sections, of_section, False)] = Place.SECTION_HARD
        place[_behind(board, part, candidates, servers, of_server, True)] = Place.SERVER_HARD
        return place

    if len(servers) or len(sections):
        board.settle(places)
        return True
    return False


def _soft_limits(board: Board, totals: Totals, limits: ServerLimits, config: Config) -> None:
    """Servers, then sections; those of sites were settled by the survey."""
    most = select.section_limits(config.sections)
    for count, limit, by_server, struck in (
        (totals.server, limits.soft, True, Place.SERVER_SOFT),
        (totals.section, most, False, Place.SECTION_SOFT),
    ):
        _settle(board, select.crowded(count[1], count[2], limit), by_server, struck)


def _settle(board: Board, groups: Groups, by_server: bool, struck: Place) -> None:
    if not len(groups):
        return

    def staying(part: int) -> Bools:
        return np.asarray(board.place(part) == Place.STAY)

    bars = _find(board, groups, by_server, staying)

    def places(part: int) -> U8:
        behind = _behind(board, part, staying(part), groups, bars, by_server)
        return np.where(behind, np.uint8(struck), board.place(part))

    board.settle(places)


def _find(board: Board, groups: Groups, by_server: bool, candidates: Callable[[int], Bools]) -> I64:
    def members(part: int) -> Members:
        group = board.group(part, groups, by_server)
        return board.members(part, candidates(part) & (group >= 0), group)

    return board.find_bars(groups.room, members) if len(groups) else np.zeros(0, np.int64)


def _behind(board: Board, part: int, candidates: Bools, groups: Groups, bars: I64, by_server: bool) -> Bools:
    found = board.surveyed(part)
    if by_server:
        bar = select.bars_of_runs(bars, groups, found.run_server, found.run_rows, board.bits)
    else:
        section = board.state.index["section"][slice(*board.ranges[part])]
        bar = select.bars_of_sections(bars, groups, section, board.bits)
    return select.behind(candidates, found.key, board.ranges[part][0], bar)


# --- the totals --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The last two bars: of gathering, with the reason of what is behind it, and of sleeping."""

    bar: int
    tight: Place
    sleep_bar: int = NO_BAR

    def before_sleep(self, board: Board, part: int) -> U8:
        place = board.place(part)
        behind = _behind_all(board, part, place == Place.STAY, self.bar)
        return np.where(behind, np.uint8(self.tight), place)

    def places(self, board: Board, part: int) -> U8:
        place = self.before_sleep(board, part)
        place[_behind_all(board, part, survey.sleeps(place), self.sleep_bar)] = Place.BELOW_SLEEP
        found = board.surveyed(part)
        return select.keep_robots(place, found.run_rows, found.run_site)


def _behind_all(board: Board, part: int, candidates: Bools, bar: int) -> Bools:
    if bar == NO_BAR:
        return np.zeros(len(candidates), np.bool_)
    return select.behind(candidates, board.surveyed(part).key, board.ranges[part][0], select.one_bar(bar, board.bits))


def _totals(board: Board, totals: Totals, config: Config) -> Verdict:
    living, stay, exempt = totals.section.sum(axis=1).tolist()
    room = select.most_gathered(config.select, config.plan, board.state.control.speed) - exempt

    def staying(part: int) -> Members:
        return board.members(part, board.place(part) == Place.STAY)

    def needing(part: int) -> Members:
        mask = board.place(part) == Place.STAY
        index = board.state.index.slice(*board.ranges[part], survey.OF_COST)
        return board.members(part, mask, amount=survey.cost(index, mask, config.select))

    verdict = Verdict(_one_bar(board, room, staying) if stay > room else NO_BAR, Place.BELOW_BAR)
    if config.select.space_bytes:
        bar = _one_bar(board, config.select.space_bytes - totals.exempt_bytes, needing)
        verdict = Verdict(bar, Place.SPACE) if bar < verdict.bar else verdict
    if living <= config.select.sleeping:
        return verdict
    awake = verdict

    def drowsy(part: int) -> Members:
        return board.members(part, survey.sleeps(awake.before_sleep(board, part)))

    return replace(verdict, sleep_bar=_one_bar(board, config.select.sleeping, drowsy))


def _one_bar(board: Board, room: int, members: Callable[[int], Members]) -> int:
    return int(board.find_bars(np.array([room], np.int64), members)[0])


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
