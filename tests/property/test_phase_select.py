"""Select against a plain sort, and its laws."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd import config
from shepherd.formats.tables import INDEX, NO_LIMIT, SACRED, SITES, Flag, Reason, RowType
from shepherd.phases import select
from tests.property.phase_rows import Row, columns, index_rows, rows_of, site_rows

ROOM = st.sampled_from([0, 1, 2, 3, 5, 8, 1_000])
STATE = 9


def make_config(gathered: int, sleeping: int, soft: int, extra: int) -> config.Select:
    return config.Select(gathered=gathered, sleeping=sleeping, site_soft=soft, site_hard=soft + extra)


CONFIGS = st.builds(make_config, ROOM, ROOM, st.integers(0, 4), st.integers(0, 3))


def limits_of(norm: int, sites: list[Row], limits: config.Select) -> tuple[int, int]:
    softs, hards = [], []
    for site in (site for site in sites if site["norm"] == norm):
        softs.append(limits.site_soft if site["soft_limit"] == NO_LIMIT else site["soft_limit"])
        hards.append(max(limits.site_hard if site["hard_limit"] == NO_LIMIT else site["hard_limit"], softs[-1]))
    return max(softs), max(hards)


def naive_select(index: list[Row], sites: list[Row], limits: config.Select) -> list[Row]:
    living = [number for number, row in enumerate(index) if row["type"] != RowType.FORGOTTEN]
    exempt = {number for number in living if index[number]["flags"] & SACRED}
    by_weight = sorted(living, key=lambda number: (number not in exempt, -index[number]["weight"], number))
    over_soft, over_hard = set(), set()
    for norm in {index[number]["norm"] for number in living}:
        soft, hard = limits_of(norm, sites, limits)
        members = [number for number in by_weight if index[number]["norm"] == norm]
        over_hard |= set(members[hard:]) - exempt
        over_soft |= set(members[soft:hard]) - exempt
    stay = [number for number in by_weight if number not in over_soft | over_hard]
    awake = set(stay[: max(limits.gathered, len(exempt))]) | exempt
    below = set(stay) - awake
    competing = sorted(below | over_soft, key=lambda number: (-index[number]["weight"], number))
    asleep = set(competing[: limits.sleeping])
    result = []
    for number, row in enumerate(index):
        new = dict(row)
        if number in awake and row["type"] == RowType.SLEEPING:
            body = row["digest"] and row["gathered"] and row["oid"] < 2**63
            new["type"] = RowType.GATHERED if body else RowType.UNGATHERED
            new["reason"] = Reason.GATHERED if body else Reason.INSERTED if row["flags"] & Flag.INITIAL else Reason.LINK
        elif number in asleep:
            new["type"], new["reason"] = RowType.SLEEPING, Reason.BELOW_BAR if number in below else Reason.SITE_SOFT
        elif number in living and number not in awake:
            new["type"], new["reason"] = RowType.FORGOTTEN, Reason.SITE_HARD if number in over_hard else Reason.BELOW_SLEEP
        if new != row:
            new["touched"] = STATE
        result.append(new)
    return result


def run(index: list[Row], sites: list[Row], limits: config.Select, cut: int) -> list[Row]:
    of_norm = select.norm_limits(columns(SITES, sites), limits)
    norms = sorted({row["norm"] for row in index})
    parts = [[row for row in index if row["norm"] in norms[first : first + cut]] for first in range(0, len(norms), cut)]
    slices = [columns(INDEX, part) for part in parts]
    ranked = [select.rank_sites(part, of_norm, limits) for part in slices]
    zero = np.zeros(select.WEIGHTS, np.int64)
    bars = select.bars(
        sum((one.stay for one in ranked), zero),
        sum((one.sleep for one in ranked), zero),
        sum(one.exempt for one in ranked),
        limits,
    )
    result: list[Row] = []
    for part, one in zip(slices, ranked, strict=True):
        chosen = select.assign(part, one, bars, state=STATE)
        result += rows_of(part | dict(chosen.columns))
        bars = select.ties_left(bars, one)
    return result


@given(index_rows(), site_rows(), CONFIGS, st.integers(1, 3))
def test_select_is_what_a_plain_sort_takes(index: list[Row], sites: list[Row], limits: config.Select, cut: int) -> None:
    assert run(index, sites, limits, cut) == naive_select(index, sites, limits)


@given(index_rows(), site_rows(), CONFIGS)
def test_no_limit_is_exceeded_and_no_better_row_goes_for_a_worse(
    index: list[Row], sites: list[Row], limits: config.Select
) -> None:
    common = [row for row in run(index, sites, limits, 1) if not row["flags"] & SACRED]
    awake = [row for row in common if row["type"] not in (RowType.SLEEPING, RowType.FORGOTTEN)]
    asleep = [row for row in common if row["type"] == RowType.SLEEPING]
    exempt = sum(bool(row["flags"] & SACRED) and row["type"] != RowType.FORGOTTEN for row in index)
    assert len(awake) <= max(limits.gathered - exempt, 0)
    assert len(asleep) <= limits.sleeping
    for norm in {row["norm"] for row in index}:
        soft, hard = limits_of(norm, sites, limits)
        mine = [row for row in awake if row["norm"] == norm]
        dozing = [row for row in asleep if row["norm"] == norm]
        assert len(mine) <= soft
        assert len(mine) + len(dozing) <= hard
        newly_out = [
            row
            for row, old in zip(run(index, sites, limits, 1), index, strict=True)
            if row["norm"] == norm and row["type"] == RowType.FORGOTTEN != old["type"]
        ]
        if mine and dozing:
            assert min(row["weight"] for row in mine) >= max(row["weight"] for row in dozing)
        if dozing and newly_out:
            assert min(row["weight"] for row in dozing) >= max(row["weight"] for row in newly_out)


@given(index_rows(), site_rows(), CONFIGS)
def test_select_of_select_changes_nothing(index: list[Row], sites: list[Row], limits: config.Select) -> None:
    once = run(index, sites, limits, 3)
    assert run(once, sites, limits, 3) == once
