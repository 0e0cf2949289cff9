"""The settings and servers of the sites, those of each partition of the index together.

Sites are sorted by their own footprint and rows by that of their normalised site, so each partition would have to look for its
sites all over the table. Instead the table is read once, in order, and spread. Settings that no site has are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import stable_order
from shepherd.arrays.lookup import ranges_of
from shepherd.arrays.partitions import partitions
from shepherd.arrays.pool import ordered, tasks
from shepherd.arrays.spill import Spill
from shepherd.cycle.select.server_capacity import ServerCapacities, server_of
from shepherd.cycle.select.survey import SETTINGS
from shepherd.formats.tables import I64, U64, Array
from shepherd.store.state.directory import State


class SitesOf:
    """The sites of each partition, put aside by chunks of the table of sites."""

    def __init__(
        self, spill: Spill, state: State, ranges: Sequence[tuple[int, int]], limits: ServerCapacities, step: int, jobs: int
    ) -> None:
        """`spill` is for us alone."""
        chunks, norm = list(partitions(state.sites.rows, step)), state.index["norm"]
        copied = ("norm", "site", *_settings(state, chunks))
        splits = np.array([norm.value(start) for start, _ in ranges[1:]], np.uint64)
        self._cuts: list[list[int]] = []
        for columns, cuts in ordered(tasks(_spread, state, _Pass(limits, copied, splits), chunks), jobs):
            spill.add(columns)
            self._cuts.append(cuts.tolist())
        self._chunks = spill.seal()
        self._names = (*copied, "server")

    def __getitem__(self, part: int) -> dict[str, Array]:
        """The sites of a partition, sorted by norm, and those of one norm by site."""
        slices = [(self._chunks[number], slice(*cuts[part : part + 2])) for number, cuts in enumerate(self._cuts)]
        joined = {name: np.concatenate([columns[name][rows] for columns, rows in slices]) for name in self._names}
        order = stable_order(joined["norm"])
        return {name: column.take(order) for name, column in joined.items()}


@dataclass(frozen=True)
class _Pass:
    """What the work on every chunk of the table needs."""

    limits: ServerCapacities
    copied: Sequence[str]
    splits: U64  # the norms that partitions begin with


def _spread(state: State, shared: _Pass, chunk: tuple[int, int]) -> tuple[dict[str, Array], I64]:
    """The sites of a chunk in the order of the partitions, and where each partition begins."""
    columns = state.sites.slice(*chunk, shared.copied)
    columns["server"] = server_of(shared.limits, state.sites["qkey"][slice(*chunk)])
    part = ranges_of(shared.splits, columns["norm"])
    order = np.argsort(part, kind="stable")
    cuts = np.searchsorted(part[order], np.arange(len(shared.splits) + 2))
    return {name: column.take(order) for name, column in columns.items()}, cuts


def _settings(state: State, chunks: Sequence[tuple[int, int]]) -> list[str]:
    """Those that at least one site has."""
    return [name for name, none in SETTINGS.items() if any((state.sites[name][slice(*chunk)] != none).any() for chunk in chunks)]
