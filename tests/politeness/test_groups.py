from __future__ import annotations

import pytest

from shepherd.errors import ShepherdError
from shepherd.politeness.groups.engine import MAX_ITEM, FetchEnd, FetchLease, QueueCounts, QueueEntry
from shepherd.politeness.groups.memory import MemoryGroups
from tests.support.groups import OneByOne, at_once

DELAY = 10_000
LEASE = 60_000


@pytest.fixture
def groups() -> OneByOne:
    return OneByOne(MemoryGroups(lease_ms=LEASE, delay_ms=DELAY))


def take(groups: OneByOne, now_ms: int) -> FetchLease:
    lease = groups.next(now_ms)
    assert lease is not None
    return lease


def test_best_priority_of_all_ready_groups_comes_first(groups: OneByOne) -> None:
    for item, priority in enumerate((5, 9, 1, 9)):
        groups.add(item, group=item, site=item, priority=priority)
    assert [take(groups, 0).item for _ in range(4)] == [1, 3, 0, 2]
    assert groups.next(0) is None


def test_delay_counts_from_the_end_of_the_fetch(groups: OneByOne) -> None:
    groups.add(1, 7, 70, 0)
    groups.add(2, 7, 71, 0)
    first = take(groups, 1_000)
    assert groups.next(30_000) is None, "the only slot is busy"
    assert groups.release(first.token, 31_000)
    assert groups.next_time() == 41_000
    assert groups.next(40_999) is None
    assert take(groups, 41_000).item == 2


def test_no_delay_is_due_without_a_contact(groups: OneByOne) -> None:
    groups.add(1, 7, 70, 0)
    groups.add(2, 7, 70, 0)
    assert groups.release(take(groups, 0).token, 5_000, contacted=False)
    assert take(groups, 5_000).item == 2


def test_an_answer_without_contact_does_not_shorten_the_wait_before_it(groups: OneByOne) -> None:
    for item in range(3):
        groups.add(item, 7, 70, 0)
    groups.release(take(groups, 0).token, 0)
    groups.set_delay(7, 0)
    groups.set_site_delay(70, 0)
    lease = take(groups, 1)
    groups.set_delay(7, DELAY)
    groups.release(lease.token, 2, contacted=False)
    assert groups.next(DELAY - 1) is None
    assert groups.next(DELAY) is not None


def test_slots_allow_other_sites_but_never_the_same_site(groups: OneByOne) -> None:
    groups.set_slots(7, 3)
    for item in range(4):
        groups.add(item, 7, 70, 9)
    groups.add(10, 7, 71, 1)
    assert [take(groups, 0).item, take(groups, 0).item] == [0, 10]
    assert groups.next(0) is None


def test_a_site_waits_its_own_delay_in_a_group_with_free_slots(groups: OneByOne) -> None:
    groups.set_slots(7, 2)
    groups.set_site_delay(70, 25_000)
    groups.add(1, 7, 70, 9)
    groups.add(2, 7, 70, 9)
    groups.release(take(groups, 0).token, 0)
    assert groups.next(24_999) is None
    assert groups.next_time() == 25_000
    assert take(groups, 25_000).item == 2


def test_fewer_slots_keep_the_longest_wait(groups: OneByOne) -> None:
    groups.set_slots(7, 2)
    for item in range(3):
        groups.add(item, 7, 70 + item, 0)
    first, second = take(groups, 0), take(groups, 0)
    groups.release(first.token, 100)
    groups.release(second.token, 5_000)
    groups.set_slots(7, 1)
    assert groups.next(14_999) is None
    assert groups.next(15_000) is not None


def test_raised_delay_and_back_off_apply_to_a_wait_under_way(groups: OneByOne) -> None:
    groups.add(1, 7, 70, 0)
    groups.add(2, 7, 71, 0)
    groups.release(take(groups, 0).token, 0)
    groups.set_delay(7, 20_000)
    groups.back_off(7, 2)
    assert groups.next(79_999) is None
    groups.back_off(7, 1)
    assert groups.next(79_999) is not None


def test_retry_after_delays_the_whole_group(groups: OneByOne) -> None:
    groups.set_slots(7, 2)
    groups.add(1, 7, 70, 0)
    groups.add(2, 7, 71, 0)
    groups.release(take(groups, 0).token, 0, delay_ms=120_000)
    assert groups.next(119_999) is None
    assert groups.next(120_000) is not None


def test_hold_is_not_shortened(groups: OneByOne) -> None:
    groups.hold(7, 500)
    groups.hold(7, 100)
    groups.add(1, 7, 70, 0)
    assert groups.next(499) is None
    assert groups.next(500) is not None


def test_late_answer_with_an_old_token_is_refused(groups: OneByOne) -> None:
    groups.add(1, 7, 70, 0)
    lease = take(groups, 0)
    assert not groups.release(lease.token, LEASE), "its time has passed"
    assert groups.expire(LEASE - 1) == []
    assert groups.expire(LEASE) == [lease]
    assert not groups.release(lease.token, LEASE), "expired"
    assert not groups.extend(lease.token, 2 * LEASE)
    assert groups.count() == QueueCounts(0, 0)


def test_expired_lease_is_a_contact(groups: OneByOne) -> None:
    groups.add(1, 7, 70, 0)
    groups.add(2, 7, 70, 0)
    take(groups, 0)
    groups.expire(LEASE + 5)
    assert groups.next(LEASE + 5 + DELAY - 1) is None
    assert groups.next(LEASE + 5 + DELAY) is not None


