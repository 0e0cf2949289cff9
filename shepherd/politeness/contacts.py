"""What a harvest says of sites and servers: addresses, robots files, how fast they are, when they may be asked again.

The newest record settles an address and a robots file; averages, back-offs and next contacts look at every record, because each
hop and each failed try was a contact too. Averages are integers, so that they are the same on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.arrays.keys import distinct, find_servers, find_sites, pick, run_starts, with_flag
from shepherd.arrays.lookup import Lookup
from shepherd.arrays.rows import end_s
from shepherd.formats.tables import (
    I64,
    JOURNAL,
    NO_OID,
    QKEY_NONE,
    SERVERS,
    SITES,
    U64,
    Array,
    Bools,
    Columns,
    JournalFlag,
    Kind,
    Reason,
    Records,
    Result,
    empty,
)
from shepherd.politeness import delays
from shepherd.politeness.quota import unresolved
from shepherd.politeness.tenants import Owners, common_demands, one_owner

MAX_U32 = 0xFFFFFFFF


SITE_CHANGED = (
    *("qkey", "robots_oid", "avg_ms", "qkey_checked", "qkey_next", "robots_checked", "robots_next"),
    *("robots_since", "robots_status", "crawl_delay_ms", "moves", "pause_s", "pause_end"),
)
SERVER_CHANGED = ("next_ms", "delay_ms", "avg_ms", "fetches", "errors", "backoff", "slots", "group")
CONTACT = np.dtype([(n, JOURNAL[n]) for n in ("qkey", "answered", "end_ms", "download_ms", "status", "result")])
NO_SITES = np.zeros(0, np.uint64)
WAITING = ("next_ms", "delay_ms", "backoff")
SET = (("qkey", "set_qkey"), ("slots", "slots"), ("group", "group"))
WITHOUT_ADDRESS = (Reason.GUARD, Reason.NO_ADDRESS, Reason.LOOKUP, Reason.LOOK_UPS)
SPEED_CONTACTS, SPEED_MS = 10, 10_000  # a reap of fewer contacts, or a shorter one, says nothing of what we can do


def apply_sites(sites: Columns, journal: Records, settled: Records, politeness: config.Politeness) -> dict[str, Array]:
    """The columns of these sites that a whole journal changes; `settled` is `newest` of it. It may speak of other sites too."""
    columns = {name: sites[name].copy() for name in SITE_CHANGED}
    lookup = Lookup(sites["site"])
    _addresses(columns, sites, lookup, pick(settled, settled["kind"] == Kind.QKEY), politeness)
    _robots(columns, sites, lookup, pick(settled, settled["kind"] == Kind.ROBOTS), politeness)
    row = lookup.find(_u64(journal["site"]))
    contact = (row >= 0) & contacts(journal) & (journal["kind"] != Kind.QKEY)
    columns["avg_ms"] = _average(sites["avg_ms"], row[contact], journal["download_ms"][contact])
    moved = (settled["kind"] == Kind.PAGE) & (settled["oid"] != NO_OID) & (settled["answered"] != settled["site"])
    from_ = lookup.find(_u64(settled["site"][moved]))
    columns["moves"] = _add(sites["moves"], from_[from_ >= 0])
    _pauses(columns, lookup, journal, delays.neighbours_ms(politeness))
    return columns


def _pauses(columns: dict[str, Array], lookup: Lookup, journal: Records, bound_ms: int) -> None:
    """What sites asked for themselves. A wait that binds their server in full is known from that."""
    row = lookup.find(_u64(journal["answered"]))
    which = np.flatnonzero((row >= 0) & contacts(journal) & (journal["kind"] != Kind.QKEY))
    row, some = row[which], pick(journal, which)
    crawl_ms = columns["crawl_delay_ms"][row].astype(np.int64)
    asked_ms = np.maximum(delays.retry_afters_ms(some["retry_after_s"]), np.where(crawl_ms > bound_ms, crawl_ms, 0))
    pause_s = -(-asked_ms // 1000)
    end = np.minimum(-(-some["end_ms"] // 1000) + pause_s, MAX_U32)
    order = np.argsort(end, kind="stable")  # of several the last one is assigned
    order = order[(pause_s[order] > 0) & (end[order] > columns["pause_end"][row[order]])]
    columns["pause_s"][row[order]], columns["pause_end"][row[order]] = pause_s[order], end[order]


def _addresses(
    columns: dict[str, Array], sites: Columns, lookup: Lookup, records: Records, politeness: config.Politeness
) -> None:
    row = lookup.find(_u64(records["site"]))
    fresh = (row >= 0) & (end_s(records) >= sites["qkey_checked"][row]) if len(sites["site"]) else row >= 0
    records, row = pick(records, fresh), row[fresh]
    resolved = records["result"] == Result.RESOLVED
    nowhere = np.uint64(QKEY_NONE << 56) | records["site"] & np.uint64(0xFFFFFF)
    default_s = np.where(resolved, politeness.qkey_ttl_s, politeness.qkey_retry_s)
    columns["qkey"][row] = np.where(resolved, records["qkey"], nowhere)
    columns["qkey_checked"][row] = end_s(records)
    columns["qkey_next"][row] = _later(records, np.where(records["valid_s"] > 0, records["valid_s"], default_s))


def _robots(columns: dict[str, Array], sites: Columns, lookup: Lookup, records: Records, politeness: config.Politeness) -> None:
    nowhere = np.isin(records["reason"], WITHOUT_ADDRESS) & (records["hops"] == 0)
    records = records[~nowhere | with_flag(records["flags"], JournalFlag.CONTACTED)]  # its address says enough of such a site
    row = lookup.find(_u64(records["site"]))
    records, row = pick(records, row >= 0), row[row >= 0]
    checked, end = sites["robots_checked"][row], end_s(records)
    fresh = (end > checked) | ((end == checked) & _answered(records))
    records, row = pick(records, fresh), row[fresh]
    result, status = records["result"], records["status"]
    stored, absent, answered = result == Result.STORED, _absent(records), _answered(records)
    wait_s = np.where(answered, politeness.robots_ttl_s, politeness.robots_retry_s)
    columns["robots_next"][row] = _later(records, wait_s)
    since = columns["robots_since"][row]
    columns["robots_since"][row] = np.where(answered, 0, np.where(since > 0, since, end_s(records)))
    columns["robots_checked"][row[answered]] = end_s(records)[answered]
    columns["robots_status"][row] = np.where(answered, status, 0)
    columns["robots_oid"][row[stored]] = records["oid"][stored]
    columns["robots_oid"][row[absent]] = NO_OID
    columns["crawl_delay_ms"][row[answered]] = np.where(absent, 0, records["crawl_delay_ms"])[answered]


def _absent(records: Records) -> Bools:
    """Robots files that are not there: everything is allowed."""
    result, status = records["result"], records["status"]
    refused = (result == Result.HARD) & (status >= 400) & (status < 500) & (status != 429)
    return np.asarray(refused | (result == Result.REDIRECT))


def _answered(records: Records) -> Bools:
    return np.asarray(np.isin(records["result"], (Result.STORED, Result.UNCHANGED)) | _absent(records))


@dataclass(frozen=True)
class ServerClaims:
    """What the sites of some servers want, in no order.

    A delay: each queue key once for the default, and again for what differs. Slots and a group: only where the filter sets them.
    And how many sites each has, where that may give it slots. A Crawl-delay is in `delay_ms` as far as one site may ask for it;
    longer ones are in `slow_*`, with the owners of the sites.
    """

    qkey: U64
    delay_ms: I64
    set_qkey: U64
    slots: Array
    group: U64
    many_qkey: U64
    sites: I64
    slow_qkey: U64
    slow_owner: U64
    slow_ms: I64


def claims(sites: Columns, politeness: config.Politeness, owners: Owners = one_owner) -> ServerClaims:
    """The claims of some sites; slices of a table add up. Most want the default, so few lines are left of many."""
    resolved = np.flatnonzero(~unresolved(sites["qkey"]))
    default_ms, bound_ms = delays.default_delay_ms(politeness), delays.neighbours_ms(politeness)
    qkey, delay_ms = sites["qkey"][resolved], delays.server_delays_ms(sites, default_ms, bound_ms)[resolved]
    slow = resolved[sites["crawl_delay_ms"][resolved] > bound_ms]
    odd = delay_ms != default_ms
    plain = distinct(qkey[~odd])
    delay_of_qkey = np.concatenate([np.full(len(plain), default_ms, np.int64), delay_ms[odd]])
    slots, group = sites["slots"][resolved], sites["group"][resolved]
    is_set = (slots > 0) | (group > 0)
    sites_by_qkey = (
        _sites_by_qkey(qkey, np.ones(len(qkey), np.int64))
        if politeness.sites_per_slot
        else _sites_by_qkey(qkey[:0], delay_ms[:0])
    )
    return ServerClaims(
        np.concatenate([plain, qkey[odd]]),
        delay_of_qkey,
        qkey[is_set],
        slots[is_set],
        group[is_set],
        *sites_by_qkey,
        sites["qkey"][slow],
        owners(slow),
        sites["crawl_delay_ms"][slow].astype(np.int64),
    )


def _sites_by_qkey(qkey: U64, sites: I64) -> tuple[U64, I64]:
    """Each queue key once, with the sum of its sites."""
    order = np.argsort(qkey, kind="stable")
    qkey = qkey[order]
    starts = np.flatnonzero(run_starts(qkey))
    return qkey[starts], np.add.reduceat(sites[order], starts) if len(starts) else sites[:0]


def join_claims(parts: Sequence[ServerClaims], politeness: config.Politeness) -> ServerClaims:
    """The claims of several slices, those of the default again once for each queue key; both in its order, for who looks up."""
    qkey = np.concatenate([np.zeros(0, np.uint64), *(part.qkey for part in parts)])
    delay_ms = np.concatenate([np.zeros(0, np.int64), *(part.delay_ms for part in parts)])
    default_ms = delays.default_delay_ms(politeness)
    odd = np.flatnonzero(delay_ms != default_ms)
    odd = odd.take(np.argsort(qkey.take(odd)))
    plain = distinct(np.delete(qkey, odd))
    set_qkey, slots, group = (np.concatenate([empty(SITES)[n], *(getattr(p, a) for p in parts)]) for n, a in SET)
    delay_of_qkey = np.concatenate([np.full(len(plain), default_ms, np.int64), delay_ms.take(odd)])
    many = np.concatenate([np.zeros(0, np.uint64), *(part.many_qkey for part in parts)])
    sites_by_qkey = _sites_by_qkey(many, np.concatenate([np.zeros(0, np.int64), *(part.sites for part in parts)]))
    slow = (
        np.concatenate([empty_column, *(getattr(part, name) for part in parts)])
        for name, empty_column in (
            ("slow_qkey", np.zeros(0, np.uint64)),
            ("slow_owner", np.zeros(0, np.uint64)),
            ("slow_ms", np.zeros(0, np.int64)),
        )
    )
    return ServerClaims(np.concatenate([plain, qkey.take(odd)]), delay_of_qkey, set_qkey, slots, group, *sites_by_qkey, *slow)


def server_contacts(journal: Records) -> Records:
    """Those fields that `apply_contacts` needs of the contacts with a server whose address is known; a journal can be large."""
    rows = np.flatnonzero(contacts(journal) & (journal["kind"] != Kind.QKEY) & ~unresolved(_u64(journal["qkey"])))
    slim = np.empty(len(rows), CONTACT)
    for name in CONTACT.names or ():
        slim[name] = journal[name][rows]
    return slim


def new_servers(qkey: U64, politeness: config.Politeness) -> dict[str, Array]:
    columns = empty(SERVERS, len(qkey))
    columns["qkey"] = qkey
    columns["slots"][:] = 1
    columns["delay_ms"][:] = delays.default_delay_ms(politeness)
    return columns


def server_delays(qkey: U64, old_ms: Array, claimed: ServerClaims) -> Array:
    """The delay of each server: the longest that one of its sites may ask of all, or that those of two owners ask for.

    As it was where it has no site. Others may claim, too.
    """
    row = find_sites(qkey, claimed.qkey)
    is_known = row >= 0
    delay_ms = np.full(len(old_ms), -1, np.int64)
    np.maximum.at(delay_ms, row[is_known], claimed.delay_ms[is_known])
    common_qkey, common_ms = common_demands(claimed.slow_qkey, claimed.slow_owner, claimed.slow_ms)
    row = find_sites(qkey, common_qkey)
    np.maximum.at(delay_ms, row[row >= 0], common_ms[row >= 0])
    return np.where(delay_ms >= 0, np.minimum(delay_ms, MAX_U32), old_ms).astype(np.uint32)


def settings(qkey: U64, claimed: ServerClaims, politeness: config.Politeness) -> dict[str, Array]:
    """Slots and group of each server: the most that one of its sites is given.

    Where the filter says nothing of slots, one, and one more for each further `sites_per_slot` sites, as a CDN has them.
    """
    columns = {"slots": np.zeros(len(qkey), SERVERS["slots"]), "group": np.zeros(len(qkey), SERVERS["group"])}
    row = find_sites(qkey, claimed.set_qkey)
    is_known = row >= 0
    for name in columns:
        np.maximum.at(columns[name], row[is_known], getattr(claimed, name)[is_known])
    slots = np.ones(len(qkey), np.int64)
    row = find_sites(qkey, claimed.many_qkey)
    slots[row[row >= 0]] = np.clip(claimed.sites[row >= 0] // max(politeness.sites_per_slot, 1), 1, max(politeness.most_slots, 1))
    columns["slots"] = np.where(columns["slots"] > 0, columns["slots"], slots).astype(SERVERS["slots"])
    return columns


def apply_contacts(
    servers: Columns, contact: Records, politeness: config.Politeness, strange: U64 = NO_SITES
) -> dict[str, Array]:
    """The columns that contacts change; every contact's server is here, with the delay that it has from now on.

    That a port of a `strange` site is closed says nothing of its server (`strange_ports`).
    """
    row = find_servers(servers["qkey"], _u64(contact["qkey"]))
    failed = np.isin(contact["result"], (Result.SOFT, Result.HARD, Result.SITE, Result.CONNECTION))
    slow_down = delays.are_slow_downs(contact["result"], contact["status"])
    counts = (contact["result"] != Result.CONNECTION) | (find_sites(strange, _u64(contact["answered"])) < 0)
    columns = {
        "fetches": _add(servers["fetches"], row),
        "errors": _add(servers["errors"], row[failed]),
        "avg_ms": _average(servers["avg_ms"], row, contact["download_ms"]),
        "backoff": delays.next_levels(servers["backoff"], row[counts], slow_down[counts], politeness.max_backoff),
    }
    waits_ms = delays.waits_ms(servers["delay_ms"], columns["backoff"])
    columns["next_ms"] = delays.next_contacts_ms(servers["next_ms"], waits_ms, row, contact["end_ms"])
    return columns


def believable_next_ms(servers: Columns, since_s: int) -> I64:
    """When each server may be asked, where all that is stored was known at a moment: no later than its wait from then."""
    waits_ms = delays.waits_ms(servers["delay_ms"], servers["backoff"])
    credible_ms = delays.credibles_ms(servers["next_ms"], waits_ms, since_s * 1000)
    is_ahead = credible_ms + delays.AHEAD_S * 1000 < servers["next_ms"]
    return np.where(is_ahead, credible_ms, servers["next_ms"])


def believable_sites(sites: Columns, since_s: int) -> dict[str, Array]:
    """Likewise what sites were asked for, and what they asked for themselves."""
    end = np.minimum(sites["pause_end"].astype(np.int64), since_s + sites["pause_s"].astype(np.int64))
    is_ahead = end + delays.AHEAD_S < sites["pause_end"]
    return {
        "pause_end": np.where(is_ahead, end, sites["pause_end"]).astype(SITES["pause_end"]),
        "qkey_checked": delays.believable_s(sites["qkey_checked"], since_s),
        "robots_checked": delays.believable_s(sites["robots_checked"], since_s),
        "robots_since": np.minimum(sites["robots_since"], since_s + delays.AHEAD_S).astype(SITES["robots_since"]),
    }


def apply_servers(servers: Columns, sites: Columns, journal: Records, politeness: config.Politeness) -> dict[str, Array]:
    """The new servers table, where all fits in memory: a row for every address; `sites` is as `apply_sites` left it."""
    contact, claimed = server_contacts(journal), claims(sites, politeness)
    qkey = distinct(np.concatenate([servers["qkey"], claimed.qkey, _u64(contact["qkey"])]))
    columns = new_servers(qkey, politeness)
    old = find_sites(qkey, servers["qkey"])
    for name in SERVERS:
        columns[name][old] = servers[name]
    columns["delay_ms"] = server_delays(qkey, columns["delay_ms"], claimed)
    columns |= settings(qkey, claimed, politeness)
    return columns | apply_contacts(columns, contact, politeness)


def speed(old: int, journal: Records) -> int:
    """Contacts in 1,000 s, a quarter of the way from what earlier reaps managed to what this one did."""
    contact = contacts(journal) & (journal["kind"] != Kind.QKEY)
    count = int(np.count_nonzero(contact))
    if count < SPEED_CONTACTS:
        return old
    span_ms = int(journal["end_ms"][contact].max()) - int(journal["start_ms"][contact].min())
    if span_ms < SPEED_MS:
        return old
    new = count * 1_000_000 // span_ms
    return (3 * old + new) // 4 if old else new


def contacts(journal: Records) -> Bools:
    """Records of a try that a server saw, or may have seen."""
    return np.asarray(with_flag(journal["flags"], JournalFlag.CONTACTED) | (journal["result"] == Result.CONNECTION))


def _average(old: Array, row: I64, sample_ms: Array) -> Array:
    """An eighth of the way to the mean of the new samples, or all of it where there was no average yet."""
    samples = np.bincount(row, minlength=len(old)).astype(np.int64)
    total = np.zeros(len(old), np.int64)
    np.add.at(total, row, sample_ms.astype(np.int64))
    mean = total // np.maximum(samples, 1)
    before = old.astype(np.int64)
    moved = np.where(before == 0, mean, (7 * before + mean) // 8)
    return np.where(samples > 0, moved, before).astype(np.uint32)


def _add(old: Array, row: I64) -> Array:
    return np.asarray(np.minimum(old + np.bincount(row, minlength=len(old)), MAX_U32), np.uint32)


def _later(records: Records, wait_s: Array) -> Array:
    return np.minimum(end_s(records).astype(np.int64) + wait_s, MAX_U32).astype(np.uint32)


def _u64(column: Array) -> U64:
    return np.ascontiguousarray(column, np.uint64)
