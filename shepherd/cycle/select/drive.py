"""Drives select: N.merged or N.equiv becomes N.selected; only types and reasons change (docs/cycle.md, "How select decides").

The survey of all partitions comes first; then the limits are settled in their order, each by as many passes over what the survey
has put aside as its bars need: none where nothing is above the limit.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shepherd.arrays.grouping import OneGroup
from shepherd.arrays.partitions import Tick, whole_norms
from shepherd.arrays.pool import ordered, tasks
from shepherd.arrays.spill import Spill
from shepherd.arrays.thresholds import NO_BAR
from shepherd.config import Config
from shepherd.cycle.common.limits import limits_version
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.select import placement as place
from shepherd.cycle.select import rules as select
from shepherd.cycle.select import survey
from shepherd.cycle.select.passes import ByGroups, Candidates, Contest, PlacedRows, SelectPasses, Totals
from shepherd.cycle.select.placement import Place, mark
from shepherd.cycle.select.rules import CrowdedGroups, SelectedRows
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
        builder.change(selection=limits_version(config))
        report = {"phase": "select", **counts}
        if select.too_many_lost(counts["gathered lost"], counts["gathered"], config.select) and not force:
            if not writer.is_dry_run:
                raise UsageError(_brake(counts, config))
            report["stopped by most_lost"] = 1
        return writer.publish(builder, report)
    finally:
        builder.close()


def _brake(counts: dict[str, Any], config: Config) -> str:
    lost_count, gathered = counts["gathered lost"], counts["gathered"]
    return (
        f"{lost_count} of {gathered} gathered documents would be lost; [select] most_lost allows {config.select.most_lost} "
        "percent; nothing was changed. Look at the limits and weights (shep-select --dry-run lists the reasons), or use --force"
    )


def _select(state: State, builder: Builder, config: Config, tick: Tick, jobs: int, rehearsing: bool) -> dict[str, Any]:
    ranges = list(whole_norms(state.index, config.store.partition_rows))
    limits = server_limits(state.servers.slice(0, state.servers.rows), config.select, config.plan)
    with contextlib.ExitStack() as stack:

        def new_spill() -> Spill:
            return stack.enter_context(Spill(builder.scratch))

        sites = SitesOf(new_spill(), state, ranges, limits, config.store.partition_rows, jobs)
        passes = SelectPasses(state, config, ranges, sites, new_spill, jobs)
        totals = passes.survey()
        totals = _hard_limits(passes, totals, limits, config)
        _soft_limits(passes, totals, limits, config)
        return _write(passes, _totals(passes, totals, config), builder, tick, rehearsing)


# --- the limits, in the order in which they strike ---------------------------------------------------------------


def may_be_limited(rows: PlacedRows, part: int) -> Bools:
    return place.may_be_limited(rows.place(part))


def staying(rows: PlacedRows, part: int) -> Bools:
    return place.stays(rows.place(part))


@dataclass(frozen=True)
class GroupBars:
    """Servers or sections that are above their limit, and the bar of each."""

    groups: ByGroups
    bars: I64

    def behind(self, state: State, rows: PlacedRows, part: int, candidates: Bools) -> Bools:
        """The candidates that do not fit."""
        return rows.behind(part, candidates, self.groups(state, rows, part), self.bars)


@dataclass(frozen=True)
class HardLimits:
    """The places after the hard limits of servers and sections, where any is above its own."""

    servers: GroupBars | None
    sections: GroupBars | None

    def __call__(self, state: State, rows: PlacedRows, part: int) -> U8:
        candidates, places = may_be_limited(rows, part), rows.place(part)
        if self.servers:
            places = np.maximum(places, mark(self.servers.behind(state, rows, part, candidates), Place.SERVER_HARD))
        if self.sections:
            rejected = self.sections.behind(state, rows, part, candidates) & ~place.is_out(places)
            places = np.maximum(places, mark(rejected, Place.SECTION_HARD))
        return places


@dataclass(frozen=True)
class SoftLimit:
    """The places after the soft limit of servers or sections."""

    group_bars: GroupBars
    rejected_by: Place

    def __call__(self, state: State, rows: PlacedRows, part: int) -> U8:
        return rows.place(part) | mark(self.group_bars.behind(state, rows, part, staying(rows, part)), self.rejected_by)


def _hard_limits(passes: SelectPasses, totals: Totals, limits: ServerCapacities, config: Config) -> Totals:
    """Servers and sections look at the same rows: those that the hard limits of sites leave. What counts below the soft ones."""
    most = select.section_limits(config.sections, config.select.hard_factor)
    servers = select.crowded(totals.server.sum(axis=0)[:-1], limits.hard, totals.server[EXEMPT, :-1])
    sections = select.crowded(totals.section.sum(axis=0), most, totals.section[EXEMPT])
    if not len(servers) and not len(sections):
        return totals
    rule = HardLimits(
        _bars(passes, servers, True, may_be_limited) if len(servers) else None,
        _bars(passes, sections, False, may_be_limited) if len(sections) else None,
    )
    return passes.settle_hard(rule, totals)


def _soft_limits(passes: SelectPasses, totals: Totals, limits: ServerCapacities, config: Config) -> None:
    """Servers, then sections; those of sites were settled by the survey."""
    most = select.section_limits(config.sections)
    servers, sections = totals.server[:, :-1], totals.section
    crowded_servers = select.crowded(servers[STAY] + servers[EXEMPT], limits.soft, servers[EXEMPT])
    if len(crowded_servers):
        passes.settle(SoftLimit(_bars(passes, crowded_servers, True, staying), Place.SERVER_SOFT))
    crowded_sections = select.crowded(sections[STAY] + sections[EXEMPT], most, sections[EXEMPT])
    if len(crowded_sections):
        passes.settle(SoftLimit(_bars(passes, crowded_sections, False, staying), Place.SECTION_SOFT))


def _bars(passes: SelectPasses, groups: CrowdedGroups, by_server: bool, candidates: Candidates) -> GroupBars:
    by_groups = ByGroups(groups, by_server)
    return GroupBars(by_groups, passes.find_bars(groups.room, Contest(candidates, by_groups)))


# --- the totals --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastBars:
    """The last two bars: of gathering, with the reason of what is behind it, and of sleeping."""

    bar: int
    rejected_by: Place
    sleep_bar: int = NO_BAR

    def before_sleep(self, rows: PlacedRows, part: int) -> U8:
        places = rows.place(part)
        return places | mark(_behind_all(rows, part, place.stays(places), self.bar), self.rejected_by)

    def places(self, rows: PlacedRows, part: int) -> U8:
        places = self.before_sleep(rows, part)
        below = _behind_all(rows, part, place.sleeps(places), self.sleep_bar)
        return select.keep_robots(np.maximum(places, mark(below, Place.BELOW_SLEEP)), rows.surveyed(part).site)


@dataclass(frozen=True)
class AsleepNow:
    """The rows that sleep once the bar of gathering is known."""

    gathering_verdict: LastBars

    def __call__(self, rows: PlacedRows, part: int) -> Bools:
        return place.sleeps(self.gathering_verdict.before_sleep(rows, part))


def _behind_all(rows: PlacedRows, part: int, candidates: Bools, bar: int) -> Bools:
    if bar == NO_BAR:
        return np.zeros(len(candidates), np.bool_)
    return rows.behind(part, candidates, OneGroup(), np.array([bar], np.int64))


def _bytes_needed(state: State, rows: PlacedRows, part: int, which: I64) -> I64:
    return survey.cost(state.index.slice(*rows.ranges[part], survey.OF_COST), which, rows.settings)


def _totals(passes: SelectPasses, totals: Totals, config: Config) -> LastBars:
    stay, sleep, exempt = totals.rows.tolist()
    room = select.most_gathered(config.select, config.plan, passes.state.control.speed) - exempt
    verdict = LastBars(_one_bar(passes, room, Contest(staying)) if stay > room else NO_BAR, Place.BELOW_BAR)
    if select.has_space_limit(config):
        bar = _one_bar(passes, _room_for_bodies(totals, config), Contest(staying, cost=_bytes_needed))
        verdict = LastBars(bar, Place.SPACE) if bar < verdict.bar else verdict
    if stay + sleep <= config.select.sleeping:
        return verdict
    return replace(verdict, sleep_bar=_one_bar(passes, config.select.sleeping, Contest(AsleepNow(verdict))))


def _room_for_bodies(totals: Totals, config: Config) -> int:
    """What a cleanup would drop is not gathered first: its limit counts here, too, for all that needs room."""
    bodies, segments = config.select.space_bytes, config.cleanup.size_bytes
    rooms = [bodies - totals.bytes_.exempt] if bodies else []
    rooms += [segments - totals.bytes_.exempt - totals.bytes_.aside] if segments else []
    return min(rooms)


def _one_bar(passes: SelectPasses, room: int, contest: Contest) -> int:
    return int(passes.find_bars(np.array([room], np.int64), contest)[0])


# --- the result --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _WritePass:
    rows: PlacedRows
    verdict: LastBars
    rehearsing: bool


def _assign(state: State, shared: _WritePass, part: int) -> tuple[SelectedRows, I64]:
    index = state.index.slice(*shared.rows.ranges[part], select.READ)
    selected = select.assign(index, shared.verdict.places(shared.rows, part), state=state.number)
    return selected, select.became(index, selected) if shared.rehearsing else select.nothing_became()


def _write(passes: SelectPasses, verdict: LastBars, builder: Builder, tick: Tick, rehearsing: bool) -> dict[str, Any]:
    """A rehearsal also counts what each type becomes: otherwise the next state can be compared with the last."""
    counts, slept, forgotten, became = Counter[str](), Counter[str](), Counter[str](), select.nothing_became()
    ranges, shared = passes.rows.ranges, _WritePass(passes.rows, verdict, rehearsing)
    work = tasks(_assign, passes.state, shared, range(len(ranges)))
    table = builder.table("index", select.CHANGED)
    for (start, stop), (selected, types) in zip(ranges, ordered(work, passes.jobs), strict=True):
        became += types
        table.append(dict(selected.columns))
        counts.update(selected.counts)
        slept.update(selected.slept)
        forgotten.update(selected.forgotten)
        tick(stop - start)
    builder.finish_table(table)
    report = {**counts, "asleep by reason": dict(slept), "forgotten by reason": dict(forgotten)}
    return report | (select.types_report(became) if rehearsing else {})
