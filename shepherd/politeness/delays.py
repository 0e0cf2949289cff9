"""How long a server must be left alone: its delay, the steps of its back-off, and what a Retry-After may ask for.

The one owner of these rules. A rule that is needed both for one server and for whole tables stands here twice, side by side: as
a function of numbers, for dispatchers, and as one of columns, for the phases. Tests hold the two equal. Only the audit
(`politeness/audit` and `obligations`) computes the same anew, on purpose: it must find what is wrong here.

A wait is the delay, doubled for each step of the back-off. It begins when a contact ends. A pause is what a site has asked for
itself: by a Retry-After, or by a Crawl-delay that is longer than what it may ask of its neighbours (`tenants`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shepherd.config import DAY_S, MAX_RETRY_AFTER_S, Politeness
from shepherd.formats.tables import I64, NO_LIMIT, U8, Array, Bools, Columns, Result

SLOW_DOWN: Final = (429, 503)
AHEAD_S: Final = 60  # a moment that is said to have been, and is this much ahead, was written when a clock was wrong
REUSE_DELAY_MS: Final = 2_000  # a kept connection may be resent on silently by libcurl: only where that is harmless


# --- what is asked for ----------------------------------------------------------------------------------------------


def default_delay_ms(politeness: Politeness) -> int:
    """The delay where no line of the filter speaks of a site."""
    return round(politeness.delay_s * 1000)


def site_delay_ms(filter_delay_ms: int, crawl_delay_ms: int, default_ms: int) -> int:
    """What a site asks for: the filter's delay, or the default where it is NO_LIMIT, and at least its Crawl-delay."""
    return max(default_ms if filter_delay_ms == NO_LIMIT else filter_delay_ms, crawl_delay_ms)


def site_delays_ms(sites: Columns, default_ms: int) -> I64:
    filter_delay_ms = np.where(sites["delay_ms"] == NO_LIMIT, default_ms, sites["delay_ms"].astype(np.int64))
    return np.maximum(filter_delay_ms, sites["crawl_delay_ms"].astype(np.int64))


def neighbours_ms(politeness: Politeness) -> int:
    """What a site may ask of its neighbours on a server, at most."""
    return politeness.neighbours_s * 1000


def server_delays_ms(sites: Columns, default_ms: int, bound_ms: int) -> I64:
    """What each site asks of its server: as of itself, but a Crawl-delay no longer than the bound."""
    crawl_delay_ms = np.minimum(sites["crawl_delay_ms"].astype(np.int64), bound_ms)
    return site_delays_ms({"delay_ms": sites["delay_ms"], "crawl_delay_ms": crawl_delay_ms}, default_ms)


def may_reuse(delay_ms: int) -> bool:
    """Whether the next request to a server may go over a kept connection."""
    return delay_ms <= REUSE_DELAY_MS


# --- back-off -------------------------------------------------------------------------------------------------------


def is_slow_down(result: int, status: int) -> bool:
    """Whether an answer is a failure that a pause may mend."""
    return result == Result.CONNECTION or status in SLOW_DOWN


def are_slow_downs(result: Array, status: Array) -> Bools:
    return np.asarray((result == Result.CONNECTION) | np.isin(status, SLOW_DOWN))


def next_level(level: int, slow_down: bool, max_backoff: int) -> int:
    """The step of the back-off after one contact: one more after a slow-down, none after anything else."""
    return min(level + 1, max_backoff) if slow_down else 0


def next_levels(levels: Array, row: I64, slow_down: Bools, max_backoff: int) -> U8:
    """The steps after all contacts of a journal, in its order; `row` is the server of each."""
    position = np.arange(len(row), dtype=np.int64)
    last_success = np.full(len(levels), -1, np.int64)
    last_success[row[~slow_down]] = position[~slow_down]
    since = slow_down & (position > last_success[row])
    steps = np.bincount(row[since], minlength=len(levels)) + np.where(last_success < 0, levels, 0)
    has_contact = np.bincount(row, minlength=len(levels)) > 0
    return np.where(has_contact, np.minimum(steps, max_backoff), levels).astype(np.uint8)


