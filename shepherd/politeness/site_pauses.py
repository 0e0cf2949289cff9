"""Which sites of a state have asked to be left alone, and who the owners of its sites are (`tenants`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shepherd.config import Politeness
from shepherd.formats.tables import I64, U64
from shepherd.politeness.delays import neighbours_ms
from shepherd.politeness.tenants import PausedSites, owner_number, owner_of
from shepherd.store.state.directory import State


def owners_in(state: State) -> Callable[[int, I64], U64]:
    """The owners of sites of a state, as numbers, by rows that are counted from a first one."""
    return lambda first, rows: np.array([owner_number(state.site_name(first + row)) for row in rows.tolist()], np.uint64)


class SitePause(NamedTuple):
    site: int
    qkey: int
    group: int  # from the filter; 0 = none
    owner: str
    until_ms: int
    shared_ms: int  # until when its neighbours are left alone, too


def site_pauses(state: State, now_ms: int, politeness: Politeness) -> list[SitePause]:
    """Of all sites of a state."""
    table = state.sites
    pauses = PausedSites.of(
        {name: table[name][0 : table.rows] for name in ("pause_s", "pause_end")}, now_ms, neighbours_ms(politeness)
    )
    columns = (table[name].take(pauses.rows).tolist() for name in ("site", "qkey", "group"))
    names = (owner_of(state.site_name(row)) for row in pauses.rows.tolist())
    return [
        SitePause(*values) for values in zip(*columns, names, pauses.until_ms.tolist(), pauses.shared_ms.tolist(), strict=True)
    ]
