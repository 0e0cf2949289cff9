"""The politeness audit against a naive one that tries every pair, and against contacts that are known to be too close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.config import Politeness
from shepherd.formats import tables
from shepherd.formats.tables import JOURNAL, NO_LIMIT, Columns, JournalFlag, Kind, Records, Result
from shepherd.politeness import audit as politeness
from shepherd.politeness import obligations as owed
from shepherd.politeness.audit import AuditVerdict
from shepherd.politeness.obligations import Obligation
from shepherd.urls import qkey_of_address
from tests.support import sampling

BASE = 1_790_000_000_000
QKEY, OTHER = qkey_of_address("127.0.0.1"), qkey_of_address("127.0.0.2")
GROUP = 1 << 63 | 7
DELAY = Politeness(delay_s=1.0)


def records(*rows: dict[str, int]) -> Records:
    found = np.zeros(len(rows), JOURNAL)
    for at, row in enumerate(rows):
        values = {"site": 1, "answered": row.get("site", 1), "qkey": QKEY, "kind": Kind.PAGE, "result": Result.STORED}
        values |= {"flags": int(JournalFlag.CONTACTED), "status": 200} | row
        for name, value in values.items():
            found[name][at] = value + BASE if name.endswith("_ms") and name[:3] in ("sta", "end") else value
    return found


def contact(start: int, end: int, **more: int) -> dict[str, int]:
    return {"start_ms": start, "end_ms": end, **more}


def judged(
    journal: Records,
    sites: Columns,
    servers: Columns,
    limits: Politeness = DELAY,
    before: bool = False,
    slack: int = 0,
    part: int = 100,
) -> AuditVerdict:
    one = owed.journal(*owed.joined([owed.slim(journal, 0)], len(journal)), sites, servers, limits, before)
    return politeness.judge([one], slack, 10, lambda _: None, part)


def audit(journal: Records, slots: int = 1, before: bool = False, **columns: dict[int, int]) -> AuditVerdict:
    """`columns`: of sites, by site: delay_ms, crawl_delay_ms, group."""
    site = np.array([1, 2, 3], np.uint64)
    sites: dict[str, Any] = {"site": site, "delay_ms": np.full(3, NO_LIMIT, np.uint32)}
    sites |= {"crawl_delay_ms": np.zeros(3, np.uint32), "group": np.zeros(3, np.uint64)}
    for name, values in columns.items():
        for number, value in values.items():
            sites[name][number - 1] = value
    servers: dict[str, Any] = {"qkey": np.array([QKEY, OTHER], np.uint64), "delay_ms": np.full(2, 1000, np.uint32)}
    servers |= {"slots": np.full(2, slots, np.uint16), "group": np.zeros(2, np.uint64)}
    return judged(journal, sites, servers, before=before)


def test_crawl_delay_in_a_later_table_is_no_raised_default() -> None:
    """A server's delay stands in its table with the Crawl-delay in it, so the default cannot be read from it."""
    robots = contact(1010, 1020, site=2, kind=Kind.ROBOTS, crawl_delay_ms=3000)
    journal = records(contact(0, 10), robots, contact(4020, 4030), contact(0, 10, site=3, qkey=OTHER))
    sites: dict[str, Any] = {"site": np.array([1, 2, 3], np.uint64), "delay_ms": np.full(3, NO_LIMIT, np.uint32)}
    sites |= {"crawl_delay_ms": np.array([0, 3000, 0], np.uint32), "group": np.zeros(3, np.uint64)}
    servers: dict[str, Any] = {"qkey": np.array([QKEY, OTHER], np.uint64), "delay_ms": np.array([3000, 1000], np.uint32)}
    servers |= {"slots": np.ones(2, np.uint16), "group": np.zeros(2, np.uint64)}
    for delay_s in (1.0, 10.0):
        assert judged(journal, sites, servers, Politeness(delay_s=delay_s)).faults == []


