"""The private memory of every tool at so many URLs; a part of bench/store.

One database is made of thin buckets alone, with its index lost: shep-recover makes it whole, and the other tools then look at it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import states
from states import KEY, NOW

from shepherd.formats import bucket, tables
from shepherd.formats.check import check64
from shepherd.store.check.upgrade import ADDED
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import database
from shepherd.store.state.database import Database
from shepherd.urls import Footprints

ROOT = Path(__file__).resolve().parents[1]
LOOKING = (
    ("shep-check", "-q"),
    ("shep-check", "-q", "--quick"),
    ("shep-dump", "index"),
    ("shep-dump", "sites"),
    ("shep-dump", "buckets"),
    ("shep", "stats"),
    ("shep", "list"),
)
POLL = 0.01
EMPTY = check64(b"")


@dataclass(frozen=True)
class Run:
    """What a program took: seconds, and the most private memory that it was seen with, in MB."""

    wall: float
    cpu: float
    memory: float
    ended: bool = True  # False where our patience ended first


def run(*command: str, patience: float = 3600) -> Run:
    """Run a program of bin/, and end it when our patience does."""
    environment = {**os.environ, "SHEPHERD_CF": str(ROOT / "cf")}
    start = time.perf_counter()
    process = subprocess.Popen([str(ROOT / "bin" / command[0]), *command[1:]], env=environment, stdout=subprocess.DEVNULL)
    most, ended = 0.0, True
    while (found := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        most = max(most, states.rss_anon_mb(process.pid))
        if ended and time.perf_counter() - start > patience:
            process.terminate()
            ended = False
        time.sleep(POLL)
    status = process.returncode = os.waitstatus_to_exitcode(found[1])
    if ended and status not in (0, 4):
        raise SystemExit(f"{' '.join(command)}: exit status {status}")
    return Run(time.perf_counter() - start, found[2].ru_utime + found[2].ru_stime, most, ended)


def without_index(db: Path, rows: int, parts: int, part: Callable[[int], bytes]) -> None:
    """A database with one closed state: these parts, each of one bucket or some, and no index, which had so many rows."""
    database.create(db, KEY, NOW, 0)
    with Database(db).writing("bench") as writer:
        builder = writer.build(writer.furthest(), StateName(2, "closed"), NOW)
        segments = builder.segment_writer(1 << 30)
        for n in range(parts):
            segments.append(part(n))
        builder.finish_segments(segments)
        for table, columns in tables.TABLES.items():
            builder.write_table(table, tables.empty(columns, rows if table == "index" else 0))
        builder.write_site_names([])
        writer.publish(builder, {"phase": "bench"})
    shutil.rmtree(db / "state" / "000001")
    shutil.rmtree(db / "state" / "000002" / "index")


def measure(home: Path, rows: int, patience: float, tell: Callable[[str, str, str], None]) -> None:
    """Every tool in turn, on one database."""
    db = home / "tools"
    half = Footprints(KEY).half
    pages = [(f"/page/{n}", half(f"/page/{n}")) for n in range(states.PER_SITE)]

    def site(number: int) -> bytes:
        name = f"http://s{number}.example"
        footprint = half(name)
        return b"".join(_thin(footprint, path, f"{name}{page}") for page, path in pages)

    without_index(db, rows, rows // states.PER_SITE, site)
    _told(("shep-recover", "-q"), run("shep-recover", "--db", str(db), "-q"), rows, tell)
    for command in LOOKING:
        _told(command, run(*command, "--db", str(db), patience=patience), rows, tell)
    _make_old(Database(db))
    _told(("shep-upgrade",), run("shep-upgrade", "--db", str(db)), rows, tell)
    shutil.rmtree(db)


def _thin(site: int, path: int, url: str) -> bytes:
    """What bucket.thin makes, in a third of its time: there are millions."""
    table = b"".join((len(url).to_bytes(4, "little"), url.encode(), b"U"))
    head = bucket.HEAD.pack(bucket.MAGIC, bucket.V33, 0, bucket.BucketFlag.THIN, len(table), 0, 0, 1, site, path, NOW * 1000)
    return b"".join((head, bucket.CHECKS.pack(check64(head + table), EMPTY), table))


def _told(command: tuple[str, ...], found: Run, rows: int, tell: Callable[[str, str, str], None]) -> None:
    how = f"{found.cpu:,.0f} s of CPU" if found.ended else f"in its first {found.wall:,.0f} s"
    tell(f"memory of {' '.join(command)}, {rows:,} URLs, {how}", f"{found.memory:,.0f} MB", "aim: 500")


def _make_old(made: Database) -> None:
    """The state as version 1 would have it: without the columns that came later."""
    path = made.closed().path
    control = made.closed().control
    later = [name for added in ADDED.values() for name in added]
    files = {name: entry for name, entry in control.files.items() if name not in later}
    text = replace(control, files=files).pack().rpartition(b"check ")[0]
    text = text.replace(f" {tables.FORMAT_VERSION}\n".encode(), b" 1\n", 1)
    for name in later:
        (path / name).unlink()
        (path / f"{name}{names.CHECK}").unlink()
    (path / names.CONTROL).unlink()
    (path / names.CONTROL).write_bytes(text + f"check {check64(text):016x}\n".encode())
