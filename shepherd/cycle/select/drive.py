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

from shepherd.arrays.grouping import Grouping, Together
from shepherd.arrays.partitions import Tick, whole_norms
from shepherd.arrays.pool import ordered
from shepherd.arrays.spill import Aside
from shepherd.arrays.thresholds import NO_BAR
from shepherd.config import Config
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.select import placement as place
from shepherd.cycle.select import rules as select
from shepherd.cycle.select import survey
from shepherd.cycle.select.passes import Board, Cost, Totals
from shepherd.cycle.select.placement import Place, mark
from shepherd.cycle.select.rules import Groups, Selected
from shepherd.cycle.select.server_capacity import ServerCapacities, server_limits
from shepherd.cycle.select.site_settings import SitesOf
from shepherd.errors import UsageError
from shepherd.formats.tables import I64, TABLES, U8, Bools
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State

READABLE = ("merged", "equiv")
STAY, SLEEP, EXEMPT = range(3)  # the lines of totals


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1, *, force: bool = False) -> State:
    """`force` lets go however many gathered documents."""
    state = writer.furthest()
    if state.name.phase not in READABLE and not (writer.is_dry_run and state.name.closed):
        raise not_now(state, "nothing has been merged")
    builder = writer.build(state, StateName(state.number + state.name.closed, "selected"), now)
    try:
        counts = _select(state, builder, config, tick, jobs, writer.is_dry_run)
        builder.keep_table("index", select.CHANGED)
        for name in TABLES:
            if name != "index":
                builder.keep_table(name)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        report = {"phase": "select", **counts}
        if select.too_many_lost(counts["gathered lost"], counts["gathered"], config.select) and not force:
            if not writer.is_dry_run:
                raise UsageError(_brake(counts, config))
            report["stopped by most_lost"] = 1
        return writer.publish(builder, report)
    finally:
        builder.close()


def _brake(counts: dict[str, Any], config: Config) -> str:
    lost, gathered = counts["gathered lost"], counts["gathered"]
    return (
        f"{lost} of {gathered} gathered documents would be lost; [select] most_lost allows {config.select.most_lost} percent; "
        "nothing was changed. Look at the limits and weights (shep-select --dry-run lists the reasons), or use --force"
    )


def _select(state: State, builder: Builder, config: Config, tick: Tick, jobs: int, rehearsing: bool) -> dict[str, Any]:
    ranges = list(whole_norms(state.index, config.store.partition_rows))
    limits = server_limits(state.servers.slice(0, state.servers.rows), config.select, config.plan)
    with contextlib.ExitStack() as stack:

        def new() -> Aside:
            return stack.enter_context(Aside(builder.scratch))

        sites = SitesOf(new(), state, ranges, limits, config.store.partition_rows, jobs)
        board = Board(state, config, ranges, sites, new, jobs)
        totals = board.survey()
        totals = _hard_limits(board, totals, limits, config)
        _soft_limits(board, totals, limits, config)
        return _write(board, _totals(board, totals, config), builder, tick, jobs, rehearsing)


# --- the limits, in the order in which they strike ---------------------------------------------------------------


def _hard_limits(board: Board, totals: Totals, limits: ServerCapacities, config: Config) -> Totals:
    """Servers and sections look at the same rows: those that the hard limits of sites leave. What counts below the soft ones."""
    most = select.section_limits(config.sections, config.select.hard_factor)
    servers = select.crowded(totals.server.sum(axis=0)[:-1], limits.hard, totals.server[EXEMPT, :-1])
    sections = select.crowded(totals.section.sum(axis=0), most, totals.section[EXEMPT])
    if not len(servers) and not len(sections):
        return totals

    def living(part: int) -> Bools:
        return place.living(board.place(part))

    of_server, over_server = _bars(board, servers, True, living)
    of_section, over_section = _bars(board, sections, False, living)

    def places(part: int) -> U8:
        candidates, found = living(part), board.place(part)
        if len(servers):
            found = np.maximum(found, mark(board.behind(part, candidates, of_server(part), over_server), Place.SERVER_HARD))
        if len(sections):
            struck = board.behind(part, candidates, of_section(part), over_section) & ~place.is_out(found)
            found = np.maximum(found, mark(struck, Place.SECTION_HARD))
        return found

    return board.settle_hard(places, totals)


def _soft_limits(board: Board, totals: Totals, limits: ServerCapacities, config: Config) -> None:
    """Servers, then sections; those of sites were settled by the survey."""
    most = select.section_limits(config.sections)
    servers, sections = totals.server[:, :-1], totals.section
    crowded_servers = select.crowded(servers[STAY] + servers[EXEMPT], limits.soft, servers[EXEMPT])
    _settle(board, crowded_servers, True, Place.SERVER_SOFT)
    crowded_sections = select.crowded(sections[STAY] + sections[EXEMPT], most, sections[EXEMPT])
    _settle(board, crowded_sections, False, Place.SECTION_SOFT)