def whats(verdict: AuditVerdict) -> list[str]:
    return [fault.what for fault in verdict.faults]


def test_gap_below_the_delay_is_a_violation() -> None:
    verdict = audit(records(contact(0, 10), contact(1009, 1020), contact(2020, 2030, site=2)))
    assert "delay" in whats(verdict) and verdict.gap_ms.tolist() == [999] and verdict.spare_ms.tolist() == [-1]
    fault = verdict.faults[0]
    assert (fault.key, fault.before, fault.after, fault.gap_ms, fault.needed_ms) == (QKEY, (0, 0), (0, 1), 999, 1000)
    assert audit(records(contact(0, 10), contact(1010, 1020), contact(2020, 2030, site=2))).count == 0


def test_overlap_of_two_sites_of_one_server_is_a_violation() -> None:
    verdict = audit(records(contact(0, 5000), contact(100, 200, site=2)))
    assert whats(verdict) == ["overlap"]
    assert audit(records(contact(0, 5000), contact(100, 200, site=2, qkey=OTHER))).count == 0


def test_slots_allow_as_many_overlaps_but_never_two_of_a_site() -> None:
    three = records(contact(0, 100), contact(50, 150, site=2), contact(60, 160, site=3))
    assert audit(three, slots=3).count == 0
    assert audit(three, slots=2).count == 1
    assert whats(audit(records(contact(0, 100), contact(50, 150)), slots=3)) == ["overlap"]
    again = records(contact(0, 100), contact(0, 100, site=2), contact(1099, 1200, site=3))
    assert audit(again, slots=2).count == 1


def test_group_of_the_filter_is_one_server() -> None:
    near = records(contact(0, 10), contact(500, 510, site=2, qkey=OTHER))
    assert audit(near).count == 0
    assert whats(audit(near, group={1: GROUP, 2: GROUP})) == ["delay"]


def test_crawl_delay_applies_from_the_robots_file_on() -> None:
    robots = contact(0, 10, kind=Kind.ROBOTS, crawl_delay_ms=5000)
    assert audit(records(robots, contact(5010, 5020))).count == 0
    assert "delay" in whats(audit(records(robots, contact(5009, 5020))))
    other_site = records(contact(0, 10), contact(1010, 1020, site=2, kind=Kind.ROBOTS, crawl_delay_ms=5000), contact(5000, 5001))
    assert whats(audit(other_site)) == ["delay"]
    assert audit(records(contact(0, 10), contact(1010, 1020)), crawl_delay_ms={1: 3000}).count == 2


def test_failures_in_a_row_double_the_delay() -> None:
    busy, failed = {"result": Result.SOFT, "status": 503}, {"result": Result.CONNECTION, "status": 0}
    good = records(contact(0, 10, **busy), contact(2010, 2020, **failed), contact(6020, 6030), contact(7030, 7040))
    assert audit(good).count == 0
    assert whats(audit(records(contact(0, 10, **busy), contact(2009, 2020)))) == ["delay"]
    assert whats(audit(records(contact(0, 10, **busy), contact(2010, 2020, **failed), contact(6019, 6030)))) == ["delay"]


def test_retry_after_delays_the_whole_server() -> None:
    busy = contact(0, 10, status=429, retry_after_s=60)
    assert audit(records(busy, contact(60_010, 60_020, site=2))).count == 0
    assert "retry-after" in whats(audit(records(busy, contact(30_000, 30_020, site=2))))


def test_filter_delay_applies_to_its_site_and_raises_that_of_its_server() -> None:
    assert audit(records(contact(0, 10), contact(500, 510)), delay_ms={1: 490}).count == 0
    assert sorted(whats(audit(records(contact(0, 10), contact(500, 510)), delay_ms={1: 491}))) == ["delay", "site"]


def test_record_without_a_contact_does_not_count() -> None:
    quiet = contact(5, 6, flags=0)
    denied = contact(7, 7, flags=0, result=Result.DENIED)
    nowhere = contact(8, 9, qkey=tables.qkey_unresolved(1))
    assert audit(records(contact(0, 10), quiet, denied, nowhere, contact(1010, 1020))).count == 0


