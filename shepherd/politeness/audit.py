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
from shepherd.politeness.obligations import Journal, Obligation, SiteObligation, group_obligations, site_obligations

RACE_MS = 10_000  # with several slots, a request may be on its way while another one is asked to stay away
PART: Final = 500_000  # contacts judged together, or as many as one group has
SAMPLED: Final = 16  # one key of so many says where to cut


@dataclass(frozen=True)
class AuditFault:
    """Two contacts that are too close, as journal and row in it; and what was kept and had to be."""

    what: str  # overlap, delay, retry-after, site
    key: int
    before: tuple[int, int]
    after: tuple[int, int]
    times: tuple[int, int, int, int]  # starts and ends of both
    gap_ms: int
    needed_ms: int


@dataclass(frozen=True)
class AuditVerdict:
    key: U64  # groups that were contacted
    contacts: I64
    gap_ms: I64  # the smallest; -1 where there was no second contact
    spare_ms: I64  # by how much the tightest one was longer than it had to be
    faults: Sequence[AuditFault]
    count: int  # of all faults; `faults` has the first of them


def judge(journals: Sequence[Journal], slack_ms: int, most: int, tick: Callable[[int], object], part: int = PART) -> AuditVerdict:
    """Compare what was kept with what had to be; of faults, the first `most` are told one by one.

    `tick` gets how many contacts were judged: all of them twice, once for servers and once for sites.
    """
    groups, faults, count = [], list[AuditFault](), 0
    for places in _parts([entry.group for entry in journals], part):
        obligations = _joined([group_obligations(number, journals[number], rows) for number, rows in places])
        verdict = judge_groups(obligations, slack_ms, most - len(faults))
        groups.append(verdict)
        faults += verdict.faults
        count += verdict.count
        tick(len(obligations.start))
    for places in _parts([entry.contacts["answered"] for entry in journals], part):
        of_sites = _joined_sites([site_obligations(number, journals[number], rows) for number, rows in places])
        late, site_faults = _judge_sites(of_sites, slack_ms, most - len(faults))
        faults += site_faults
        count += late
        tick(sum(len(rows) for _number, rows in places))
    key, contacts, gap_ms, spare_ms = (
        np.concatenate([getattr(entry, name) for entry in groups]) for name in ("key", "contacts", "gap_ms", "spare_ms")
    )
    return AuditVerdict(key, contacts, gap_ms, spare_ms, faults, count)


