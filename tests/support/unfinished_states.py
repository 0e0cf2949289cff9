"""A herd whose database stands in the midst of a reap, and one that stands after a merge: something for every dump to show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from shepherd.formats import bucket, contrib, tables
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import NO_OID, Array, ContribFlag, JournalFlag, Kind, Reason, Result, Why
from shepherd.store.disk import fsio, names
from shepherd.store.disk.names import StateName
from shepherd.store.state import lookup
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.harvest import Harvest
from shepherd.urls import Footprints, parse, qkey_of_address
from tests.support.page_states import Herd, _contributed
from tests.support.programs import call
from tests.worlds import KEY, NOW

PRINTS = Footprints(KEY)
QKEY = qkey_of_address("127.0.0.7")
START_MS = NOW * 1_000 + 5
NEW = "http://a.example/new?x=1"
GONE = "http://a.example/gone"


def run(db: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program as a user runs it."""
    return call(program, *arguments, SHEPHERD_DB=str(db))


def refusal(db: Path, program: str, *arguments: str, status: int) -> str:
    """What a program that must fail says: one sentence on stderr."""
    done = run(db, program, *arguments)
    assert done.returncode == status, done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def keep(builder: Builder, *tables_kept: str) -> None:
    for table in tables_kept:
        builder.keep_table(table)
    builder.keep_objects()
    builder.keep_logs(names.CONTRIB)


def row_of(state: State, url: str) -> int:
    norm, path, site = PRINTS.of(parse(url))
    row = lookup.row_of(state, norm, path, site)
    assert row is not None
    return row


# --- in the midst of a reap -------------------------------------------------------------------------------------


def start_reap(herd: Herd) -> Path:
    """000003.reap: a plan of two pages, and a harvest with two checkpoints that has fetched one of them; the harvest's path."""
    with herd.store.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(3, "reap"), NOW)
        keep(builder, *tables.TABLES)
        builder.write_records(names.PLAN, FrameKind.PLAN, plan_records(parent))
        state = writer.publish(builder, {"phase": "plan"})
    fsio.make_directory(state.path / names.HARVESTS)
    one = Harvest(state.path / names.HARVESTS / "reap", 1 << 20)
    one.journal(journal_record(NEW, kind=Kind.QKEY, path=0, result=Result.RESOLVED, oid=NO_OID))
    one.checkpoint(START_MS)
    _norm, path, site = PRINTS.of(parse(NEW))
    data = bucket.pack(site=site, path=path, time_ms=START_MS, state=3, attributes=[("U", NEW.encode())], body=b"news")
    one.journal(journal_record(NEW, oid=one.store(data), flags=JournalFlag.CONTACTED, reason=Reason.GATHERED))
    link = _contributed(parse("https://www.b.example/found"))
    parent_of = {"parents_site": np.array([site], np.uint64), "parents_path": np.array([path], np.uint64)}
    flags = np.array([ContribFlag.HTTPS], np.uint16)
    one.contribute(1, contrib.encode(contrib.Block(**(vars(link) | parent_of | {"flags": flags}))))
    one.checkpoint(START_MS + 1_000)
    one.journal(journal_record(GONE))  # behind the last checkpoint: it may be torn, so it is not shown
    one._flush_journal()
    one.close()
    return one.path


def plan_records(state: State) -> Array:
    records = np.zeros(2, tables.PLAN)
    for at, (url, why) in enumerate(((NEW, Why.NEW), (GONE, Why.RETRY))):
        row = row_of(state, url)
        for name in ("norm", "path", "site", "oid", "digest", "weight", "flags"):
            records[name][at] = state.index[name].value(row)
        records["row"][at], records["why"][at], records["kind"][at], records["qkey"][at] = row, why, Kind.PAGE, QKEY
    return records


def journal_record(url: str, **fields: int) -> bytes:
    norm, path, site = PRINTS.of(parse(url))
    record = np.zeros(1, tables.JOURNAL)
    values = {"norm": norm, "path": path, "site": site, "answered": site, "qkey": QKEY, "oid": NO_OID, "kind": Kind.PAGE}
    values |= {"result": Result.STORED, "start_ms": START_MS, "end_ms": START_MS + 70, "plan_row": tables.NO_ROW}
    for name, value in (values | fields).items():
        record[name] = value
    return record.tobytes()


# --- after a merge ----------------------------------------------------------------------------------------------


def merge(herd: Herd) -> None:
    """000003.merged: http://a.example/linked, which waits in contrib, has become a row."""
    url = parse("http://a.example/linked")
    norm, path, site = PRINTS.of(url)
    with herd.store.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(3, "merged"), NOW)
        keep(builder, "sites", "servers")
        columns = parent.index.slice(0, parent.index.rows)
        values = {"norm": norm, "path": path, "site": site, "oid": tables.contrib_oid(1, 0), "type": 2, "reason": 1}
        new = {name: np.append(column, np.array([values.get(name, 0)], column.dtype)) for name, column in columns.items()}
        order = np.lexsort((new["site"], new["path"], new["norm"]))
        builder.write_table("index", {name: column[order] for name, column in new.items()})
        writer.publish(builder, {"phase": "merge"})