@settings(max_examples=sampling.examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=25),
    st.integers(1, 3),
)
def test_same_as_trying_to_place_every_contact_in_a_slot(spans: list[tuple[int, int, int]], slots: int) -> None:
    """A slot is free when its last contact has ended and waited; contacts take the one that has waited longest."""
    wait = 5
    spans = sorted(spans, key=lambda span: span[1])
    count = len(spans)
    full = np.full(count, wait, np.int64)
    group = np.array([span[0] for span in spans], np.uint64)
    start = np.array([span[1] for span in spans], np.int64)
    end = start + np.array([span[2] for span in spans], np.int64)
    nothing = np.zeros(count, np.int64)
    found = Obligation(nothing, np.arange(count), group, start, end, full, nothing, np.full(count, slots))
    expected = False
    for key in set(group.tolist()):
        free = [-wait] * slots
        for begin, stop in zip(start[group == key].tolist(), end[group == key].tolist(), strict=True):
            free.sort()
            expected |= begin < free[0] + wait
            free[0] = stop
    assert bool(politeness.judge_groups(found, 0, 5).count) == expected


@pytest.mark.parametrize("slack", [0, 5])
def test_slack_allows_for_differing_clocks(slack: int) -> None:
    journal = records(contact(0, 10), contact(1006, 1020))
    sites: dict[str, Any] = {"site": np.array([1], np.uint64), "delay_ms": np.array([NO_LIMIT], np.uint32)}
    sites |= {"crawl_delay_ms": np.zeros(1, np.uint32), "group": np.zeros(1, np.uint64)}
    servers: dict[str, Any] = {"qkey": np.array([QKEY], np.uint64), "delay_ms": np.array([1000], np.uint32)}
    servers |= {"slots": np.ones(1, np.uint16), "group": np.zeros(1, np.uint64)}
    assert bool(judged(journal, sites, servers, before=True, slack=slack).count) == (slack < 4)


@settings(max_examples=sampling.examples(30), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), part=st.integers(1, 50), journals=st.integers(1, 3))
def test_parts_do_not_change_the_verdict(seed: int, part: int, journals: int) -> None:
    """However few contacts are judged together, and in however many journals they stand."""
    draw, count = np.random.default_rng(seed), 60
    journal = np.zeros(count, JOURNAL)
    journal["qkey"] = [qkey_of_address(f"127.0.0.{number}") for number in draw.integers(1, 9, count)]
    journal["answered"] = journal["site"] = draw.integers(1, 6, count)
    journal["kind"] = draw.choice([Kind.PAGE, Kind.PAGE, Kind.ROBOTS, Kind.QKEY], count)
    journal["result"] = draw.choice([Result.STORED, Result.STORED, Result.CONNECTION], count)
    journal["flags"], journal["status"] = int(JournalFlag.CONTACTED), 200
    journal["crawl_delay_ms"] = np.where(journal["kind"] == Kind.ROBOTS, draw.choice([0, 1500], count), 0)
    journal["retry_after_s"] = draw.choice([0, 0, 0, 0, 3], count)
    journal["start_ms"] = np.sort(draw.integers(0, 60_000, count)) + BASE
    journal["end_ms"] = journal["start_ms"] + draw.integers(0, 50, count)
    sites: dict[str, Any] = {"site": np.arange(1, 6, dtype=np.uint64), "delay_ms": np.full(5, NO_LIMIT, np.uint32)}
    sites |= {"crawl_delay_ms": np.zeros(5, np.uint32), "group": np.array([0, 0, 0, GROUP, GROUP], np.uint64)}
    qkeys = np.sort(np.array([qkey_of_address(f"127.0.0.{number}") for number in range(1, 8)], np.uint64))
    servers: dict[str, Any] = {"qkey": qkeys, "delay_ms": np.full(7, 1000, np.uint32), "slots": np.ones(7, np.uint16)}
    servers["group"] = np.zeros(7, np.uint64)
    pieces = [one for one in np.array_split(journal, journals) if len(one)]

    def verdict(part: int) -> tuple[Any, ...]:
        slimmed = [owed.joined([owed.slim(piece, 0)], len(piece)) for piece in pieces]
        read = [owed.journal(*one, sites, servers, DELAY, before=False) for one in slimmed]
        found = politeness.judge(read, 0, 1000, lambda _: None, part)
        columns = [column.tolist() for column in (found.key, found.contacts, found.gap_ms, found.spare_ms)]
        return (*columns, sorted(found.faults, key=repr), found.count)

    assert verdict(part) == verdict(10**9)


