"""Harvests made of a few lines each, and small databases that take them in, without a network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shepherd.config import Config, Store
from shepherd.cycle.cork import drive as cork
from shepherd.cycle.merge import drive as merge
from shepherd.cycle.plan import drive as plan
from shepherd.cycle.record import drive as record
from shepherd.cycle.select import drive as select
from shepherd.formats import bucket, contrib, tables
from shepherd.formats.block_builder import BlockBuilder
from shepherd.formats.tables import JOURNAL, NO_OID, JournalFlag, Kind, Result
from shepherd.store.disk import fsio, names
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest
from shepherd.urls import Footprints, parse, qkey_of_address
from tests.crash import cycle_steps

NOW = cycle_steps.NOW
PRINTS = Footprints(cycle_steps.KEY)
__all__ = ["Config", "Store", "cork", "parse", "tables"]


@dataclass(frozen=True)
class Page:
    """One journal record, with its bucket if something was stored."""

    url: str
    body: str = ""
    at: int = NOW + 1  # when it ended, in seconds
    answered: str = ""  # the URL that answered, if that is another
    result: Result = Result.STORED
    status: int = 200

    @property
    def kind(self) -> Kind:
        return Kind.ROBOTS if self.url.endswith("/robots.txt") else Kind.PAGE


def harvest(
    path: Path, pages: Sequence[Page], links: Mapping[str, int] | None = None, end: int = NOW + 9, key: bytes = cycle_steps.KEY
) -> Path:
    """A harvest that has ended, with these records in this order, and contributions of these weights."""
    if not path.parent.exists():
        fsio.make_directory(path.parent)
    written, prints = Harvest(path, cycle_steps.SEGMENT_BYTES), Footprints(key)
    for page in pages:
        written.journal(_record(page, written, prints))
    if links:
        blocks = BlockBuilder(prints, 0)
        for url, weight in links.items():
            blocks.add(parse(url).site, parse(url).path, weight, 0, 0)
        written.contribute(len(links), contrib.encode(blocks.block()))
    written.end(end * 1000)
    return path


def _record(page: Page, written: Harvest, prints: Footprints) -> bytes:
    made = np.zeros(1, JOURNAL)
    made["norm"], made["path"], made["site"] = prints.of(parse(page.url))
    _norm, path, site = prints.of(parse(page.answered or page.url))
    made["answered"], made["qkey"], made["oid"] = site, qkey_of_address("127.0.0.7"), NO_OID
    made["start_ms"] = made["end_ms"] = page.at * 1000
    made["kind"], made["result"], made["status"], made["flags"] = page.kind, page.result, page.status, JournalFlag.CONTACTED
    if page.result == Result.STORED:
        digest = hashlib.sha256(page.body.encode()).digest()
        data = bucket.pack(
            site=site,
            path=path,
            time_ms=page.at * 1000,
            state=3,
            attributes=[("U", parse(page.answered or page.url).href.encode()), ("D", digest)],
            body=page.body.encode(),
        )
        made["oid"], made["stored_bytes"] = written.store(data), len(data)
        made["digest"] = int.from_bytes(digest[:8], "little")
    return made.tobytes()


PHASES = {"plan": plan.run, "cork": cork.run, "merge": merge.run, "select": select.run, "record": record.run}


def run(db: Path, *phases: str, now: int = NOW, jobs: int = 1, partition_rows: int = 500_000) -> State:
    """Run these phases; the state that the last one made."""
    config = Config(directory=cycle_steps.cf_of(db), store=Store(partition_rows=partition_rows))
    for phase in phases:
        with Database(db).writing("a test") as writer:
            state = PHASES[phase](writer, config, now, lambda _rows: None, jobs)
    return state


def begin(db: Path, urls: Sequence[str]) -> Path:
    """A database that knows these URLs, closed."""
    cycle_steps.begin(db)
    cycle_steps.dropping(1, tuple(urls))(db, lambda _line: None)
    run(db, "merge", "select", "record")
    return db


def reap(db: Path, *harvests: tuple[str, Sequence[Page], Mapping[str, int]], end: int = NOW + 9, now: int = NOW) -> None:
    """Plan, and leave these harvests."""
    state = run(db, "plan", now=now)
    for name, pages, links in harvests:
        harvest(state.path / names.HARVESTS / name, pages, links, end)


def rows(state: State, *columns: str) -> dict[str, tuple[int, ...]]:
    """Some columns of every row that has a bucket, by URL."""
    found = {}
    for row in range(state.index.rows):
        oid = state.index["oid"].value(row)
        if oid != NO_OID:
            found[state.objects.head(oid).url] = tuple(state.index[name].value(row) for name in columns)
    return found


def files(path: Path) -> dict[str, bytes]:
    """Every byte of a state directory."""
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}
