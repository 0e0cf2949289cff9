"""What each contact of a journal obliged us to: how long its server and its site had to be left alone after it.

The delay that held is what was known when a contact ended: the filter's or the default one, a Crawl-delay from the robots.txt
that brought it on, doubled for each failure in a row. A Crawl-delay and a Retry-After hold their site in full, and its group as
far as one site may ask. Where a table cannot tell what was known, the shorter delay counts; and as kept tables have no names,
that sites of two owners ask for more does not count. The rules of `politeness/delays` are computed anew here, on purpose: an
audit that used the same functions would share their faults. Of a journal only what is needed for this is kept (`Journal`), and it
is worked out for some contacts at a time: for all of a group together, because their delays depend on each other, or for all of a
site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd import config
from shepherd.arrays.keys import distinct, find_servers, find_sites, pick, with_flag
from shepherd.formats.tables import I64, NO_LIMIT, U64, Array, Bools, Columns, JournalFlag, Kind, Records, Result
from shepherd.politeness.quota import unresolved

SITE_COLUMNS = ("site", "delay_ms", "crawl_delay_ms", "group")
SERVER_COLUMNS = ("qkey", "delay_ms", "slots", "group")
SLOW_DOWN = (429, 503)
STEP: Final = 1 << 18  # contacts looked up at a time
CONTACT: Final = np.dtype(
    [
        *(("qkey", "<u8"), ("answered", "<u8"), ("start_ms", "<i8"), ("end_ms", "<i8"), ("retry_after_s", "<u4"), ("row", "<u4")),
        *(("status", "<u2"), ("hops", "<u2"), ("kind", "u1"), ("result", "u1"), ("spare", "<u2")),
    ]
)
RULE: Final = np.dtype([("site", "<u8"), ("end_ms", "<i8"), ("crawl_delay_ms", "<u4"), ("kind", "<u4")])


@dataclass(frozen=True)
class Span:
    """Where each of some sites is in rules that are sorted by site."""

    names: U64  # of the rules
    first: I64
    last: I64

    @classmethod
    def of(cls, rules: Records, sites: U64) -> Span:
        names = _u64(rules["site"])
        return cls(names, np.searchsorted(names, sites), np.searchsorted(names, sites, "right"))

    def ranges(self, rows: I64, site: U64) -> tuple[I64, I64]:
        """For sites whose rows are known or, where they are not (-1), by their names."""
        new = np.flatnonzero(rows < 0)
        if not len(self.first):
            return np.searchsorted(self.names, site), np.searchsorted(self.names, site, "right")
        first, last = self.first[rows], self.last[rows]
        first[new] = np.searchsorted(self.names, site[new])
        last[new] = np.searchsorted(self.names, site[new], "right")
        return first, last


@dataclass(frozen=True)
class Journal:
    """What one journal says, and what the tables of its state say of its sites and servers."""

    contacts: Records
    at_site: Array  # the row of each contact's site in `sites`, or -1
    at_server: Array  # and of its server in `servers`
    robots: Records  # by site and time
    lookups: Records  # likewise
    robots_of: Span  # by row of `sites`: where its robots files are
    lookups_of: Span
    sites: Columns
    servers: Columns
    group: U64  # of each contact
    after_answer: Bools  # of each: whether its site had answered an earlier one of this journal
    default_ms: int  # at most; of sites that the filter does not speak of
    bound_ms: int  # what one site may ask of its group
    max_backoff: int
    before: bool  # the tables are from before the reap, else as cork leaves them


@dataclass(frozen=True)
class Obligation:
    """Contacts of a group, and what each obliged us to."""

    journal: I64  # by number
    row: I64  # in that journal
    group: U64
    start: I64
    end: I64
    wait_ms: I64
    until: I64  # what a Retry-After asks of a group; 0 = nothing
    slots: I64


@dataclass(frozen=True)
class SiteObligation:
    """The same for contacts of a site."""

    journal: I64
    row: I64
    site: U64
    start: I64
    end: I64
    wait_ms: I64


def slim(records: Records, first_row: int) -> tuple[Records, Records]:
    """Of some records of a journal, from this row on: the contacts, and the records of rules and addresses."""
    kind, flags = records["kind"], records["flags"]
    is_fetch = np.isin(kind, (Kind.PAGE, Kind.ROBOTS))
    rows = np.flatnonzero(is_fetch & with_flag(flags, JournalFlag.CONTACTED) & ~unresolved(_u64(records["qkey"])))
    contacts = np.zeros(len(rows), CONTACT)
    contacts["row"] = rows + first_row
    for name in ("qkey", "answered", "start_ms", "end_ms", "retry_after_s", "status", "hops", "kind", "result"):
        contacts[name] = records[name][rows]
    rows = np.flatnonzero(((kind == Kind.ROBOTS) & ~with_flag(flags, JournalFlag.HOP)) | (kind == Kind.QKEY))
    rules = np.zeros(len(rows), RULE)
    for name in ("site", "end_ms", "crawl_delay_ms", "kind"):
        rules[name] = records[name][rows]
    return contacts, rules


def joined(parts: Iterable[tuple[Records, Records]], at_most: int) -> tuple[Records, Records]:
    """What `slim` gives for the parts of a journal of at most so many records, without holding it twice."""
    contacts, rules, count = np.empty(at_most, CONTACT), [np.zeros(0, RULE)], 0
    for some, part_rules in parts:
        contacts[count : count + len(some)] = some
        count += len(some)
        rules.append(part_rules)
    return contacts[:count], np.concatenate(rules)


def journal(
    contacts: Records, rules: Records, sites: Columns, servers: Columns, politeness: config.Politeness, before: bool
) -> Journal:
    count, default_ms = len(contacts), round(politeness.delay_s * 1000)
    group, at_site, at_server = np.empty(count, np.uint64), np.empty(count, np.int32), np.empty(count, np.int32)
    for first in range(0, count, STEP):
        some, part = contacts[first : first + STEP], slice(first, first + STEP)
        site_row, server_row = (
            find_sites(sites["site"], _u64(some["answered"])),
            find_servers(servers["qkey"], _u64(some["qkey"])),
        )
        of_site, of_server = _or_zero(sites["group"], site_row), _or_zero(servers["group"], server_row)
        group[part] = np.where(of_site > 0, of_site, np.where(of_server > 0, of_server, some["qkey"]))
        default_ms = min(default_ms, _least_recorded(sites, servers, site_row, server_row, default_ms))
        at_site[part], at_server[part] = site_row, server_row
    order = np.lexsort((rules["end_ms"], rules["site"]))
    robots, lookups = (pick(rules, order[rules["kind"][order] == kind]) for kind in (Kind.ROBOTS, Kind.QKEY))
    return Journal(
        contacts=contacts,
        at_site=at_site,
        at_server=at_server,
        robots=robots,
        lookups=lookups,
        robots_of=Span.of(robots, sites["site"]),
        lookups_of=Span.of(lookups, sites["site"]),
        sites=sites,
        servers=servers,
        group=group,
        after_answer=_after_answer(contacts),
        default_ms=default_ms,
        bound_ms=politeness.neighbours_s * 1000,
        max_backoff=politeness.max_backoff,
        before=before,
    )


def group_obligations(number: int, journal: Journal, rows: I64) -> Obligation:
    """These contacts, which have all that the journal has of their groups."""
    rows = rows[np.argsort(journal.group[rows], kind="stable")]  # what is looked up in order is found several times as fast
    some, group = pick(journal.contacts, rows), journal.group[rows]
    at_site, at_server = journal.at_site[rows].astype(np.int64), journal.at_server[rows].astype(np.int64)
    site, end = _u64(some["answered"]), some["end_ms"].astype(np.int64)
    slots = np.maximum(_or_zero(journal.servers["slots"], at_server).astype(np.int64), 1)
    own_ms, crawl_ms = _own_delay(journal, at_site, at_server), _crawl(journal, at_site, site, end)
    since = _known_since(journal, at_site, site)
    claims = [(group, since, own_ms), (group, np.maximum(since, end), np.minimum(crawl_ms, journal.bound_ms))]
    if journal.before:
        claims.append((group, np.zeros(len(rows), np.int64), _recorded(journal.servers, at_server)))
    delay_ms = _running(claims, group, end)
    level = _levels(group, end, journal.after_answer[rows], some["result"], some["status"], journal.max_backoff)
    retry_ms = np.minimum(_retry_ms(some), journal.bound_ms)
    return Obligation(
        journal=np.full(len(rows), number),
        row=some["row"].astype(np.int64),
        group=group,
        start=some["start_ms"].astype(np.int64),
        end=end,
        wait_ms=delay_ms << level,
        until=np.where(retry_ms > 0, end + retry_ms, 0),
        slots=_fewest(group, slots),
    )


def site_obligations(number: int, journal: Journal, rows: I64) -> SiteObligation:
    """Of these contacts those that tell which site was asked, and that we know."""
    rows = rows[np.argsort(journal.contacts["answered"][rows], kind="stable")]
    some = pick(journal.contacts, rows)
    at_site, at_server = journal.at_site[rows].astype(np.int64), journal.at_server[rows].astype(np.int64)
    hop = (some["kind"] == Kind.ROBOTS) & (some["hops"] > 0)
    site, end = _u64(some["answered"]), some["end_ms"].astype(np.int64)
    asked_ms = np.maximum(_crawl(journal, at_site, site, end), _retry_ms(some))
    wait_ms = np.maximum(_own_delay(journal, at_site, at_server), asked_ms)
    obligations = SiteObligation(
        np.full(len(rows), number), some["row"].astype(np.int64), site, some["start_ms"].astype(np.int64), end, wait_ms
    )
    return select(obligations, np.flatnonzero(~hop & (at_site >= 0)))


def select(obligations: SiteObligation, rows: I64) -> SiteObligation:
    return SiteObligation(*(getattr(obligations, name)[rows] for name in SiteObligation.__dataclass_fields__))


def _retry_ms(some: Records) -> I64:
    return np.minimum(some["retry_after_s"].astype(np.int64), config.MAX_RETRY_AFTER_S) * 1000


def _recorded(servers: Columns, rows: I64) -> I64:
    return np.where(rows >= 0, _or_zero(servers["delay_ms"], rows), 0).astype(np.int64)


def _least_recorded(sites: Columns, servers: Columns, at_site: I64, at_server: I64, default_ms: int) -> int:
    """A default that was raised since does not count. What is recorded of a server has the Crawl-delays of its sites in it, so
    the default was at most the least that is recorded of any server with a site that the filter does not speak of."""
    plain = (at_site >= 0) & (_or_zero(sites["delay_ms"], at_site) == NO_LIMIT)
    recorded_ms = _recorded(servers, at_server)[plain]
    return int(recorded_ms[recorded_ms > 0].min(initial=default_ms))


def _own_delay(journal: Journal, at_site: I64, at_server: I64) -> I64:
    """What the filter or the configuration asks for each contact's site."""
    asked_ms = np.where(at_site >= 0, _or_zero(journal.sites["delay_ms"], at_site), 0).astype(np.int64)
    default_ms = np.minimum(journal.default_ms, _recorded(journal.servers, at_server))
    return np.where(asked_ms == NO_LIMIT, default_ms, asked_ms)


