"""The settings and servers of the sites, those of each partition of the index together.

Sites are sorted by their own footprint and rows by that of their normalised site, so each partition would have to look for its
sites all over the table. Instead the table is read once, in order, and spread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shepherd.batch.aside import Aside
from shepherd.batch.partitions import partitions
from shepherd.batch.pool import ordered
from shepherd.formats.tables import I64, Array
from shepherd.phases.serverlimits import ServerLimits, server_of
from shepherd.phases.survey import OF_SITES
from shepherd.store.state import State

_COPIED = tuple(name for name in OF_SITES if name != "server")


class SitesOf:
    def __init__(
        self, aside: Aside, state: State, ranges: Sequence[tuple[int, int]], limits: ServerLimits, step: int, jobs: int
    ) -> None:
        """`aside` is for us alone."""
        norm = state.index["norm"]
        splits = np.array([norm.at(start) for start, _ in ranges[1:]], np.uint64)

        def spread(chunk: tuple[int, int]) -> tuple[dict[str, Array], I64]:
            columns = state.sites.slice(*chunk, _COPIED)
            columns["server"] = server_of(limits, state.sites["qkey"][slice(*chunk)])
            part = np.searchsorted(splits, columns["norm"], side="right").astype(np.min_scalar_type(len(ranges)))
            order = np.argsort(part, kind="stable")
            cuts = np.searchsorted(part[order], np.arange(len(ranges) + 1))
            return {name: column[order] for name, column in columns.items()}, cuts

        self._aside = aside
        self._cuts: list[list[int]] = []
        for columns, cuts in ordered(spread, list(partitions(state.sites.rows, step)), jobs):
            aside.add(columns)
            self._cuts.append(cuts.tolist())
        aside.seal()

    def __getitem__(self, part: int) -> dict[str, Array]:
        """The sites of a partition, sorted by norm, and those of one norm by site."""
        chunks = []
        for number, cuts in enumerate(self._cuts):
            columns = self._aside[number]
            chunks.append({name: columns[name][cuts[part] : cuts[part + 1]] for name in OF_SITES})
        joined = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in OF_SITES}
        order = np.argsort(joined["norm"], kind="stable")
        return {name: column[order] for name, column in joined.items()}
