"""The settings and servers of the sites, those of each partition of the index together.

Sites are sorted by their own footprint and rows by that of their normalised site, so each partition would have to look for its
sites all over the table. Instead the table is read once, in order, and spread. Settings that no site has are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shepherd.arrays.keys import stable_order
from shepherd.arrays.lookup import ranges_of
from shepherd.arrays.partitions import partitions
from shepherd.arrays.pool import ordered
from shepherd.arrays.spill import Aside
from shepherd.cycle.select.server_capacity import ServerCapacities, server_of
from shepherd.cycle.select.survey import SETTINGS
from shepherd.formats.tables import I64, Array
from shepherd.store.state.directory import State


class SitesOf:
    def __init__(
        self, aside: Aside, state: State, ranges: Sequence[tuple[int, int]], limits: ServerCapacities, step: int, jobs: int
    ) -> None:
        """`aside` is for us alone."""
        chunks, norm = list(partitions(state.sites.rows, step)), state.index["norm"]
        copied = ("norm", "site", *_settings(state, chunks))
        splits = np.array([norm.value(start) for start, _ in ranges[1:]], np.uint64)

        def spread(chunk: tuple[int, int]) -> tuple[dict[str, Array], I64]:
            columns = state.sites.slice(*chunk, copied)
            columns["server"] = server_of(limits, state.sites["qkey"][slice(*chunk)])
            part = ranges_of(splits, columns["norm"])
            order = np.argsort(part, kind="stable")
            cuts = np.searchsorted(part[order], np.arange(len(ranges) + 1))
            return {name: column.take(order) for name, column in columns.items()}, cuts

        found: list[list[int]] = []
        for columns, cuts in ordered(spread, chunks, jobs):
            aside.add(columns)
            found.append(cuts.tolist())
        aside.seal()
        self._chunks = [(aside[number], cuts) for number, cuts in enumerate(found)]
        self._names = (*copied, "server")

    def __getitem__(self, part: int) -> dict[str, Array]:
        """The sites of a partition, sorted by norm, and those of one norm by site."""
        joined = {
            name: np.concatenate([columns[name][cuts[part] : cuts[part + 1]] for columns, cuts in self._chunks])
            for name in self._names
        }
        order = stable_order(joined["norm"])
        return {name: column.take(order) for name, column in joined.items()}


def _settings(state: State, chunks: Sequence[tuple[int, int]]) -> list[str]:
    """Those that at least one site has."""
    return [name for name, none in SETTINGS.items() if any((state.sites[name][slice(*chunk)] != none).any() for chunk in chunks)]
