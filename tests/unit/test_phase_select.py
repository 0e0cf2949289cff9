from __future__ import annotations

import numpy as np
import pytest

from shepherd import config
from shepherd.formats.tables import INDEX, SITES, Array, Flag, Reason, RowType, empty
from shepherd.phases import select


def make_index(weights: list[int], type_: RowType = RowType.UNGATHERED) -> dict[str, Array]:
    index = empty(INDEX, len(weights))
    index["norm"][:] = 1
    index["path"] = np.arange(len(weights), dtype=np.uint64)
    index["weight"] = np.array(weights, np.uint16)
    index["type"][:] = type_
    return index


def run(index: dict[str, Array], limits: config.Select) -> select.Selected:
    ranked = select.rank_sites(index, select.norm_limits(empty(SITES), limits), limits)
    return select.assign(index, ranked, select.bars(ranked.stay, ranked.sleep, ranked.exempt, limits), state=5)


@pytest.mark.parametrize("room", [3, 4, 1_000_000])
def test_room_for_more_than_there_is_keeps_everything(room: int) -> None:
    selected = run(make_index([0, 65_535, 7]), config.Select(gathered=room, sleeping=room))
    assert selected.columns["type"].tolist() == [RowType.UNGATHERED] * 3
    assert not selected.columns["touched"].any()


def test_ties_at_the_bar_do_not_keep_one_row_too_many() -> None:
    selected = run(make_index([5] * 6), config.Select(gathered=2, sleeping=3))
    assert selected.columns["type"].tolist() == [RowType.UNGATHERED] * 2 + [RowType.SLEEPING] * 3 + [RowType.FORGOTTEN]
    assert selected.columns["reason"].tolist()[2:] == [Reason.BELOW_BAR] * 3 + [Reason.BELOW_SLEEP]


def test_a_woken_row_with_a_body_is_gathered_and_not_fetched_again() -> None:
    index = make_index([5, 5], RowType.SLEEPING)
    index["digest"][0], index["gathered"][0], index["oid"][0] = 77, 1_000, 5
    selected = run(index, config.Select())
    assert selected.columns["type"].tolist() == [RowType.GATHERED, RowType.UNGATHERED]


def test_an_exempt_row_stays_whatever_its_weight_and_counts() -> None:
    index = make_index([0, 9, 8])
    index["flags"][0] = Flag.PINNED
    selected = run(index, config.Select(gathered=2, sleeping=0, site_soft=2, site_hard=2))
    assert selected.columns["type"].tolist() == [RowType.UNGATHERED, RowType.UNGATHERED, RowType.FORGOTTEN]
    assert selected.columns["reason"][2] == Reason.SITE_HARD


def test_an_empty_index_has_no_bar() -> None:
    assert run(make_index([]), config.Select(gathered=0, sleeping=0)).counts["stay"] == 0