def wait_ms(delay_ms: int, level: int) -> int:
    """How long a server is left alone after a contact."""
    return delay_ms << level


def waits_ms(delay_ms: Array, level: Array) -> I64:
    return delay_ms.astype(np.int64) << level.astype(np.int64)


# --- Retry-After ----------------------------------------------------------------------------------------------------


def retry_after_ms(retry_after_s: int) -> int:
    """What a site asked for itself, as far as anybody may ask: a day."""
    return min(retry_after_s, MAX_RETRY_AFTER_S) * 1000


def retry_afters_ms(retry_after_s: Array) -> I64:
    return np.minimum(retry_after_s.astype(np.int64), MAX_RETRY_AFTER_S) * 1000


def as_retry_after_s(crawl_delay_ms: int) -> int:
    """A Crawl-delay that no table knows yet, where a Retry-After is all that can be left in its place."""
    return min(-(-crawl_delay_ms // 1000), MAX_RETRY_AFTER_S)


def pauses_ms(pause_s: Array, pause_end_s: Array, now_ms: int) -> I64:
    """Until when sites are left alone: no longer than they asked for, counted from now, whatever a clock once showed."""
    return np.minimum(pause_end_s.astype(np.int64) * 1000, now_ms + pause_s.astype(np.int64) * 1000)


# --- clocks that were wrong -----------------------------------------------------------------------------------------


def is_to_come(next_s: int, now_s: int, longest_s: int) -> bool:
    """Whether a stored moment is yet to come. One that is further ahead than anybody could have put it is over."""
    return now_s < next_s <= now_s + longest_s + AHEAD_S


def are_to_come(next_s: Array, now_s: int, longest_s: int) -> Bools:
    return np.asarray((next_s > now_s) & (next_s.astype(np.int64) <= now_s + longest_s + AHEAD_S))


def believable_s(moment_s: Array, now_s: int) -> Array:
    """When something was done; what is said to have been done in the future counts as never done."""
    return np.where(moment_s.astype(np.int64) > now_s + AHEAD_S, 0, moment_s).astype(moment_s.dtype)


def longest_robots_s(politeness: Politeness) -> int:
    """How far ahead a robots.txt may be put off."""
    return max(politeness.robots_ttl_s, politeness.robots_retry_s)


def longest_lookup_s(politeness: Politeness) -> int:
    """How far ahead a look-up may be put off: by us, or by name servers, which are believed for a day."""
    return max(politeness.qkey_ttl_s, politeness.qkey_retry_s, DAY_S)


# --- the next contact -----------------------------------------------------------------------------------------------


def next_contacts_ms(next_ms: I64, waits_ms: I64, row: I64, end_ms: Array) -> I64:
    """From when on each server may be asked after all contacts of a journal; one without any keeps its `next_ms`.

    What its sites asked for besides stands with them: as pauses.
    """
    never = np.iinfo(np.int64).min
    last_ms = np.full(len(next_ms), never, np.int64)
    np.maximum.at(last_ms, row, end_ms)
    has_contact = last_ms != never
    return np.where(has_contact, np.where(has_contact, last_ms, 0) + waits_ms, next_ms)


def credible_ms(next_ms: int, wait_ms: int, now_ms: int) -> int:
    """A stored time, but no later than a wait from now: a clock that was once ahead must not keep a server waiting."""
    return min(next_ms, now_ms + wait_ms)


def credibles_ms(next_ms: I64, waits_ms: I64, now_ms: int) -> I64:
    return np.asarray(np.minimum(next_ms, now_ms + waits_ms))


def first_contact_ms(next_ms: int, wait_ms: int, unsure_ms: int, now_ms: int) -> int:
    """When a server may be asked first. Until `unsure_ms` (0 = never) somebody may have asked it without a record of that."""
    return max(credible_ms(next_ms, wait_ms, now_ms), unsure_ms + wait_ms if unsure_ms else 0)


def first_contacts_ms(next_ms: I64, waits_ms: I64, unsure_ms: int, now_ms: int) -> I64:
    return np.maximum(credibles_ms(next_ms, waits_ms, now_ms), unsure_ms + waits_ms if unsure_ms else 0)
