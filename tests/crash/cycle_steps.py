"""A small database and the steps that make it, without a network: what the crash tests disturb.

A step is a function of the database's directory, and the same steps give the same bytes. `python -m tests.crash.cycle_steps STEP`
runs one as a process of its own, on SHEPHERD_DB, and prints what it has acknowledged, a line each.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

from shepherd.config import Config, load
from shepherd.console import common
from shepherd.cycle.cleanup import drive as cleanup
from shepherd.cycle.cork import drive as cork
from shepherd.cycle.equiv import drive as equiv
from shepherd.cycle.feedback import drive as feedback
from shepherd.cycle.merge import drive as merge
from shepherd.cycle.plan import drive as plan
from shepherd.cycle.rebuild import recover
from shepherd.cycle.record import drive as record
from shepherd.cycle.select import drive as select
from shepherd.filters import load_filter
from shepherd.formats import bucket, contrib
from shepherd.formats.block_builder import BlockBuilder
from shepherd.formats.tables import JOURNAL, NO_OID, JournalFlag, Records, Result
from shepherd.store.check.recover import RecoveryStep as Mended
from shepherd.store.disk import fsio, names
from shepherd.store.state import database, lookup
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest, read_journal
from shepherd.store.state.inserts import InsertDraft
from shepherd.store.state.lease import Lease
from shepherd.urls import Footprints, parse, qkey_of_address

KEY = bytes(range(16))
NOW = 1_790_000_000
# Predictable: no clock, and the pid of no process, so that what it leaves half done is known to be left over.
ITEM = f"1790000000000-{socket.gethostname()}-{1 << 22}-{{}}"
SEEDS = ("http://a.example/", "http://a.example/one", "http://b.example/two")
MORE = ("http://a.example/three", "https://c.example/", "http://b.example/one")
EQUIV = "a.example b.example\n"  # so that their pages "one" are the same
HEARD = "http://a.example/one 50000\nhttps://c.example/ - unreferenced\n"
LINKED = "http://a.example/linked/{}"
BATCH = 2  # documents between two checkpoints
SEGMENT_BYTES = 700  # so that segments roll
# A cleanup deletes no states, and knows no disk that is too small to be worked on.
CF = "[store]\nkeep_states = 9\n[cleanup]\nreserve_bytes = 0\n"

Say = Callable[[str], object]
Step = Callable[[Path, Say], object]
Drive = Callable[[Writer, Config, int, Callable[[int], object]], State]


def config(db: Path) -> Config:
    """Its configuration stands beside the database, so that a copy of the one is not a copy of the other."""
    return load(cf_of(db))


def cf_of(db: Path) -> Path:
    return db.parent / "cf"


# --- the steps --------------------------------------------------------------------------------------------------


def configure(db: Path) -> None:
    cf_of(db).mkdir(parents=True, exist_ok=True)
    for default in common.default_files().iterdir():  # so that shep-init has none to write
        (cf_of(db) / default.name).touch()
    (cf_of(db) / "shepherd.toml").write_text(CF)


def begin(db: Path, _say: Say = print) -> None:
    configure(db)
    database.create(db, KEY, NOW, 0)


def phase(drive: Drive) -> Step:
    def run(db: Path, say: Say) -> None:
        with Database(db).writing("a test") as writer:
            say(str(drive(writer, config(db), NOW, lambda _rows: None).name))

    return run


def dropping(number: int, urls: tuple[str, ...]) -> Step:
    def run(db: Path, say: Say) -> None:
        requests = ({"op": "insert", "url": url, "weight": 40_000} for url in urls)
        say(str(Database(db).inbox.drop(ITEM.format(number), requests).name))

    return run


def inserting(number: int, urls: tuple[str, ...]) -> Step:
    """As `shep insert` does: contributions instead of lines."""

    def run(db: Path, say: Say) -> None:
        inbox, filters = Database(db).inbox.directory, load_filter(config(db).filter_path)
        with InsertDraft(inbox, ITEM.format(number), Database(db).key(), filters, "me") as draft:
            for url in map(parse, urls):
                draft.add(url.site, url.href, weight=40_000)
            say(str(draft.keep().name))

    return run


def equating(db: Path, _say: Say) -> None:
    """Not a step of ours: the operator edits cf/url-equiv."""
    (cf_of(db) / "url-equiv").write_text(EQUIV)


def uploading(db: Path, say: Say) -> None:
    say(str(Database(db).inbox.drop_feedback(ITEM.format(3), HEARD.encode()).name))


def harvesting(checkpoints: int, end: bool = False, torn: bool = False) -> Step:
    """Gather what is planned, with a checkpoint after every few documents; `say` gets how many are durable."""

    def run(db: Path, say: Say) -> None:
        state = Database(db).furthest()
        path = harvest_path(state)
        if not path.parent.exists():
            fsio.make_directory(path.parent)
        one = Harvest(path, SEGMENT_BYTES)
        try:
            done = len(one.journalled())
            for number in range(done, done + checkpoints * BATCH):
                gather(one, state, number)
                if (number + 1) % BATCH == 0:
                    one.checkpoint(NOW * 1000 + number)
                    say(str(number + 1))
            if end:
                one.end(NOW * 1000 + 999)
                say("end")
            if torn:
                gather(one, state, done + checkpoints * BATCH)
                one._flush_journal()
                one._segments.flush()
        finally:
            one.close()

    return run


def leasing(db: Path, say: Say) -> None:
    found = Database(db)
    with found.leases.locked():
        found.leases.write(Lease(ITEM.format(7), found.closed().number, "a test", "reading", 1, NOW + 60))
        say("lease")


def pruning(db: Path, say: Say) -> None:
    """The oldest state goes. Each deletion is a commit of its own: of two that go, a cut may leave one."""
    with Database(db).writing("a test") as writer:
        closed = [name for name in writer.database.states() if name.closed]
        say(f"pruned {writer.prune(len(closed) - 1, NOW + 120)}")


STEPS: dict[str, Step] = {
    "begin": begin,
    "drop": dropping(1, SEEDS),
    "merge": phase(merge.run),
    "select": phase(select.run),
    "record": phase(record.run),
    "plan": phase(plan.run),
    "harvest": harvesting(2),
    "harvest on": harvesting(1, end=True),
    "cork": phase(cork.run),
    "drop more": inserting(2, MORE),
    "merge more": phase(merge.run),
    "equate": equating,
    "equiv": phase(equiv.run),
    "select more": phase(select.run),
    "record more": phase(record.run),
    "upload": uploading,
    "feedback": phase(feedback.run),
    "lease": leasing,
    "prune": pruning,
}


def recovered(db: Path, quick: bool = False) -> list[Mended]:
    """What shep-recover does: a quick look, and if that finds nothing, one at every byte."""
    with Database(db).writing("a test", tidy=False) as writer:
        for deep in (False,) if quick else (False, True):
            if steps := recover.recover(writer, recover.Recovery(config(db), NOW, lambda _bytes: None), deep):
                return steps
    return []


def recovering(db: Path, say: Say) -> None:
    for step in recovered(db):
        say(step.what)


# A cleanup comes after all steps: `grow(db, "cleanup")` takes them.
ALL: dict[str, Step] = {**STEPS, "cleanup": phase(cleanup.run), "recover": recovering}


def break_down(db: Path) -> None:
    """What crashes leave for shep-recover: a torn harvest, directories half built and half deleted, an item half dropped."""
    grow(db, "harvest")
    harvesting(2, torn=True)(db, lambda _line: None)
    states = db / names.STATES
    shutil.copytree(states / "000002", states / "000005.tmp")
    shutil.copytree(states / "000001", states / "000000.gone")
    (db / names.INBOX / f".{ITEM.format(9)}.req.tmp").write_text("{")


def grow(db: Path, until: str = "", say: Say = lambda line: None) -> None:
    """Take the steps before `until`, or all of them."""
    for name, step in STEPS.items():
        if name == until:
            return
        step(db, say)


# --- documents --------------------------------------------------------------------------------------------------


def harvest_path(state: State) -> Path:
    return state.path / names.HARVESTS / "reap"


def gather(one: Harvest, state: State, number: int) -> None:
    """The number-th document of the harvest: the planned rows in turn, again and again."""
    planned, prints = state.plan(), Footprints(state.control.key)
    row = planned[number % len(planned)]
    data = document(state, row, number)
    oid = one.store(data)
    one.journal(_record(row, oid, number % len(planned), number, data).tobytes())
    url, blocks = parse(LINKED.format(number)), BlockBuilder(prints, 0)
    blocks.add(url.site, url.path, 30_000, 0, 0)
    one.contribute(1, contrib.encode(blocks.block()))


def document(state: State, row: Records, number: int) -> bytes:
    body = f"<title>{number}</title>".encode()
    attributes = [("U", _url(state, row).encode()), ("D", hashlib.sha256(body).digest())]
    return bucket.pack(
        site=int(row["site"]), path=int(row["path"]), time_ms=NOW * 1000 + number, state=3, attributes=attributes, body=body
    )


def _url(state: State, row: Records) -> str:
    """The text of a planned row; a robots file that was never gathered has no bucket yet."""
    if row["oid"] != NO_OID:
        return state.objects.head(int(row["oid"])).url
    site = lookup.site_row(state, int(row["site"]))
    assert site is not None
    return f"{state.site_name(site)}/robots.txt"


def _record(row: Records, oid: int, plan_row: int, number: int, data: bytes) -> Records:
    made = np.zeros(1, JOURNAL)
    for name in ("norm", "path", "site"):
        made[name] = row[name]
    digest = hashlib.sha256(bucket.parse(data).body()).digest()
    made["answered"], made["qkey"], made["oid"] = row["site"], qkey_of_address("127.0.0.7"), oid
    made["digest"] = int.from_bytes(digest[:8], "little")
    made["start_ms"] = made["end_ms"] = NOW * 1000 + number
    made["plan_row"], made["stored_bytes"] = plan_row, len(data)
    made["status"], made["flags"] = 200, JournalFlag.CONTACTED
    made["kind"], made["result"] = row["kind"], Result.STORED
    return made


def acknowledged(out: str) -> int:
    """How many documents a step that printed this has called durable."""
    return max((int(line) for line in out.split() if line.isdigit()), default=0)


def documents(db: Path) -> list[bytes]:
    """The buckets of a harvest that was rolled back or has ended, in the order of its journal."""
    path = harvest_path(Database(db).furthest())
    if not path.exists():
        return []
    return [_bucket(path, int(record["oid"])) for record in read_journal(path) if record["oid"] != NO_OID]


def _bucket(path: Path, oid: int) -> bytes:
    segment, offset = oid >> 32, oid & 0xFFFFFFFF
    data = (path / names.local_segment(segment)).read_bytes()
    return data[offset : offset + bucket.parse_header(data, offset).length]


@click.command()
@click.argument("step", type=click.Choice(list(ALL)))
@common.database
@common.standard
def command(step: str, db: Path) -> None:
    ALL[step](db, click.echo)


def main() -> None:
    common.run(command)


if __name__ == "__main__":
    main()
