"""Were servers asked too soon? Worked out again from journals alone, without trusting the groups that handed out the requests.

A group with k slots was treated well if, of its contacts sorted by start and by the end of the wait that follows each, the n-th
start comes after the (n - k)-th wait: then k slots that each kept their delay can have made them. The same with one slot holds
for each site. What delay held, `obligations` says, without asking `delays`; where that cannot be known it is the shorter one:
nobody is accused wrongly.

Groups are judged some at a time, those of a range of keys, and then sites likewise: so memory is that of the slim journals and of
one part. Sorting is all it costs: times and groups go into one integer each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.keys import distinct
from shepherd.formats.tables import I64, U64
from shepherd.politeness.obligations import Held, Journal, SiteHeld, held, site_held

RACE_MS = 10_000  # with several slots, a request may be on its way while another one is told to stay away
PART: Final = 500_000  # contacts judged together, or as many as one group has
SAMPLED: Final = 16  # one key of so many tells where to cut


@dataclass(frozen=True)
class Fault:
    """Two contacts that are too close, as journal and row in it; and what was kept and had to be."""

    what: str  # overlap, delay, retry-after, site
    key: int
    before: tuple[int, int]
    after: tuple[int, int]
    times: tuple[int, int, int, int]  # starts and ends of both
    gap_ms: int
    needed_ms: int


@dataclass(frozen=True)
class Verdict:
    key: U64  # groups that were contacted
    contacts: I64
    gap_ms: I64  # the smallest; -1 where there was no second contact
    spare_ms: I64  # by how much the tightest one was longer than it had to be
    faults: Sequence[Fault]
    count: int  # of all faults; `faults` has the first of them


def judge(journals: Sequence[Journal], slack_ms: int, most: int, tick: Callable[[int], object], part: int = PART) -> Verdict:
    """Compare what was kept with what had to be; of faults, the first `most` are told one by one.

    `tick` is told of so many contacts each time: all of them twice, once for servers and once for sites.
    """
    groups, faults, count = [], list[Fault](), 0
    for places in _parts([one.group for one in journals], part):
        found = _joined([held(number, journals[number], at) for number, at in places])
        verdict = judge_groups(found, slack_ms, most - len(faults))
        groups.append(verdict)
        faults += verdict.faults
        count += verdict.count
        tick(len(found.start))
    for places in _parts([one.contacts["answered"] for one in journals], part):
        asked = _joined_sites([site_held(number, journals[number], at) for number, at in places])
        late, told = _judge_sites(asked, slack_ms, most - len(faults))
        faults += told
        count += late
        tick(sum(len(at) for _number, at in places))
    key, contacts, gap_ms, spare_ms = (
        np.concatenate([getattr(one, name) for one in groups]) for name in ("key", "contacts", "gap_ms", "spare_ms")
    )
    return Verdict(key, contacts, gap_ms, spare_ms, faults, count)


def _parts(keys: Sequence[U64], part: int) -> Iterator[list[tuple[int, I64]]]:
    """The contacts of each journal, by range of their keys: each part has all contacts of its keys."""
    sample = np.sort(np.concatenate([np.ascontiguousarray(column[::SAMPLED]) for column in keys]))
    parts = max(-(-sum(len(column) for column in keys) // part), 1)
    cuts = distinct(sample[[len(sample) * number // parts for number in range(1, parts)]])
    number_of = [np.searchsorted(cuts, column, "right").astype(np.uint16) for column in keys]
    for number in range(len(cuts) + 1):
        yield [(journal, np.flatnonzero(of == number)) for journal, of in enumerate(number_of)]


def _joined(found: Sequence[Held]) -> Held:
    return Held(*(np.concatenate([getattr(one, name) for one in found]) for name in Held.__dataclass_fields__))


def _joined_sites(found: Sequence[SiteHeld]) -> SiteHeld:
    return SiteHeld(*(np.concatenate([getattr(one, name) for one in found]) for name in SiteHeld.__dataclass_fields__))


def judge_groups(found: Held, slack_ms: int, most: int) -> Verdict:
    keys = distinct(found.group)
    number = np.searchsorted(keys, found.group).astype(np.int64)
    slots = np.ones(len(keys), np.int64)
    slots[number] = found.slots
    ends = found.end + found.wait_ms
    gap, spare, bad = _compare(number, len(keys), found.start, found.end, ends, slots, slack_ms)
    pairs = _places(number, found.start, ends, bad[:most], slots)
    faults = [
        _fault("delay", found, int(found.group[after]), int(found.wait_ms[before]), before, after) for before, after in pairs
    ]
    late = _within_retry_after(found, number, slots, slack_ms)
    for before, after in late[: most - len(faults)]:
        needed_ms = int(found.until[before] - found.end[before])
        faults.append(_fault("retry-after", found, int(found.group[after]), needed_ms, before, after))
    contacts = np.bincount(number, minlength=len(keys)).astype(np.int64)
    return Verdict(keys, contacts, gap, spare, faults, len(bad) + len(late))


def _judge_sites(found: SiteHeld, slack_ms: int, most: int) -> tuple[int, list[Fault]]:
    """How many came too soon, and the first of them."""
    keys = distinct(found.site)
    number, ends = np.searchsorted(keys, found.site).astype(np.int64), found.end + found.wait_ms
    slots = np.ones(len(keys), np.int64)
    _gap, _spare, bad = _compare(number, len(keys), found.start, found.end, ends, slots, slack_ms)
    pairs = _places(number, found.start, ends, bad[:most], slots)
    told = [_fault("site", found, int(found.site[after]), int(found.wait_ms[before]), before, after) for before, after in pairs]
    return len(bad), told


# --- what was kept --------------------------------------------------------------------------------------------------


def _compare(number: I64, count: int, start: I64, end: I64, until: I64, slots: I64, slack_ms: int) -> tuple[I64, I64, I64]:
    """By key, the smallest gap and the least that was to spare; and which starts, in order, came too soon."""
    gap, spare = np.full(count, -1, np.int64), np.full(count, np.iinfo(np.int64).max)
    if not len(start):
        return gap, spare, np.zeros(0, np.int64)
    starts, ends, waits = (_sorted(number, times) for times in (start, end, until))
    sizes = np.bincount(number, minlength=count)
    first = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(count), sizes)
    earlier = np.arange(len(start)) - slots[owner]
    there = earlier >= first[owner]
    earlier = np.maximum(earlier, 0)
    kept, left = starts - ends[earlier], starts - waits[earlier]
    which = np.flatnonzero(there)
    smallest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(smallest, owner[which], kept[which])
    np.minimum.at(spare, owner[which], left[which])
    seen = sizes > slots
    gap[seen] = smallest[seen]
    return gap, np.where(seen, spare, 0), np.flatnonzero(there & (left < -slack_ms))


def _sorted(number: I64, times: I64) -> I64:
    """Times in order within each key, the keys one after the other."""
    base = int(times.min())
    bits = int(times.max() - base + 1).bit_length()
    return (np.sort(number << bits | (times - base)) & ((1 << bits) - 1)) + base


def _places(number: I64, start: I64, until: I64, bad: I64, slots: I64) -> list[tuple[int, int]]:
    """Of starts that came too soon, the contact itself and the one whose wait it cut short."""
    if not len(bad):
        return []
    by_start, by_wait = np.lexsort((start, number)), np.lexsort((until, number))
    return [(int(by_wait[at - slots[number[by_start[at]]]]), int(by_start[at])) for at in bad.tolist()]


def _within_retry_after(found: Held, number: I64, slots: I64, slack_ms: int) -> list[tuple[int, int]]:
    """Contacts that began while a Retry-After of their group held."""
    told = np.flatnonzero(found.until > 0)
    if not len(told):
        return []
    order = np.lexsort((found.start, number))
    base = int(min(found.start.min(), found.end.min()))
    bits = int(max(found.until.max(), found.start.max()) + RACE_MS - base + 1).bit_length()
    keys = (number << bits | (found.start - base))[order]
    of = number[told] << bits
    race = np.where(slots[number[told]] > 1, RACE_MS, 0)
    low = np.searchsorted(keys, of | (found.end[told] + race - base))
    high = np.searchsorted(keys, of | np.maximum(found.until[told] - slack_ms - base, 0))
    pairs = zip(told.tolist(), low.tolist(), high.tolist(), strict=True)
    return [(one, int(order[at])) for one, first, last in pairs if last > first for at in range(first, last)]


def _fault(what: str, found: Held | SiteHeld, key: int, needed_ms: int, before: int, after: int) -> Fault:
    starts, ends = found.start[[before, after]].tolist(), found.end[[before, after]].tolist()
    one, other = ((int(found.journal[at]), int(found.row[at])) for at in (before, after))
    gap_ms = starts[1] - ends[0]
    times = starts[0], ends[0], starts[1], ends[1]
    return Fault("overlap" if gap_ms < 0 else what, key, one, other, times, gap_ms, needed_ms)