def _crawl(journal: Journal, at_site: I64, site: U64, end: I64) -> I64:
    """The Crawl-delay of each contact's site, once it has ended: by the last robots.txt until then, else as in the table."""
    stored = np.where(at_site >= 0, _or_zero(journal.sites["crawl_delay_ms"], at_site), 0).astype(np.int64)
    robots, (first, last) = journal.robots, journal.robots_of.ranges(at_site, site)
    # Of a site's robots files, in order of time, the last that had ended; a step for each that any site has more of.
    place = first - 1
    for step in range(int((last - first).max(initial=0))):
        later = np.flatnonzero(first + step < last)
        place[later[robots["end_ms"][first[later] + step] <= end[later]]] += 1
    there = place >= first
    value = robots["crawl_delay_ms"][np.maximum(place, 0)].astype(np.int64) if len(robots) else stored
    return np.where(there, value, np.where(last > first, 0, stored))


def _known_since(journal: Journal, at_site: I64, site: U64) -> I64:
    """From when on a contact's site was known to be on its server: from its lookup in this reap, or all along."""
    if not len(journal.lookups):
        return np.zeros(len(site), np.int64)
    first, last = journal.lookups_of.ranges(at_site, site)
    return np.where(last > first, journal.lookups["end_ms"][np.minimum(first, len(journal.lookups) - 1)], 0).astype(np.int64)