def _parts(keys: Sequence[U64], part: int) -> Iterator[list[tuple[int, I64]]]:
    """The contacts of each journal, by range of their keys: each part has all contacts of its keys."""
    sample = np.sort(np.concatenate([np.ascontiguousarray(column[::SAMPLED]) for column in keys]))
    parts = max(-(-sum(len(column) for column in keys) // part), 1)
    cuts = distinct(sample[[len(sample) * number // parts for number in range(1, parts)]])
    number_of = [np.searchsorted(cuts, column, "right").astype(np.uint16) for column in keys]
    for number in range(len(cuts) + 1):
        yield [(journal, np.flatnonzero(of == number)) for journal, of in enumerate(number_of)]


def _joined(parts: Sequence[Obligation]) -> Obligation:
    return Obligation(*(np.concatenate([getattr(part, name) for part in parts]) for name in Obligation.__dataclass_fields__))


def _joined_sites(parts: Sequence[SiteObligation]) -> SiteObligation:
    return SiteObligation(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in SiteObligation.__dataclass_fields__)
    )


def judge_groups(owed: Obligation, slack_ms: int, most: int) -> AuditVerdict:
    keys = distinct(owed.group)
    number = np.searchsorted(keys, owed.group).astype(np.int64)
    slots = np.ones(len(keys), np.int64)
    slots[number] = owed.slots
    ends = owed.end + owed.wait_ms
    gap, spare, bad = _compare(number, len(keys), owed.start, owed.end, ends, slots, slack_ms)
    pairs = _places(number, owed.start, ends, bad[:most])
    faults = [_fault("delay", owed, int(owed.group[after]), int(owed.wait_ms[before]), before, after) for before, after in pairs]
    late = _within_retry_after(owed, number, slots, slack_ms)
    for before, after in late[: most - len(faults)]:
        needed_ms = int(owed.until[before] - owed.end[before])
        faults.append(_fault("retry-after", owed, int(owed.group[after]), needed_ms, before, after))
    contacts = np.bincount(number, minlength=len(keys)).astype(np.int64)
    return AuditVerdict(keys, contacts, gap, spare, faults, len(bad) + len(late))


def _judge_sites(owed: SiteObligation, slack_ms: int, most: int) -> tuple[int, list[AuditFault]]:
    """How many came too soon, and the first of them."""
    keys = distinct(owed.site)
    number, ends = np.searchsorted(keys, owed.site).astype(np.int64), owed.end + owed.wait_ms
    slots = np.ones(len(keys), np.int64)
    _gap, _spare, bad = _compare(number, len(keys), owed.start, owed.end, ends, slots, slack_ms)
    pairs = _places(number, owed.start, ends, bad[:most])
    faults = [_fault("site", owed, int(owed.site[after]), int(owed.wait_ms[before]), before, after) for before, after in pairs]
    return len(bad), faults


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
    gaps, spares = starts - ends[earlier], starts - waits[earlier]
    which = np.flatnonzero(there)
    smallest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(smallest, owner[which], gaps[which])
    np.minimum.at(spare, owner[which], spares[which])
    is_judged = sizes > slots
    gap[is_judged] = smallest[is_judged]
    return gap, np.where(is_judged, spare, 0), np.flatnonzero(there & (spares < -slack_ms))


def _sorted(number: I64, times: I64) -> I64:
    """Times in order within each key, the keys one after the other."""
    base = int(times.min())
    bits = int(times.max() - base + 1).bit_length()
    return (np.sort(number << bits | (times - base)) & ((1 << bits) - 1)) + base


def _places(number: I64, start: I64, until: I64, bad: I64) -> list[tuple[int, int]]:
    """Of starts that came too soon, the contact itself and, of those that began before it, the one with the longest wait."""
    if not len(bad):
        return []
    by_start = np.lexsort((start, number))
    first = np.searchsorted(number[by_start], number[by_start[bad]])
    earlier = (by_start[low:position] for low, position in zip(first.tolist(), bad.tolist(), strict=True))
    return [
        (int(others[np.argmax(until[others])]), int(by_start[position]))
        for others, position in zip(earlier, bad.tolist(), strict=True)
    ]


def _within_retry_after(owed: Obligation, number: I64, slots: I64, slack_ms: int) -> list[tuple[int, int]]:
    """Contacts that began while a Retry-After of their group held. One too short for the clock does not follow itself."""
    asking = np.flatnonzero(owed.until > 0)
    if not len(asking):
        return []
    order = np.lexsort((owed.start, number))
    base = int(min(owed.start.min(), owed.end.min()))
    bits = int(max(owed.until.max(), owed.start.max()) + RACE_MS - base + 1).bit_length()
    keys = (number << bits | (owed.start - base))[order]
    of = number[asking] << bits
    race = np.where(slots[number[asking]] > 1, RACE_MS, 0)
    low = np.searchsorted(keys, of | (owed.end[asking] + race - base))
    high = np.searchsorted(keys, of | np.maximum(owed.until[asking] - slack_ms - base, 0))
    pairs = zip(asking.tolist(), low.tolist(), high.tolist(), strict=True)
    all_pairs = ((asker, int(order[position])) for asker, first, last in pairs for position in range(first, last))
    return [(asker, late) for asker, late in all_pairs if late != asker]


def _fault(what: str, owed: Obligation | SiteObligation, key: int, needed_ms: int, before: int, after: int) -> AuditFault:
    starts, ends = owed.start[[before, after]].tolist(), owed.end[[before, after]].tolist()
    first, second = ((int(owed.journal[position]), int(owed.row[position])) for position in (before, after))
    gap_ms = starts[1] - ends[0]
    times = starts[0], ends[0], starts[1], ends[1]
    return AuditFault("overlap" if gap_ms < 0 else what, key, first, second, times, gap_ms, needed_ms)
