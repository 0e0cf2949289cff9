"""Were servers asked too soon? Worked out again from journals alone, without trusting the groups that handed out the requests.

A group with k slots was treated well if, of its contacts sorted by start and by the end of the wait that follows each, the n-th
start comes after the (n - k)-th wait: then k slots that each kept their delay can have made them. The same with one slot holds
for each site. The delay that held is what was known when a contact ended: the filter's or the default one, a Crawl-delay from the
robots.txt that brought it on, doubled for each failure in a row; and a Retry-After holds the whole group. Where a table cannot
tell what was known, the audit takes the shorter delay: it accuses nobody wrongly.

Sorting is all it costs: times and groups go into one integer each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.formats.tables import I64, NO_LIMIT, U64, Array, Columns, JournalFlag, Kind, Records, Result
from shepherd.phases.keys import distinct, find_sites, with_flag
from shepherd.phases.quota import unresolved

SITE_COLUMNS = ("site", "delay_ms", "crawl_delay_ms", "group")
SERVER_COLUMNS = ("qkey", "delay_ms", "slots", "group")
RACE_MS = 10_000  # with several slots, a request may be on its way while another one is told to stay away
SLOW_DOWN = (429, 503)


@dataclass(frozen=True)
class Held:
    """Contacts, and what each obliged us to."""

    row: I64  # in the journal
    group: U64
    site: U64
    start: I64
    end: I64
    wait_ms: I64  # for the group
    site_wait_ms: I64  # for the site; -1 where the record does not tell which site was asked
    until: I64  # what a Retry-After asked for; 0 = nothing
    slots: I64


@dataclass(frozen=True)
class Fault:
    """Two contacts that are too close: positions in `Held`, and what was kept and had to be."""

    what: str  # overlap, delay, retry-after, site
    key: int
    before: int
    after: int
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


def held(journal: Records, sites: Columns, servers: Columns, politeness: config.Politeness, before: bool) -> Held:
    """The contacts of one journal. The tables are those of its state: from before the reap, or (as cork leaves them) after it."""
    rows = np.flatnonzero(with_flag(journal["flags"], JournalFlag.CONTACTED) & ~unresolved(_u64(journal["qkey"])))
    rows = rows[np.isin(journal["kind"][rows], (Kind.PAGE, Kind.ROBOTS))]
    rows = rows[np.argsort(_u64(journal["qkey"][rows]), kind="stable")]  # looking up what is sorted is several times as fast
    qkey, site = _u64(journal["qkey"][rows]), _u64(journal["answered"][rows])
    at_site, at_server = find_sites(sites["site"], site), find_sites(servers["qkey"], qkey)
    group = _or_zero(sites["group"], at_site)
    group = np.where(group > 0, group, _or_zero(servers["group"], at_server))
    group = np.where(group > 0, group, qkey)
    start, end = journal["start_ms"][rows].astype(np.int64), journal["end_ms"][rows].astype(np.int64)
    slots = np.maximum(_or_zero(servers["slots"], at_server).astype(np.int64), 1)
    recorded_ms = np.where(at_server >= 0, _or_zero(servers["delay_ms"], at_server), 0).astype(np.int64)
    own_ms = _own_delay(sites, at_site, recorded_ms, politeness)
    crawl_ms = _crawl(journal, sites, at_site, site, end)
    since = _met(journal, site, qkey)
    claims = [(group, since, own_ms), (group, np.maximum(since, end), crawl_ms)]
    if before:
        claims.append((group, np.zeros(len(rows), np.int64), recorded_ms))
    delay_ms = _running(claims, group, end)
    level = _levels(group, end, journal["result"][rows], journal["status"][rows], politeness.max_backoff)
    retry_s = np.minimum(journal["retry_after_s"][rows].astype(np.int64), config.MAX_RETRY_AFTER_S)
    hop = (journal["kind"][rows] == Kind.ROBOTS) & (journal["hops"][rows] > 0)
    return Held(
        row=rows,
        group=group,
        site=site,
        start=start,
        end=end,
        wait_ms=delay_ms << level,
        site_wait_ms=np.where(hop | (at_site < 0), -1, np.maximum(own_ms, crawl_ms)),
        until=np.where(retry_s > 0, end + retry_s * 1000, 0),
        slots=_fewest(group, slots),
    )


def join(parts: Sequence[Held]) -> Held:
    """Contacts of several journals as one; `row` then counts through all of them."""
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Held.__dataclass_fields__}
    return Held(**joined | {"row": np.arange(len(joined["start"]), dtype=np.int64)})


def judge(found: Held, slack_ms: int, most: int) -> Verdict:
    """Compare what was kept with what had to be; of faults, the first `most` are told one by one."""
    keys = distinct(found.group)
    number = np.searchsorted(keys, found.group).astype(np.int64)
    slots = np.ones(len(keys), np.int64)
    slots[number] = found.slots
    ends = found.end + found.wait_ms
    gap, spare, bad = _compare(number, len(keys), found.start, found.end, ends, slots, slack_ms)
    faults = [_fault("delay", found, one) for one in _places(number, found, ends, bad, slots)[:most]]
    count = len(bad)
    asked = np.flatnonzero(found.site_wait_ms >= 0)
    sites = distinct(found.site[asked])
    of_site = np.searchsorted(sites, found.site[asked]).astype(np.int64)
    part = Held(*(getattr(found, name)[asked] for name in Held.__dataclass_fields__))
    site_ends, one_slot = part.end + part.site_wait_ms, np.ones(len(sites), np.int64)
    _gap, _spare, bad = _compare(of_site, len(sites), part.start, part.end, site_ends, one_slot, slack_ms)
    told = _places(of_site, part, site_ends, bad, one_slot)[: most - len(faults)]
    faults += [_fault("site", found, (int(asked[before]), int(asked[after]))) for before, after in told]
    count += len(bad)
    late = _within_retry_after(found, number, slots, slack_ms)
    faults += [_fault("retry-after", found, one) for one in late[: most - len(faults)]]
    contacts = np.bincount(number, minlength=len(keys)).astype(np.int64)
    return Verdict(keys, contacts, gap, spare, faults, count + len(late))


# --- what held ------------------------------------------------------------------------------------------------------


def _own_delay(sites: Columns, at: I64, recorded_ms: I64, politeness: config.Politeness) -> I64:
    """What the filter or the configuration asks for each contact's site; a default that was raised since does not count.

    What is recorded of a server has the Crawl-delays of its sites in it, so the default was at most the least that is recorded
    of any server with such a site.
    """
    told = np.where(at >= 0, _or_zero(sites["delay_ms"], at), 0).astype(np.int64)
    plain = recorded_ms[(at >= 0) & (told == NO_LIMIT) & (recorded_ms > 0)]
    default_ms = np.minimum(plain.min(initial=round(politeness.delay_s * 1000)), recorded_ms)
    return np.where(at < 0, 0, np.where(told == NO_LIMIT, default_ms, told))


def _crawl(journal: Records, sites: Columns, at: I64, site: U64, end: I64) -> I64:
    """The Crawl-delay of each contact's site, once it has ended: by the last robots.txt until then, else as in the table."""
    kind, flags = journal["kind"], journal["flags"]
    asked = np.flatnonzero((kind == Kind.ROBOTS) & ~with_flag(flags, JournalFlag.HOP))
    robots_site, robots_end = _u64(journal["site"][asked]), journal["end_ms"][asked].astype(np.int64)
    order = np.lexsort((robots_end, robots_site))
    robots_site, robots_end, value = robots_site[order], robots_end[order], journal["crawl_delay_ms"][asked][order]
    names = distinct(robots_site)
    if not len(names):
        return np.where(at >= 0, _or_zero(sites["crawl_delay_ms"], at), 0).astype(np.int64)
    place = np.searchsorted(names, site)
    known = (place < len(names)) & (names[np.minimum(place, len(names) - 1)] == site)
    base = min(int(end.min(initial=0)), int(robots_end.min()))
    bits = int(max(end.max(initial=0), robots_end.max()) - base + 1).bit_length()
    key = np.searchsorted(names, robots_site).astype(np.int64) << bits | (robots_end - base)
    last = np.searchsorted(key, place.astype(np.int64) << bits | (end - base), side="right") - 1
    there = known & (last >= 0) & (robots_site[np.maximum(last, 0)] == site)
    stored = np.where(at >= 0, _or_zero(sites["crawl_delay_ms"], at), 0)
    return np.where(there, value[np.maximum(last, 0)], np.where(known, 0, stored)).astype(np.int64)


