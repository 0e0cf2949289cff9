"""What a site may ask of its neighbours, the other sites of its server; and which sites have asked to be left alone.

A Crawl-delay or a Retry-After binds the site that says it, in full. Its neighbours it binds for `politeness.neighbours_s` at
most. For longer they are bound by what sites of two owners say: whoever has one name on a server must not silence all others.

The owner of a site is the registrable domain of its host, or all of an address: nobody has two of these without having registered
two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import run_ends, run_starts
from shepherd.domains import registrable
from shepherd.formats.check import check64
from shepherd.formats.tables import I64, U64, Bools, Columns
from shepherd.politeness.delays import AHEAD_S, pauses_ms

Owners = Callable[[I64], U64]  # of some rows of the site table


def owner_of(site: str) -> str:
    """Of `scheme://host[:port]`."""
    host = site.partition("://")[2]
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return registrable(host.partition(":")[0])


def owner_number(site: str) -> int:
    """The same as a number, for arrays."""
    return check64(owner_of(site).encode())


def one_owner(rows: I64) -> U64:
    """Where names are not known, all count as one."""
    return np.zeros(len(rows), np.uint64)


# --- what two owners agree on ---------------------------------------------------------------------------------------


class Accord:
    """What the sites of one server or group ask for, in any order: the largest that two owners both have asked for."""

    __slots__ = ("_largest",)

    def __init__(self) -> None:
        self._largest: dict[str, int] = {}

    def add(self, owner: str, value: int) -> None:
        self._largest[owner] = max(value, self._largest.get(owner, 0))

    @property
    def value(self) -> int:
        """0 = they do not agree on anything."""
        return sorted(self._largest.values())[-2] if len(self._largest) > 1 else 0


def common_demands(keys: U64, owners: U64, values: I64) -> tuple[U64, I64]:
    """The same for many at once: the keys about which two owners agree, each once and in order, and on what."""
    order = np.lexsort((values, owners, keys))
    keys, owners, values = keys[order], owners[order], values[order]
    largest = run_ends(run_starts(keys, owners))  # of each owner
    keys, values = keys[largest], values[largest]
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    last = np.flatnonzero(run_ends(run_starts(keys)))
    second = last[(last > 0) & (keys[last - 1] == keys[last])] - 1
    return keys[second], values[second]


# --- who has asked to be left alone ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PausedSites:
    """The rows of the sites that may not be asked yet, because they said so; until when, and until when their neighbours."""

    rows: I64
    until_ms: I64
    shared_ms: I64
    anew: Bools  # a wrong clock has put them off: they wait from now on

    @classmethod
    def of(cls, sites: Columns, now_ms: int, bound_ms: int) -> PausedSites:
        rows = np.flatnonzero(sites["pause_end"].astype(np.int64) * 1000 > now_ms)
        pause_s, stored_s = sites["pause_s"][rows], sites["pause_end"][rows]
        until_ms, asked_ms = pauses_ms(pause_s, stored_s, now_ms), pause_s.astype(np.int64) * 1000
        shared_ms = until_ms - asked_ms + np.minimum(asked_ms, bound_ms)  # counted from when they said so
        return cls(rows, until_ms, shared_ms, until_ms + AHEAD_S * 1000 < stored_s.astype(np.int64) * 1000)