def test_extended_lease_lives_on(groups: OneByOne) -> None:
    groups.add(1, 7, 70, 0)
    lease = take(groups, 0)
    assert groups.extend(lease.token, 2 * LEASE)
    assert groups.extend(lease.token, LEASE + 1), "an earlier time changes nothing"
    assert groups.expire(2 * LEASE - 1) == []
    assert groups.release(lease.token, 2 * LEASE - 1)


def test_not_before_is_kept_and_then_priority_counts(groups: OneByOne) -> None:
    groups.add(1, 7, 70, priority=9, not_before_ms=1_000)
    groups.add(2, 8, 80, priority=1)
    assert groups.next_time() == 0
    assert take(groups, 999).item == 2
    assert groups.next_time() == 1_000
    assert take(groups, 1_000).item == 1


def test_a_site_moves_with_its_queue_and_its_wait(groups: OneByOne) -> None:
    groups.set_delay(99, 0)
    groups.add(1, 99, 70, 5)
    groups.add(2, 99, 70, 5)
    groups.add(3, 99, 70, 5, not_before_ms=50)
    lease = take(groups, 0)
    groups.move_site(70, 7)
    assert (groups.count_group(99), groups.count_group(7)) == (QueueCounts(0, 1), QueueCounts(2, 0))
    groups.release(lease.token, 10)
    groups.add(4, 99, 70, 9)
    assert groups.count_group(7) == QueueCounts(3, 0), "only move_site changes the group of a site"
    assert groups.next(9_999) is None
    moved = take(groups, 10_010)
    assert (moved.item, moved.group) == (4, 7)


def test_dropped_site_returns_all_but_what_is_in_flight(groups: OneByOne) -> None:
    for item, priority in ((1, 9), (2, 3), (3, 6)):
        groups.add(item, 7, 70, priority)
    groups.add(4, 7, 70, 8, not_before_ms=500)
    groups.add(5, 7, 71, 1)
    lease = take(groups, 0)
    assert groups.drop_site(70) == [4, 3, 2]
    assert groups.drop_site(12345) == []
    assert groups.count() == QueueCounts(1, 1)
    groups.release(lease.token, 0)
    assert take(groups, DELAY).item == 5
    assert groups.next(10 * DELAY) is None


def test_counters_by_source(groups: OneByOne) -> None:
    groups.add(1, 7, 70, 1, source=0)
    groups.add(2, 7, 70, 9, source=3)
    lease = take(groups, 0)
    assert (groups.count_source(0), groups.count_source(3)) == (QueueCounts(1, 0), QueueCounts(0, 1))
    groups.release(lease.token, 1)
    assert groups.count_source(3) == QueueCounts(0, 0)
    assert groups.count_group(404) == QueueCounts(0, 0)


@pytest.mark.parametrize(("item", "priority", "source"), [(MAX_ITEM + 1, 0, 0), (-1, 0, 0), (0, 1 << 32, 0), (0, 0, 256)])
def test_a_number_that_does_not_fit_is_refused_and_not_cut(groups: OneByOne, item: int, priority: int, source: int) -> None:
    with pytest.raises(ShepherdError, match="does not fit"):
        groups.add(item, 7, 70, priority, source=source)
    assert groups.count() == QueueCounts(0, 0)


def test_slot_that_was_removed_and_added_again_keeps_its_wait(groups: OneByOne) -> None:
    groups.set_slots(7, 2)
    for item in range(4):
        groups.add(item, 7, 70 + item, 0)
    first, second = take(groups, 0), take(groups, 0)
    groups.release(first.token, 100)
    groups.release(second.token, 200)
    groups.set_slots(7, 1)
    groups.set_slots(7, 2)
    assert groups.next(100 + DELAY - 1) is None
    assert groups.next(100 + DELAY) is not None
    assert groups.next(200 + DELAY - 1) is None


def test_many_items_are_taken_best_first_and_one_of_a_site(groups: OneByOne) -> None:
    entries = [QueueEntry(n, group=n // 2, site=n // 2, priority=n) for n in range(10)]
    at_once(groups.engine.add_many(entries))
    assert [lease.item for lease in at_once(groups.engine.take(3, 0))] == [9, 7, 5]
    assert [lease.item for lease in at_once(groups.engine.take(9, 0))] == [3, 1]
    assert at_once(groups.engine.take(0, 10 * DELAY)) == []


def test_of_many_releases_each_is_judged_by_itself(groups: OneByOne) -> None:
    for item in range(3):
        groups.add(item, item, item, 0)
    first, second = take(groups, 0), take(groups, 1_000)
    ends = [FetchEnd(first.token), FetchEnd(99), FetchEnd(second.token), FetchEnd(second.token)]
    assert at_once(groups.engine.release_many(ends, LEASE)) == [False, False, True, False]
    assert groups.expire(LEASE) == [first]


def test_of_entries_with_one_that_does_not_fit_none_is_queued(groups: OneByOne) -> None:
    with pytest.raises(ShepherdError, match="does not fit"):
        at_once(groups.engine.add_many([QueueEntry(1, 7, 70, 0), QueueEntry(MAX_ITEM + 1, 7, 70, 0)]))
    assert groups.count() == QueueCounts(0, 0)