def _met(journal: Records, site: U64, qkey: U64) -> I64:
    """From when on a contact's site was known to be on its server: from its lookup in this reap, or all along."""
    looked = np.flatnonzero(journal["kind"] == Kind.QKEY)
    order = looked[np.argsort(journal["site"][looked], kind="stable")]
    names = _u64(journal["site"][order])
    first = np.searchsorted(names, site)
    there = first < len(names)
    first = np.minimum(first, max(len(names) - 1, 0))
    if not len(names):
        return np.zeros(len(site), np.int64)
    return np.where(there & (names[first] == site), journal["end_ms"][order][first], 0).astype(np.int64)


def _running(claims: Sequence[tuple[U64, I64, I64]], group: U64, at: I64) -> I64:
    """The largest claim on each group that had been made by a moment."""
    keys, base = distinct(group), int(at.min(initial=0)) - 1
    of = np.concatenate([np.searchsorted(keys, who) for who, _, _ in claims]).astype(np.int64)
    since, at = np.maximum(np.concatenate([moment for _, moment, _ in claims]), base) - base, at - base
    value = np.concatenate([wanted for _, _, wanted in claims])
    bits = int(max(since.max(initial=0), at.max(initial=0)) + 1).bit_length()
    order = np.argsort(of << bits | since, kind="stable")
    largest = np.maximum.accumulate(of[order] << 33 | value[order])  # a group's claims do not reach into the next one's
    place = np.searchsorted((of << bits | since)[order], np.searchsorted(keys, group).astype(np.int64) << bits | at, "right") - 1
    return np.where(place >= 0, largest[np.maximum(place, 0)] & ((1 << 33) - 1), 0) if len(at) else at


