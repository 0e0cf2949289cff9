"""What the judges of bench/against share: tables of a state in DuckDB, and the comparison of what it says with what is there.

Columns are read as docs/formats.md has them, raw, and not through the store, so that nothing of what is judged stands between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from shepherd.config import Config
from shepherd.formats.tables import TABLES
from shepherd.store.state.directory import State

Array = npt.NDArray[Any]
Columns = dict[str, Array]

MEMORY = "5GB"
SHOWN = 3  # rows that differ


@dataclass(frozen=True)
class Case:
    """A phase that has run: the directory before it, the one it made, by which configuration, and when."""

    before: State
    after: State
    config: Config
    now: int
    home: Path

    def connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        spill = self.home / "spill"
        spill.mkdir(exist_ok=True)
        for setting in (f"memory_limit = '{MEMORY}'", f"temp_directory = '{spill}'", "preserve_insertion_order = false"):
            connection.execute(f"set {setting}")
        return connection

    @property
    def special(self) -> tuple[int, int]:
        """Footprints of the paths that every site has for itself: its robots file and its root page."""
        return self.paths(self.before)

    @staticmethod
    def paths(state: State) -> tuple[int, int]:
        return state.prints.half("/robots.txt"), state.prints.half("/")


@dataclass
class Verdict:
    """How much was compared, what is not as it should be, and how often each rule decided."""

    compared: dict[str, int] = field(default_factory=dict)
    decided: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    def text(self) -> str:
        compared = ", ".join(f"{count:,} {what}" for what, count in self.compared.items())
        decided = ", ".join(f"{what} {count:,}" for what, count in self.decided.items())
        wrong = "".join(f"\n  {line}" for line in self.differences)
        return f"{compared} compared, {len(self.differences)} differences ({decided}){wrong}"

    def compare(self, what: str, want: Mapping[str, Array], got: Mapping[str, Array]) -> None:
        """Column by column, in order; a difference is a column."""
        lengths = {len(column) for column in (*want.values(), *(got[name] for name in want))}
        self.compared[what] = max(lengths)
        if len(lengths) > 1:
            self.differences.append(f"{what}: {sorted(lengths)} rows")
            return
        for name, column in want.items():
            wrong = np.flatnonzero(column != got[name])
            if len(wrong):
                some = [f"row {n}: {got[name][n]} instead of {column[n]}" for n in wrong[:SHOWN].tolist()]
                self.differences.append(f"{what}: {name} differs in {len(wrong):,} rows: {'; '.join(some)}")

    def same(self, what: str, before: State, after: State, table: str, names: Iterable[str]) -> None:
        """Columns that the phase must not have touched."""
        self.compare(f"{what} (untouched)", columns(before, table, names), columns(after, table, names))


def columns(state: State, table: str, names: Iterable[str] = ()) -> Columns:
    """Some columns of a table, or all."""
    known = TABLES[table]
    return {name: np.fromfile(state.path / table / name, known[name]) for name in names or known}


def names_of(state: State) -> list[str]:
    """The names of all sites, in the order of the table."""
    ends = columns(state, "sites", ("name",))["name"].tolist()
    text = (state.path / "sites" / "names").read_text("ascii")
    return [text[start:end] for start, end in pairwise([0, *ends])]


def numbered(table: Columns) -> Columns:
    """With the number of each row, because SQL knows no order."""
    rows = len(next(iter(table.values())))
    return table | {"n": np.arange(rows, dtype=np.int64)}


def fetch(connection: duckdb.DuckDBPyConnection, query: str) -> Columns:
    return {name: np.ma.getdata(column) for name, column in connection.sql(query).fetchnumpy().items()}


def counts(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, int]:
    """A query of pairs of a name and a number."""
    return {str(name): int(number) for name, number in connection.sql(query).fetchall()}
