"""The one way to make a database whose content a test describes: the rows of its sites, pages and servers become a state.

`create` makes an empty database, `next_state` builds a directory of it, and `write_world` fills that. A row is a dictionary of
columns: what it does not say is 0, but a site's footprints follow from its name. Most tests need no rows, but one of the helpers
that know what rows mean:

| a test needs | helper |
|---|---|
| a state of any rows and buckets, and `shep` run on it | `tests/support/page_states.py`: `Page`, `Site`, `make_herd` |
| the same in the midst of a reap, or after a merge | `tests/support/unfinished_states.py` |
| documents with earlier bodies, in small segments: cleanup, serve, mirror | `tests/support/segment_states.py`: `Sheep`, `fill` |
| documents of every kind that an export may meet | `tests/support/export_pages.py` |
| harvests of a few lines, and the real phases over them | `tests/support/harvests.py`: `Page`, `reap`, `run` |
| random rows of each table, for models of phases, without a database | `tests/support/random_rows.py` |
| one step after the other of a whole cycle, the same bytes every time, to be disturbed anywhere | `tests/crash/cycle_steps.py` |
| single operations of the store: documents by number, without phases | `tests/crash/store_steps.py` |
| what the real programs gather of a toy web | `tests/support/toy_farm.py` |
| databases of older formats | `tests/golden` |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.filters import parse_filter
from shepherd.formats import tables
from shepherd.formats.tables import NO_LIMIT, NO_OID, Array
from shepherd.store.disk.names import StateName
from shepherd.store.state import database
from shepherd.store.state.database import Database
from shepherd.store.state.directory import Builder
from shepherd.urls import Footprints, parse

ROOT: Final = Path(__file__).resolve().parents[1]
KEY: Final = bytes(range(16))
NOW: Final = 1_790_000_000
DAY: Final = 86_400
PRINTS: Final = Footprints(KEY)
UNLIMITED: Final = dict.fromkeys(("delay_ms", "soft_limit", "hard_limit", "fresh_limit"), NO_LIMIT)  # a site that no line names

Row = Mapping[str, int]


def create(home: Path, rules: str = "", made: int = NOW - 9) -> Database:
    """The empty database home/db, and the filter home/cf/filter."""
    (home / "cf").mkdir(parents=True, exist_ok=True)
    (home / "cf" / "filter").write_text(rules if parse_filter(rules).is_bounded else f"{rules}default accept\n")
    database.create(home / "db", KEY, made, 0)
    return Database(home / "db")


def write_open_filter(cf: Path, rules: str = "") -> None:
    """The filter that comes with Shepherd, these lines, and that gathering ends nowhere on purpose: on loopback it may."""
    (cf / "filter").write_text(f"{(ROOT / 'cf' / 'filter').read_text()}{rules}default accept\n")


@contextmanager
def next_state(db: Database, phase: str = "closed", now: int = NOW) -> Iterator[Builder]:
    """The directory after the furthest, to be filled; it is published at the end of the block."""
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, phase), now)
        yield builder
        writer.publish(builder, {"phase": "test"})


def write_world(builder: Builder, pages: Iterable[Row], sites: Mapping[str, Row], servers: Iterable[Row] | None = ()) -> None:
    """All tables: the rows of pages in any order, those of sites by name, and of servers; None if those are there."""
    ordered = sorted(pages, key=lambda row: (row["norm"], row["path"], row["site"]))
    builder.write_table("index", columns(tables.INDEX, ordered))
    names = sorted(sites, key=PRINTS.half)
    ends = np.cumsum([len(name.encode()) for name in names]).tolist()
    rows = [_of_site(name) | dict(sites[name]) | {"name": end} for name, end in zip(names, ends, strict=True)]
    builder.write_table("sites", columns(tables.SITES, rows))
    builder.write_site_names(name.encode() for name in names)
    if servers is not None:
        builder.write_table("servers", columns(tables.SERVERS, servers))


def _of_site(name: str) -> dict[str, int]:
    """A site of which nothing is known but its name."""
    norm, _path, site = PRINTS.of(parse(f"{name}/"))
    return {"norm": norm, "site": site, "qkey": tables.qkey_unresolved(site), "robots_oid": NO_OID}


def columns(table: Mapping[str, str], rows: Iterable[Row]) -> dict[str, Array]:
    """A table of these rows, in their order."""
    every = list(rows)
    return {name: np.array([row.get(name, 0) for row in every], dtype) for name, dtype in table.items()}
