"""Documents of one site, and up to a weight: what a reader can narrow a choice by, also of a state that is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from shepherd.formats.tables import I64
from shepherd.report.find import norm_of_host
from shepherd.store.state.directory import State

MOST_WEIGHT: Final = 65_535


class Narrowing:
    """The rows that are left of some. `site` is a host or URL, and stands for all sites that are the same to us."""

    def __init__(self, site: str | None, most_weight: int = MOST_WEIGHT) -> None:
        self._site, self._most = site, most_weight
        self._norms: dict[Path, int] = {}

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return self._site is not None or self._most < MOST_WEIGHT

    def words(self) -> dict[str, object]:
        """As a server is asked for it (docs/serve.md)."""
        return {"site": self._site, "most_weight": self._most if self._most < MOST_WEIGHT else None}

    def __call__(self, state: State, rows: I64) -> I64:
        if self._site is not None:
            if state.path not in self._norms:
                self._norms[state.path] = norm_of_host(state, self._site)
            rows = rows[state.index["norm"].take(rows) == np.uint64(self._norms[state.path])]
        if self._most < MOST_WEIGHT:
            rows = rows[state.index["weight"].take(rows) <= np.uint16(self._most)]
        return rows
