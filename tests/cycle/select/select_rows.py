"""Small random databases for select, and select itself run on them: the real one, in a real directory."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from shepherd import config
from shepherd.config import Config
from shepherd.cycle.select import drive as select
from shepherd.formats.tables import (
    INDEX,
    NO_LIMIT,
    NO_OID,
    SERVERS,
    SITES,
    Columns,
    Flag,
    Reason,
    RowType,
    bucket_oid,
    contrib_oid,
)
from shepherd.sections import Section
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import State
from tests.support.random_rows import ROBOTS_PATH, ROOT_PATH, Row, columns, key, rows_of, site_of

NORMS = [10, 11, 2**63 + 1]
STATE = 9
FEW = [0, 1, 2, 3, 5, 8, 1_000]
LIMIT = [NO_LIMIT, NO_LIMIT, NO_LIMIT, 0, 1, 2, 4]
QKEYS = [4 << 56 | 1, 4 << 56 | 2, 4 << 56 | 3, 0x7F << 56 | 5]


@dataclass(frozen=True)
class Sample:
    index: list[Row]
    sites: list[Row]
    servers: list[Row]
    config: Config
    speed: int


def samples(fresh_before: bool = True) -> st.SearchStrategy[Sample]:
    """Drawn from a seed: hypothesis alone would make nearly all of them too small to crowd anything."""
    return st.builds(functools.partial(_sample, fresh_before), st.integers(0, 40), st.integers(0, 2**32))


def _sample(fresh_before: bool, size: int, seed: int) -> Sample:
    draw = Random(seed)
    reasons = [Reason.LINK, Reason.GATHERED, Reason.BELOW_BAR, Reason.SITE_SOFT] + [Reason.FRESH] * fresh_before
    rows = {key(row): row for row in (_row(draw, reasons) for _ in range(size))}
    return Sample(
        [rows[one] for one in sorted(rows)],
        [_site(draw, norm, which) for norm in NORMS for which in (0, 1) if draw.randrange(10)],
        [_server(draw, qkey) for qkey in QKEYS[:3] if draw.randrange(4)],
        _config(draw),
        draw.choice([0, 0, 50, 500]),
    )


def _row(draw: Random, reasons: list[Reason]) -> Row:
    norm, type_ = draw.choice(NORMS), draw.choice(list(RowType))
    path = draw.choice([*range(1, 12), 2**63, 2**64 - 1])
    flags = draw.choice([0] * 8 + [Flag.INITIAL, Flag.PINNED, Flag.REFRESH, Flag.REDIRECT, Flag.UNREFERENCED])
    flags |= Flag.ROBOTS if path == ROBOTS_PATH else Flag.EQUIV if path == ROOT_PATH else 0
    body = type_ == RowType.GATHERED or draw.randrange(2)
    new = type_ in (RowType.UNGATHERED, RowType.SLEEPING) and draw.randrange(2)
    return dict.fromkeys(INDEX, 0) | {
        "norm": norm,
        "path": path,
        "site": site_of(norm, draw.randrange(2)),
        "oid": contrib_oid(1, draw.randrange(99)) if new else draw.choice([bucket_oid(1, 64)] * 9 + [NO_OID]),
        "digest": draw.randint(1, 3) if body and not new else 0,
        "gathered": draw.randint(1, 9) if body and not new else 0,
        "type": int(type_),
        "reason": int(draw.choice(reasons)),
        "flags": int(flags),
        "weight": draw.choice([0, 1, 2, 3, 4, 5, 65_535]),
        "section": draw.choice([Section.OTHER, Section.HTML, Section.HTML, Section.PDF]),
        "size": draw.randint(0, 40),
        "touched": 1,
    }


def _site(draw: Random, norm: int, which: int) -> Row:
    settings = {"soft_limit": draw.choice(LIMIT), "hard_limit": draw.choice(LIMIT), "fresh_limit": draw.choice(LIMIT)}
    return (
        dict.fromkeys(SITES, 0)
        | settings
        | {
            "site": site_of(norm, which),
            "norm": norm,
            "qkey": draw.choice(QKEYS),
            "select_bonus": draw.choice([0, 0, 0, 3, -2, 32_767, -32_768]),
        }
    )


def _server(draw: Random, qkey: int) -> Row:
    return dict.fromkeys(SERVERS, 0) | {
        "qkey": qkey,
        "delay_ms": draw.choice([0, 10_000, 10_000]),
        "avg_ms": draw.choice([0, 500]),
        "slots": draw.randrange(3),
        "backoff": draw.randrange(3),
        "group": draw.choice([0, 0, 77]),
    }


def _config(draw: Random) -> Config:
    soft = draw.choice([0, 2, 4, 8, 1_000])
    limits = config.Select(
        gathered=draw.choice(FEW),
        sleeping=draw.choice(FEW),
        site_soft=soft,
        site_hard=soft + draw.randrange(4),
        fresh=draw.choice(FEW),
        hysteresis=draw.choice([0, 0, 2, 65_535]),
        server_share=draw.choice([0, 50, 100, 100]),
        hard_factor=draw.randint(1, 3),
        space_bytes=draw.choice([0, 0, 1, 60, 200, 5_000]),
        average_bytes=draw.choice([0, 20]),
        optimism=draw.choice([0, 100, 200]),
        most_lost_floor=1_000,
    )
    return Config(
        plan=config.Plan(refresh_s=draw.choice([0, 10, 20, 60])),
        select=limits,
        sections=config.Sections(html=draw.choice(FEW), pdf=draw.choice(FEW)),
        section_bonus=config.SectionBonus(html=draw.choice([0, 0, 1, 65_535])),
        cleanup=config.Cleanup(size_bytes=draw.choice([0, 0, 0, 400, 2_000])),
        store=config.Store(partition_rows=draw.choice([1, 3, 1_000])),
    )


@functools.cache
def _database() -> tuple[Database, tempfile.TemporaryDirectory[str]]:
    """One for all samples, in memory where there is such a place: a state comes and goes with each sample."""
    shm = Path("/dev/shm")
    directory = tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None)
    return Database.create(Path(directory.name) / "db", bytes(16), 1), directory


@contextmanager
def merged(sample: Sample) -> Iterator[Writer]:
    """The lock of a database whose furthest state is STATE.merged, with these rows."""
    with _database()[0].writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(STATE, "merged"), 1)
        builder.write_table("index", columns(INDEX, sample.index))
        builder.write_table("sites", columns(SITES, sample.sites))
        builder.write_site_names([])
        builder.write_table("servers", columns(SERVERS, sample.servers))
        builder.change(speed=sample.speed)
        writer.publish(builder, {"phase": "merge"})
        try:
            yield writer
        finally:
            writer.remove_leftovers()
            for name in writer.database.states()[1:]:
                writer.delete(name)


def run(sample: Sample, *, jobs: int = 1, partition_rows: int | None = None) -> list[Row]:
    """The rows of the index after a select."""
    with merged(sample) as writer:
        store = sample.config.store if partition_rows is None else config.Store(partition_rows=partition_rows)
        state = select.run(writer, dataclasses.replace(sample.config, store=store), 1, lambda _: None, jobs)
        return index_of(state)


def index_of(state: State) -> list[Row]:
    found: Columns = state.index.slice(0, state.index.rows)
    return rows_of(found)
