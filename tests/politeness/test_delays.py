"""The rules of delays: what is said of one server and what is said of whole tables is the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.config import MAX_RETRY_AFTER_S, Politeness
from shepherd.formats.tables import JOURNAL, NO_LIMIT, SERVERS, SITES, empty
from shepherd.formats.tables import Result as R
from shepherd.politeness import delays

DELAYS_MS = st.integers(0, 49 * 86_400_000)
LEVELS = st.integers(0, 20)
TIMES_MS = st.integers(0, 1 << 46)
RETRY_AFTERS_S = st.one_of(st.just(0), st.integers(0, 2 * MAX_RETRY_AFTER_S), st.just((1 << 32) - 1))
SERVER = st.tuples(TIMES_MS, DELAYS_MS, LEVELS)
CONTACT = st.tuples(st.integers(0, 3), TIMES_MS, RETRY_AFTERS_S, st.sampled_from([0, 200, 404, 429, 500, 503]))


def test_default_delay_is_that_of_the_configuration() -> None:
    assert delays.default_delay_ms(Politeness(delay_s=1.2345)) == 1234


@given(st.lists(st.tuples(st.one_of(st.just(NO_LIMIT), DELAYS_MS), DELAYS_MS)), DELAYS_MS)
def test_site_delay(sites: list[tuple[int, int]], default_ms: int) -> None:
    table = empty(SITES, len(sites))
    table["delay_ms"], table["crawl_delay_ms"] = (np.array([site[n] for site in sites], np.uint32) for n in (0, 1))
    assert delays.site_delays_ms(table, default_ms).tolist() == [delays.site_delay_ms(*site, default_ms) for site in sites]


@given(st.lists(st.tuples(st.sampled_from(list(R)), st.sampled_from([0, 200, 404, 428, 429, 500, 503, 504]))))
def test_slow_down(answers: list[tuple[R, int]]) -> None:
    records = np.zeros(len(answers), JOURNAL)
    records["result"], records["status"] = ([answer[n] for answer in answers] for n in (0, 1))
    flags = delays.are_slow_downs(records["result"], records["status"])
    assert flags.tolist() == [delays.is_slow_down(*answer) for answer in answers]


@given(st.lists(LEVELS, min_size=4, max_size=4), st.lists(CONTACT), LEVELS)
def test_back_off_over_a_journal(levels: list[int], contacts: list[tuple[int, int, int, int]], most: int) -> None:
    row = np.array([contact[0] for contact in contacts], np.int64)
    slow_down = np.array([delays.is_slow_down(R.SOFT, contact[3]) for contact in contacts], np.bool_)
    after = list(levels)
    for server, slow in zip(row.tolist(), slow_down.tolist(), strict=True):
        after[server] = delays.next_level(after[server], slow, most)
    assert delays.next_levels(np.array(levels, np.uint8), row, slow_down, most).tolist() == after


@given(st.lists(SERVER), TIMES_MS, st.integers(0, 1 << 46))
def test_wait_and_first_contact(servers: list[tuple[int, int, int]], now_ms: int, unsure_ms: int) -> None:
    table = empty(SERVERS, len(servers))
    for n, name in enumerate(("next_ms", "delay_ms", "backoff")):
        table[name] = np.array([server[n] for server in servers], SERVERS[name])
    waits = [delays.wait_ms(delay_ms, level) for _next_ms, delay_ms, level in servers]
    waits_ms = delays.waits_ms(table["delay_ms"], table["backoff"])
    assert waits_ms.tolist() == waits
    pairs = [(server[0], wait) for server, wait in zip(servers, waits, strict=True)]
    credible = delays.credibles_ms(table["next_ms"], waits_ms, now_ms)
    assert credible.tolist() == [delays.credible_ms(*pair, now_ms) for pair in pairs]
    for unsure in (0, unsure_ms):
        first = delays.first_contacts_ms(table["next_ms"], waits_ms, unsure, now_ms)
        assert first.tolist() == [delays.first_contact_ms(*pair, unsure, now_ms) for pair in pairs]


@given(st.lists(RETRY_AFTERS_S))
def test_retry_after(seconds: list[int]) -> None:
    assert delays.retry_afters_ms(np.array(seconds, np.uint32)).tolist() == [delays.retry_after_ms(one) for one in seconds]


@given(st.lists(SERVER, min_size=4, max_size=4), st.lists(CONTACT))
def test_next_contact_after_a_journal(servers: list[tuple[int, int, int]], contacts: list[tuple[int, int, int, int]]) -> None:
    waits = [delays.wait_ms(delay_ms, level) for _next_ms, delay_ms, level in servers]
    wanted = [
        max((end_ms + waits[n] for server, end_ms, _retry_s, _ in contacts if server == n), default=next_ms)
        for n, (next_ms, _delay_ms, _level) in enumerate(servers)
    ]
    row = np.array([contact[0] for contact in contacts], np.int64)
    records = np.zeros(len(contacts), JOURNAL)
    records["end_ms"] = np.array([contact[1] for contact in contacts], np.int64)
    next_ms = np.array([server[0] for server in servers], np.int64)
    assert delays.next_contacts_ms(next_ms, np.array(waits, np.int64), row, records["end_ms"]).tolist() == wanted


def test_retry_after_is_limited() -> None:
    assert delays.retry_after_ms(MAX_RETRY_AFTER_S + 1) == MAX_RETRY_AFTER_S * 1000
    assert delays.as_retry_after_s(49 * 86_400_000) == MAX_RETRY_AFTER_S
    assert delays.as_retry_after_s(1) == 1
