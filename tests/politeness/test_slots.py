"""How many slots an address has: by the filter, and by how many sites it carries."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from shepherd.config import Plan, Politeness
from shepherd.formats.tables import JOURNAL, NO_LIMIT, SERVERS, SITES, Array, empty
from shepherd.politeness import contacts
from shepherd.politeness.quota import servers_of
from shepherd.urls import qkey_of_address

POLITENESS = Politeness(sites_per_slot=10, most_slots=4)
CDN, SMALL, FEW, HUGE = (qkey_of_address(f"192.0.2.{n}") for n in range(1, 5))
QKEYS = np.array([CDN] * 25 + [SMALL] * 3 + [FEW] * 30 + [HUGE] * 90, np.uint64)


def sites() -> dict[str, Array]:
    table = empty(SITES, len(QKEYS))
    table["site"] = np.arange(1, len(QKEYS) + 1, dtype=np.uint64)
    table["qkey"] = QKEYS
    for name in ("delay_ms", "soft_limit", "hard_limit", "fresh_limit"):
        table[name][:] = NO_LIMIT
    table["slots"][np.uint64(FEW) == QKEYS] = 1  # the filter says so
    return table


def slots_of(politeness: Politeness, steps: int = 1) -> dict[int, int]:
    table = sites()
    cuts = np.linspace(0, len(QKEYS), steps + 1).astype(int)
    parts = [{name: column[a:b] for name, column in table.items()} for a, b in pairwise(cuts.tolist())]
    claimed = contacts.join_claims([contacts.claims(part, politeness) for part in parts], politeness)
    qkey = np.unique(QKEYS)
    return dict(zip(qkey.tolist(), contacts.settings(qkey, claimed, politeness)["slots"].tolist(), strict=True))


@pytest.mark.parametrize("steps", [1, 7, 148])
def test_address_of_many_sites_has_more_slots_however_the_table_is_cut(steps: int) -> None:
    assert slots_of(POLITENESS, steps) == {CDN: 2, SMALL: 1, FEW: 1, HUGE: 4}


def test_address_has_one_slot_below_the_setting_or_without_it() -> None:
    assert set(slots_of(Politeness(sites_per_slot=0)).values()) == {1}
    assert set(slots_of(Politeness()).values()) == {1}


def test_plan_counts_on_the_slots_that_cork_has_written() -> None:
    table = sites()
    servers = contacts.apply_servers(empty(SERVERS), table, np.zeros(0, JOURNAL), POLITENESS)
    found = servers_of(table, servers, now_s=1_000, plan=Plan(reap_s=1_000), politeness=POLITENESS)
    quota = {int(qkey): int(found.quota[n]) for n, qkey in enumerate(servers["qkey"].tolist())}
    assert quota == {CDN: 200, SMALL: 100, FEW: 100, HUGE: 400}
