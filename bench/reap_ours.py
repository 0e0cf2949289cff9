"""Our side of bench/reap: a database that knows the URLs, a plan of all of them, and one measured shep-reap."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np

from shepherd.formats import frame
from shepherd.formats.tables import JOURNAL, JournalFlag, Kind, Result
from shepherd.store.state.database import Database

ROOT = Path(__file__).resolve().parent.parent
_SETTINGS = """
[identity]
contact = "bench@bench.example"
[politeness]
delay_s = 0
[plan]
reap_s = 3600
optimism = 0
[select]
fresh = 4000000
[fetch]
in_flight = {in_flight}
memory_bytes = {memory_bytes}
verify_tls = false
[reap]
workers = {workers}
[network]
allow = ["127.0.0.0/8"]
[store]
keep_states = 1
"""


@dataclass(frozen=True)
class Reaped:
    """What a reap cost, start-up of every process included, and the records of its journal by result."""

    cost: measure.Cost
    results: Counter[str]
    batch_cpu_s: float  # of the phases that came before it


def reap(directory: Path, urls: list[str], *, workers: int = 1, in_flight: int = 200, memory_bytes: int = 1 << 28) -> Reaped:
    """Gather all these URLs in one reap into a new database."""
    db, cf = directory / "db", directory / "cf"
    cf.mkdir(parents=True)
    (cf / "shepherd.toml").write_text(_SETTINGS.format(in_flight=in_flight, workers=workers, memory_bytes=memory_bytes))
    (cf / "filter").write_text("default accept\n")
    (cf / "url-equiv").write_text("")
    listed = directory / "urls"
    listed.write_text("\n".join(urls) + "\n")
    where = ["--db", str(db), "--cf", str(cf), "-q"]
    batch_cpu_s = 0.0
    for words in (
        ["shep-init"],
        ["shep", "insert", "-f", str(listed)],
        *(["shep-" + p] for p in ("merge", "select", "record", "plan")),
    ):
        batch_cpu_s += _run([*_program(words[0]), *words[1:], *where]).cpu_s
    cost = _run([*_program("shep-reap"), *where, "--seconds", "3000"])
    return Reaped(cost, _results(db), batch_cpu_s)


def _results(db: Path) -> Counter[str]:
    """How many pages came to what; robots files count as such, and what was only a step on the way does not count."""
    (path,) = Database(db).furthest().harvests()
    records = np.frombuffer(b"".join(log.payload for log in frame.frames((path / "journal").read_bytes())), JOURNAL)
    records = records[(records["flags"] & JournalFlag.HOP) == 0]
    pages = records[records["kind"] == Kind.PAGE]
    found = Counter(Result(result).name.lower() for result in pages["result"].tolist())
    found["robots"] = int((records["kind"] == Kind.ROBOTS).sum())
    return found


def _program(name: str) -> list[str]:
    return [sys.executable, "-I", "-m", "shepherd.cli", name]


def _run(command: list[str]) -> measure.Cost:
    cost = measure.run(command, [])
    if cost.status:
        raise SystemExit(f"{' '.join(command)}: exit status {cost.status}\n{cost.told}")
    return cost