def test_delay_of_one_server_is_not_demanded_of_a_new_one() -> None:
    late = {"qkey": OTHER, "kind": Kind.QKEY, "result": Result.RESOLVED, "flags": 0}
    lookups = [contact(4000, 5000, site=site, **late) for site in (2, 3)]
    journal = records(contact(0, 10), contact(0, 10, site=2, qkey=OTHER), contact(500, 510, site=3, qkey=OTHER), *lookups)
    assert QKEY < OTHER and audit(journal).faults == []


def test_what_one_site_asks_for_binds_it_in_full_and_its_neighbours_up_to_the_bound() -> None:
    robots = contact(0, 10, kind=Kind.ROBOTS, crawl_delay_ms=600_000)
    own, other = contact(60_010, 60_020), contact(60_010, 60_020, site=2)
    assert whats(audit(records(robots, own))) == ["site"]
    assert audit(records(robots, other)).count == 0
    assert whats(audit(records(robots, contact(60_009, 60_020, site=2)))) == ["delay"]


def test_retry_after_binds_its_site_in_full_and_its_neighbours_up_to_the_bound() -> None:
    busy = contact(0, 10, status=429, result=Result.SOFT, retry_after_s=3_600)
    assert whats(audit(records(busy, contact(60_010, 60_020)))) == ["site"]
    assert audit(records(busy, contact(3_600_010, 3_600_020))).count == 0
    assert audit(records(busy, contact(60_010, 60_020, site=2))).count == 0
    assert whats(audit(records(busy, contact(60_009, 60_020, site=2)))) == ["retry-after"]


def test_exchange_too_short_for_the_clock_is_not_accused_of_following_itself() -> None:
    busy = contact(10, 10, status=503, result=Result.SOFT, retry_after_s=30)
    assert audit(records(busy)).count == 0
    verdict = audit(records(busy, contact(5_000, 5_010, site=2)))
    assert [(fault.before, fault.after) for fault in verdict.faults] == [((0, 0), (0, 1))]


def test_contact_that_came_too_soon_is_shown_with_the_longest_wait_before_it() -> None:
    """Its own wait may end before that of the other."""
    long = contact(0, 10, site=2, kind=Kind.ROBOTS, crawl_delay_ms=50_000)
    lookups = [contact(0, 0, site=site, kind=Kind.QKEY, result=Result.RESOLVED, flags=0) for site in (1, 2)]
    verdict = audit(records(*lookups, long, contact(500, 510)), crawl_delay_ms={1: 0, 2: 50_000})
    assert [fault.before != fault.after for fault in verdict.faults] == [True] * verdict.count and verdict.count
    assert verdict.faults[0].before == (0, 2) and verdict.faults[0].after == (0, 3)


def test_refused_connection_counts_for_the_back_off_once_the_site_has_answered() -> None:
    refused = {"status": 0, "result": Result.CONNECTION}
    never = [contact(0, 10, site=2, **refused), contact(1_010, 1_020)]
    assert audit(records(*never)).count == 0
    known = [contact(0, 10), contact(1_010, 1_020, **refused), contact(2_020, 2_030)]
    assert sorted(whats(audit(records(*known)))) == ["delay"]