def _levels(group: U64, end: I64, result: Array, status: Array, limit: int) -> I64:
    """How many failures in a row each contact ends with."""
    order = np.lexsort((end, group))
    slow = ((result == Result.CONNECTION) | np.isin(status, SLOW_DOWN))[order]
    new = np.ones(len(order), bool)
    new[1:] = group[order][1:] != group[order][:-1]
    place = np.arange(len(order), dtype=np.int64)
    last = np.maximum.accumulate(np.where(~slow, place, np.where(new, place - 1, -1)))
    level = np.zeros(len(order), np.int64)
    level[order] = np.minimum(place - last, limit)
    return level


def _fewest(group: U64, slots: I64) -> I64:
    keys = distinct(group)
    number = np.searchsorted(keys, group)
    fewest = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(fewest, number, slots)
    return fewest[number]


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


def _places(number: I64, found: Held, until: I64, bad: I64, slots: I64) -> list[tuple[int, int]]:
    """Of starts that came too soon, the contact itself and the one whose wait it cut short."""
    if not len(bad):
        return []
    by_start, by_wait = np.lexsort((found.start, number)), np.lexsort((until, number))
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


def _fault(what: str, found: Held, places: tuple[int, int]) -> Fault:
    before, after = places
    gap_ms = int(found.start[after] - found.end[before])
    waits = {"delay": found.wait_ms, "site": found.site_wait_ms, "retry-after": found.until - found.end}
    key = int((found.site if what == "site" else found.group)[after])
    return Fault("overlap" if gap_ms < 0 else what, key, before, after, gap_ms, int(waits[what][before]))


def _or_zero(column: Array, at: I64) -> Array:
    return np.where(at >= 0, column[np.maximum(at, 0)], 0) if len(column) else np.zeros(len(at), column.dtype)


def _u64(column: Array) -> U64:
    return np.ascontiguousarray(column, np.uint64)