def _running(claims: Sequence[tuple[U64, I64, I64]], group: U64, moments: I64) -> I64:
    """The largest claim on each group that had been made by a moment."""
    keys, base = distinct(group), int(moments.min(initial=0)) - 1
    of = np.concatenate([np.searchsorted(keys, who) for who, _, _ in claims]).astype(np.int64)
    since, moments = np.maximum(np.concatenate([moment for _, moment, _ in claims]), base) - base, moments - base
    value = np.concatenate([claim for _, _, claim in claims])
    bits = int(max(since.max(initial=0), moments.max(initial=0)) + 1).bit_length()
    order = np.argsort(of << bits | since, kind="stable")
    largest = np.maximum.accumulate(of[order] << 33 | value[order])  # a group's claims do not reach into the next one's
    number = np.searchsorted(keys, group).astype(np.int64)
    place = np.searchsorted((of << bits | since)[order], number << bits | moments, "right") - 1
    if not len(moments):
        return moments
    claims_made = largest[np.maximum(place, 0)]
    return np.where(
        (place >= 0) & (claims_made >> 33 == number), claims_made & ((1 << 33) - 1), 0
    )  # else nothing was claimed by then


def _levels(group: U64, end: I64, after_answer: Bools, result: Array, status: Array, limit: int) -> I64:
    """How many failures in a row each contact ends with.

    That nobody takes connections counts where the site has answered before: else its port may be one that anybody has named.
    """
    level = np.zeros(len(group), np.int64)
    countable = np.flatnonzero((result != Result.CONNECTION) | after_answer)
    some = (group[countable], end[countable], result[countable], status[countable])
    level[countable] = _levels_in_row(*some, limit)
    return level


def _after_answer(contacts: Records) -> Bools:
    site, end, answered = _u64(contacts["answered"]), contacts["end_ms"], contacts["result"] != Result.CONNECTION
    sites = distinct(site)
    number = np.searchsorted(sites, site)
    first = np.full(len(sites), np.iinfo(np.int64).max)
    np.minimum.at(first, number[answered], end[answered])
    return np.asarray(first[number] < end)


def _levels_in_row(group: U64, end: I64, result: Array, status: Array, limit: int) -> I64:
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


def _or_zero(column: Array, rows: I64) -> Array:
    return np.where(rows >= 0, column[np.maximum(rows, 0)], 0) if len(column) else np.zeros(len(rows), column.dtype)


def _u64(column: Array) -> U64:
    return np.ascontiguousarray(column, np.uint64)
