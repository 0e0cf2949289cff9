"""Select on databases small enough to see, each with one limit; the real phase, in a real directory."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from shepherd import config
from shepherd.arrays import thresholds as bars
from shepherd.config import Config
from shepherd.cycle.select import drive as select
from shepherd.errors import NothingToDo, UsageError
from shepherd.formats.tables import INDEX, NO_LIMIT, SERVERS, SITES, Flag, Reason, RowType, contrib_oid
from shepherd.sections import NAMES as SECTION_NAMES
from shepherd.sections import Section
from shepherd.store.state.dry_run import DryRun
from tests.cycle.select.select_rows import Sample, index_of, merged, run
from tests.support.random_rows import Row

HELD = {"digest": 7, "gathered": 9, "oid": 64, "type": RowType.GATHERED, "reason": Reason.GATHERED}
SLEEPING, FORGOTTEN, UNGATHERED, GATHERED = RowType.SLEEPING, RowType.FORGOTTEN, RowType.UNGATHERED, RowType.GATHERED


def row(path: int, weight: int = 5, **values: int) -> Row:
    given = {"norm": 1, "path": path, "site": 100, "weight": weight, "type": RowType.UNGATHERED, "reason": Reason.LINK, "oid": 32}
    return dict.fromkeys(INDEX, 0) | given | values


def site(number: int = 100, norm: int = 1, **values: int) -> Row:
    limits = dict.fromkeys(("soft_limit", "hard_limit", "fresh_limit"), NO_LIMIT)
    return dict.fromkeys(SITES, 0) | limits | {"site": number, "norm": norm} | values


def sample(
    index: list[Row], cf: Config, sites: list[Row] | None = None, servers: list[Row] | None = None, speed: int = 0
) -> Sample:
    return Sample(index, sites if sites is not None else [site()], servers or [], cf, speed)


def limits(**values: int) -> Config:
    return Config(select=config.Select(**({"hysteresis": 0} | values)))


def became(*args: object, **kwargs: object) -> list[tuple[int, int]]:
    return [(one["type"], one["reason"]) for one in run(sample(*args, **kwargs))]  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [3, 4, 1_000_000])
def test_room_for_more_than_there_is_keeps_everything(room: int) -> None:
    before = [row(1, 0), row(2, 65_535), row(3, 7)]
    assert run(sample(before, limits(gathered=room, sleeping=room))) == before


def test_ties_at_the_bar_do_not_keep_one_row_too_many() -> None:
    after = became([row(n) for n in range(6)], limits(gathered=2, sleeping=3))
    assert after == [(UNGATHERED, Reason.LINK)] * 2 + [(SLEEPING, Reason.BELOW_BAR)] * 3 + [(FORGOTTEN, Reason.BELOW_SLEEP)]


def test_a_woken_row_with_a_body_is_gathered_and_not_fetched_again() -> None:
    after = became([row(1, **HELD | {"type": SLEEPING}), row(2, type=SLEEPING)], Config())
    assert after == [(GATHERED, Reason.GATHERED), (UNGATHERED, Reason.LINK)]


def test_an_exempt_row_stays_whatever_its_weight_and_takes_room() -> None:
    after = became([row(1, 0, flags=Flag.PINNED), row(2, 9), row(3, 8)], limits(gathered=2, sleeping=0, site_soft=2, site_hard=2))
    assert [type_ for type_, _ in after] == [UNGATHERED, UNGATHERED, FORGOTTEN]
    assert after[2][1] == Reason.SITE_HARD


def test_an_empty_index_has_no_bar() -> None:
    assert run(sample([], limits(gathered=0, sleeping=0), [])) == []


def test_a_better_new_url_does_not_push_out_a_gathered_document_near_the_bar() -> None:
    held, new = row(1, 5, **HELD), row(2, 8)
    assert became([held, new], limits(gathered=1, hysteresis=3)) == [(GATHERED, Reason.GATHERED), (SLEEPING, Reason.BELOW_BAR)]
    assert became([held, new], limits(gathered=1, hysteresis=2)) == [(SLEEPING, Reason.BELOW_BAR), (UNGATHERED, Reason.LINK)]


def test_new_urls_are_woken_gradually() -> None:
    new = [row(n, n, oid=contrib_oid(1, n)) for n in range(1, 6)]
    first = run(sample(new, limits(fresh=2)))
    assert [one["type"] for one in first] == [SLEEPING] * 3 + [UNGATHERED] * 2
    assert {one["reason"] for one in first[:3]} == {Reason.FRESH}
    recorded = [one | {"oid": 32} for one in first]
    second = run(sample(recorded, limits(fresh=2)))
    assert [one["type"] for one in second] == [SLEEPING] + [UNGATHERED] * 4


def test_a_site_of_its_own_fresh_limit() -> None:
    new = [row(n, n, oid=contrib_oid(1, n)) for n in range(1, 4)]
    after = became(new, limits(fresh=0), [site(fresh_limit=1), site(101)])
    assert [type_ for type_, _ in after] == [SLEEPING, SLEEPING, UNGATHERED]


def test_the_robots_file_goes_with_the_last_row_of_its_site() -> None:
    """Rows of the other site of the same normalised site do not keep it."""
    index = [row(1, 9, site=101), row(7, 0, flags=Flag.ROBOTS), row(7, 0, site=101, flags=Flag.ROBOTS), row(8, 1)]
    after = became(index, limits(gathered=1, sleeping=0), [site(), site(101)])
    assert after[1] == (FORGOTTEN, Reason.SITE_EMPTY)
    assert after[2] == (UNGATHERED, Reason.LINK)
    assert became(index, limits(gathered=1, sleeping=1), [site(), site(101)])[1] == (UNGATHERED, Reason.LINK)


def test_a_crawl_delay_of_a_day_leaves_what_a_cycle_can_refresh() -> None:
    server = dict.fromkeys(SERVERS, 0) | {"qkey": 4 << 56 | 1, "delay_ms": config.DAY_S * 1000, "slots": 1}
    cf = limits(server_share=10, hard_factor=2)  # of 30 fetches in 30 days: 3
    index = [row(n, n) for n in range(1, 9)]
    after = became(index, cf, [site(qkey=4 << 56 | 1)], [server])
    assert after == [(FORGOTTEN, Reason.SERVER_HARD)] * 2 + [(SLEEPING, Reason.SERVER_SOFT)] * 3 + [(UNGATHERED, Reason.LINK)] * 3


def test_servers_of_one_group_share_their_limit() -> None:
    servers = [dict.fromkeys(SERVERS, 0) | {"qkey": q, "delay_ms": config.DAY_S * 1000, "slots": 1, "group": 5} for q in (1, 2)]
    index = [row(1, 1), row(2, 2, site=101), row(3, 3)]
    after = became(index, limits(server_share=4), [site(qkey=1), site(101, qkey=2)], servers)  # 1 of 30, and a hard limit of 2
    assert [reason for _, reason in after] == [Reason.SERVER_HARD, Reason.SERVER_SOFT, Reason.LINK]


def test_a_site_spread_over_two_servers_is_limited_by_each() -> None:
    servers = [dict.fromkeys(SERVERS, 0) | {"qkey": q, "delay_ms": config.DAY_S * 1000, "slots": 1} for q in (1, 2)]
    index = [row(1, 1), row(2, 2, site=101), row(3, 3)]
    after = became(index, limits(server_share=4), [site(qkey=1), site(101, qkey=2)], servers)
    assert [reason for _, reason in after] == [Reason.SERVER_SOFT, Reason.LINK, Reason.LINK]


def test_sections_have_limits_and_bonuses() -> None:
    index = [row(1, 5, section=Section.PDF), row(2, 9, section=Section.PDF), row(3, 1, section=Section.HTML)]
    cf = dataclasses.replace(limits(gathered=2), sections=config.Sections(pdf=1))
    assert [reason for _, reason in became(index, cf)] == [Reason.SECTION_SOFT, Reason.LINK, Reason.LINK]
    cf = dataclasses.replace(limits(gathered=1), section_bonus=config.SectionBonus(html=9))
    assert [reason for _, reason in became(index, cf)] == [Reason.BELOW_BAR, Reason.BELOW_BAR, Reason.LINK]


def test_space_is_filled_with_the_best_rows_until_one_does_not_fit() -> None:
    index = [row(1, 9, **HELD, size=60), row(2, 8), row(3, 7, **HELD, size=30), row(4, 6, **HELD, size=1)]
    after = became(index, limits(space_bytes=100, average_bytes=20))
    assert [reason for _, reason in after] == [Reason.GATHERED, Reason.LINK, Reason.SPACE, Reason.SPACE]


def test_no_more_is_gathered_than_the_measured_speed_can_refresh() -> None:
    cf = Config(select=config.Select(optimism=150), plan=config.Plan(refresh_s=1_000))
    index = [row(n, n) for n in range(1, 6)]
    assert [type_ for type_, _ in became(index, cf, speed=2)] == [SLEEPING] * 2 + [UNGATHERED] * 3
    assert [type_ for type_, _ in became(index, cf, speed=0)] == [UNGATHERED] * 5


# --- the brake --------------------------------------------------------------------------------------------------

LOSING = sample([row(n, n, **HELD) for n in range(10)], limits(gathered=5, most_lost=40, most_lost_floor=0))


def test_a_select_that_would_lose_too_much_stops_and_changes_nothing() -> None:
    with merged(LOSING) as writer:
        with pytest.raises(UsageError, match=r"5 of 10 gathered documents .*--force"):
            select.run(writer, LOSING.config, 1, lambda _: None)
        writer.tidy()
        assert str(writer.furthest().name) == "000009.merged"
        forced = select.run(writer, LOSING.config, 1, lambda _: None, force=True)
        assert [one["type"] for one in index_of(forced)] == [SLEEPING] * 5 + [GATHERED] * 5


@pytest.mark.parametrize("spared", [{"most_lost": 50}, {"most_lost_floor": 5}])
def test_losing_as_much_as_is_allowed_is_no_reason_to_stop(spared: dict[str, int]) -> None:
    cf = Config(select=dataclasses.replace(LOSING.config.select, **spared))
    assert len(run(dataclasses.replace(LOSING, config=cf))) == 10


def test_dry_run_reports_what_the_brake_would_stop() -> None:
    with merged(LOSING) as writer:
        told = select.run(DryRun(writer.database, writer.furthest()), LOSING.config, 1, lambda _: None).report()
        assert told["stopped by most_lost"] == 1
        assert told["asleep by reason"] == {"below-bar": 5}


# --- around it --------------------------------------------------------------------------------------------------


def test_closed_state_is_selected_only_in_a_dry_run() -> None:
    with merged(LOSING) as writer:
        closed = writer.database.closed()
        writer.delete(writer.furthest().name)
        with pytest.raises(NothingToDo):
            select.run(writer, Config(), 1, lambda _: None)
        told = select.run(DryRun(writer.database, closed), Config(), 1, lambda _: None)
        assert told.report()["stay"] == 0


def test_the_report_counts_by_reason() -> None:
    with merged(sample([row(n) for n in range(6)], limits(gathered=2, sleeping=3))) as writer:
        report = json.loads(
            (select.run(writer, limits(gathered=2, sleeping=3), 1, lambda _: None).path / "report.json").read_text()
        )
    assert report["asleep by reason"] == {"below-bar": 3}
    assert report["forgotten by reason"] == {"below-sleep": 1}
    assert (report["stay"], report["sleep"], report["forgotten"], report["gathered lost"]) == (2, 3, 1, 0)


def test_every_section_has_its_keys() -> None:
    for table in (config.Sections, config.SectionBonus):
        assert [field.name for field in dataclasses.fields(table)] == list(SECTION_NAMES)


@pytest.mark.parametrize("need", [1, 9])
@pytest.mark.parametrize(("groups", "rows"), [(1, 2_000), (3, 2_000), (1 << 21, 2_000), (1, 40_000), (2, 40_000)])
def test_bars_are_exact_however_many_groups_share_the_memory(groups: int, rows: int, need: int) -> None:
    """With two million groups a pass settles two bits, with few a partition has a counter for every weight."""
    rng, bits = np.random.default_rng(groups), bars.row_bits(rows)
    group, key = rng.integers(0, min(groups, 50), rows), rng.integers(0, 9, rows).astype(np.uint16)
    amount = rng.integers(0, need, rows) if need > 1 else None
    place, room = bars.places(key, np.arange(rows), bits), np.full(groups, 7)
    room[1:2] = 1_000_000
    search = bars.begin(room, bits)
    while not search.is_done:
        total = np.zeros(search.counters, np.int64)
        found = bars.tally(search, bars.Members(np.arange(rows), key, group, amount), bits)
        total[found.counter] += found.amount
        search = bars.narrow(search, total)
    for number in range(min(groups, 50)):
        mine = np.flatnonzero(group == number)
        mine = mine[np.argsort(place[mine])]
        needed = np.cumsum(amount[mine] if amount is not None else np.ones(len(mine), np.int64))
        assert np.count_nonzero(place[mine] < search.bars[number]) == np.count_nonzero(needed <= room[number])


@pytest.mark.parametrize("groups", [1, 40, 3_000])
def test_collecting_the_last_rows_gives_the_bars_of_counting(groups: int) -> None:
    rng, rows = np.random.default_rng(groups), 20_000
    bits, key = bars.row_bits(rows), rng.integers(0, 9, rows).astype(np.uint16)
    group, room = rng.integers(0, groups, rows), rng.integers(0, 2 * rows // groups, groups)
    everyone = bars.Members(np.arange(rows), key, group)
    counted, collected = [bars.begin(room, bits)], []
    while not counted[-1].is_done:
        now, total = counted[-1], np.zeros(counted[-1].counters, np.int64)
        if now.few:
            collected.append(bars.finish(now, bars.collect(now, everyone, bits)))
        found = bars.tally(now, everyone, bits)
        total[found.counter] += found.amount
        counted.append(bars.narrow(now, total))
    assert collected
    for one in collected:
        assert one.is_done
        assert one.bars.tolist() == counted[-1].bars.tolist()