def _settle(board: Board, groups: Groups, by_server: bool, struck: Place) -> None:
    if not len(groups):
        return

    def staying(part: int) -> Bools:
        return place.stays(board.place(part))

    grouping, bars = _bars(board, groups, by_server, staying)

    def places(part: int) -> U8:
        return board.place(part) | mark(board.behind(part, staying(part), grouping(part), bars), struck)

    board.settle(places)


def _bars(
    board: Board, groups: Groups, by_server: bool, candidates: Callable[[int], Bools]
) -> tuple[Callable[[int], Grouping], I64]:
    """How the rows of a partition are grouped, and the bars of the groups."""

    def grouping(part: int) -> Grouping:
        return board.grouping(part, groups, by_server)

    return grouping, board.find_bars(groups.room, candidates, grouping) if len(groups) else np.zeros(0, np.int64)


# --- the totals --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The last two bars: of gathering, with the reason of what is behind it, and of sleeping."""

    bar: int
    tight: Place
    sleep_bar: int = NO_BAR

    def before_sleep(self, board: Board, part: int) -> U8:
        found = board.place(part)
        return found | mark(_behind_all(board, part, place.stays(found), self.bar), self.tight)

    def places(self, board: Board, part: int) -> U8:
        found = self.before_sleep(board, part)
        found = np.maximum(found, mark(_behind_all(board, part, place.sleeps(found), self.sleep_bar), Place.BELOW_SLEEP))
        return select.keep_robots(found, board.surveyed(part).site)


def _behind_all(board: Board, part: int, candidates: Bools, bar: int) -> Bools:
    if bar == NO_BAR:
        return np.zeros(len(candidates), np.bool_)
    return board.behind(part, candidates, Together(), np.array([bar], np.int64))


def _totals(board: Board, totals: Totals, config: Config) -> Verdict:
    stay, sleep, exempt = totals.rows.tolist()
    room = select.most_gathered(config.select, config.plan, board.state.control.speed) - exempt

    def staying(part: int) -> Bools:
        return place.stays(board.place(part))

    def cost(part: int, rows: I64) -> I64:
        return survey.cost(board.state.index.slice(*board.ranges[part], survey.OF_COST), rows, config.select)

    verdict = Verdict(_one_bar(board, room, staying) if stay > room else NO_BAR, Place.BELOW_BAR)
    if config.select.space_bytes:
        bar = _one_bar(board, config.select.space_bytes - totals.exempt_bytes, staying, cost)
        verdict = Verdict(bar, Place.SPACE) if bar < verdict.bar else verdict
    if stay + sleep <= config.select.sleeping:
        return verdict
    awake = verdict

    def drowsy(part: int) -> Bools:
        return place.sleeps(awake.before_sleep(board, part))

    return replace(verdict, sleep_bar=_one_bar(board, config.select.sleeping, drowsy))


def _one_bar(board: Board, room: int, candidates: Callable[[int], Bools], cost: Cost = None) -> int:
    return int(board.find_bars(np.array([room], np.int64), candidates, lambda _: Together(), cost)[0])


# --- the result --------------------------------------------------------------------------------------------------


def _write(board: Board, verdict: Verdict, builder: Builder, tick: Tick, jobs: int, rehearsing: bool) -> dict[str, Any]:
    """A rehearsal also tells what each type becomes: otherwise the next state can be compared with the last."""
    state, counts = board.state, Counter[str]()
    slept, forgotten, became = Counter[str](), Counter[str](), select.nothing_became()

    def one(part: int) -> tuple[Selected, I64]:
        index = state.index.slice(*board.ranges[part], select.READ)
        selected = select.assign(index, verdict.places(board, part), state=state.number)
        return selected, select.became(index, selected) if rehearsing else select.nothing_became()

    table = builder.table("index", select.CHANGED)
    for (start, stop), (selected, types) in zip(board.ranges, ordered(one, range(len(board.ranges)), jobs), strict=True):
        became += types
        table.append(dict(selected.columns))
        counts.update(selected.counts)
        slept.update(selected.slept)
        forgotten.update(selected.forgotten)
        tick(stop - start)
    builder.finish_table(table)
    told = {**counts, "asleep by reason": dict(slept), "forgotten by reason": dict(forgotten)}
    return told | (select.told_types(became) if rehearsing else {})
