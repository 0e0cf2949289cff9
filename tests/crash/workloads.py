"""What is cut short: each operation of the store that is acknowledged, on a database of a few documents.

A workload can be played again on whatever a kill has left: it looks at what is there, and does what is missing. `settle` stands
where an operation has returned, so that from there on its result must survive.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shepherd.cycle.cork import drive as cork
from shepherd.errors import NothingToDo
from shepherd.store.disk import names
from shepherd.store.state import database, harvest
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from shepherd.store.state.inbox import HARVEST as HARVEST_ITEM
from shepherd.store.state.lease import Lease
from tests.crash import cycle_steps, store_steps
from tests.crash.oracle import recover_once
from tests.crash.replay import Stage
from tests.crash.store_steps import SEGMENT_BYTES
from tests.store.mirror.received import Folder, bring, way
from tests.support import harvests
from tests.worlds import KEY, NOW, PRINTS

STATES = f"db/{names.STATES}"
HARVEST = f"{STATES}/000003.reap/{names.HARVESTS}/reap"
ROOMY_BYTES = 1200  # of a segment that holds three documents, and one or two more


@dataclass(frozen=True)
class Workload:
    prepare: Callable[[Path], None]  # what is there before; not recorded
    play: Callable[[Stage], None]
    repeatable: bool = True  # killed and played again it ends with the same bytes
    tidies: bool = True  # it begins as every writer does; a mirror goes on with what others remove
    sound: bool = True  # what is there before is as a crash may leave it; else it is judged only from the first settle on


def carry_on(workload: Workload, with_recover: bool) -> Callable[[Stage], None]:
    """What happens after a kill: the operation once more, after a recover or after what every writer does first."""

    def play(stage: Stage) -> None:
        if with_recover and (stage.path / STATES).is_dir():
            recover_once(stage.path / "db")
            stage.settle(told=False)
        elif workload.tidies and (stage.path / STATES).is_dir():
            with Database(stage.path / "db").writing("test"):
                pass
        workload.play(stage)

    return play


def _database(path: Path, states: int = 2) -> Database:
    """Closed states 1 (empty), 2 (six documents), 3 ... (the same with other weights)."""
    db = store_steps.create(path / "db")
    with db.writing("test") as writer:
        store_steps.publish_with(writer, range(6))
        for weight in range(3, states + 1):
            store_steps.publish_changed(writer, weight)
    return db


# --- init -------------------------------------------------------------------------------------------------------


def _nothing(path: Path) -> None:
    pass


def _init(stage: Stage) -> None:
    if not (stage.path / "db" / names.STATES).is_dir():
        database.create(stage.path / "db", KEY, NOW, 0)
    stage.settle()


# --- publish ----------------------------------------------------------------------------------------------------


def _two_states(path: Path) -> None:
    _database(path)


def _publish(stage: Stage) -> None:
    """A state with new segments and columns; then one by way of an unfinished directory, with one column changed each time."""
    with Database(stage.path / "db").writing("test") as writer:
        if writer.furthest().number == 2:
            store_steps.publish_with(writer, range(6, 10))
            stage.settle()
        if writer.furthest().number == 3:
            store_steps.publish_changed(writer, 40, "merged")
            stage.settle()
        if not writer.furthest().name.closed:
            store_steps.publish_changed(writer, 41, number=4)
            stage.settle()


# --- harvest ----------------------------------------------------------------------------------------------------


def _planned(path: Path) -> None:
    with _database(path).writing("test") as writer:
        writer.prune(1, NOW)
        store_steps.publish_plan(writer)


def _gather(stage: Stage) -> None:
    """Three portions, a checkpoint after each, the last one being the end."""
    if harvest.inspect(stage.path / HARVEST).ended:
        return
    written = Harvest(stage.path / HARVEST, SEGMENT_BYTES)
    try:
        stage.settle()
        known = {int(one) for one in written.journalled()["path"]}
        portions = (range(6, 9), range(9, 13), range(13, 15))
        left = [[n for n in some if PRINTS.half(f"/{n}") not in known] for some in portions]
        for number, some in enumerate(left):
            store_steps.gather(written, some[: len(some) // 2], 3)
            written._segments.flush()  # on disk, but nobody was told
            written._flush_journal()
            store_steps.gather(written, some[len(some) // 2 :], 3)
            (written.end if number == len(left) - 1 else written.checkpoint)(NOW * 1000 + number)
            stage.settle()
    finally:
        written.close()


def _gathered(path: Path) -> None:
    _planned(path)
    written = Harvest(path / HARVEST, SEGMENT_BYTES)
    store_steps.gather(written, range(6, 12), 3)
    written.end(NOW * 1000)


def _gather_and_cork(stage: Stage) -> None:
    if not Database(stage.path / "db").furthest().name.closed:
        _gather(stage)
        _cork(stage)


def _cork(stage: Stage) -> None:
    with Database(stage.path / "db").writing("test") as writer:
        if not writer.furthest().name.closed:
            store_steps.cork(writer)
            stage.settle()


# --- recover ----------------------------------------------------------------------------------------------------


def _reap_killed(path: Path) -> None:
    """A harvest with a checkpoint and a tail behind it in every file, and a segment that no checkpoint names."""
    _planned(path)
    written = Harvest(path / HARVEST, ROOMY_BYTES)
    store_steps.gather(written, range(6, 9), 3)
    written.checkpoint(NOW * 1000)
    store_steps.gather(written, range(9, 14), 3)
    written._segments.flush()
    written._flush_journal()
    written.close()
    with (path / HARVEST / names.CHECKPOINTS).open("ab") as log:
        log.write((path / HARVEST / names.CHECKPOINTS).read_bytes()[:50])


def _all_killed(path: Path) -> None:
    """The same, a half-built directory, a half-deleted one, and what killed readers and requesters leave."""
    _reap_killed(path)
    for leftover in ("000004.tmp", "000001.gone"):
        (path / STATES / leftover / "index").mkdir(parents=True)
        (path / STATES / leftover / "index" / "norm").write_bytes(b"x" * 10)
    for place, suffix in ((names.INBOX, "req"), (names.LEASES, "lease")):
        (path / "db" / place / f".{store_steps.item_name(1)}.{suffix}.tmp").write_bytes(b"{")


def _resume(stage: Stage) -> None:
    """The next reap begins without a recover, and ends without having stored anything more."""
    if harvest.inspect(stage.path / HARVEST).ended:
        return
    written = Harvest(stage.path / HARVEST, ROOMY_BYTES)
    stage.settle()
    written.end(NOW * 1000)
    stage.settle()


def _damaged(path: Path) -> None:
    """A harvest with two checkpoints, of which the second does not hold: its journal is damaged."""
    _planned(path)
    written = Harvest(path / HARVEST, ROOMY_BYTES)
    for first in (6, 9):
        store_steps.gather(written, range(first, first + 3), 3)
        written.checkpoint(NOW * 1000)
    written.close()
    with (path / HARVEST / names.JOURNAL).open("r+b") as journal:
        journal.seek(-7, os.SEEK_END)
        journal.write(b"damaged")


def _recover(stage: Stage) -> None:
    recover_once(stage.path / "db")
    stage.settle()


# --- states that go, leases, the inbox --------------------------------------------------------------------------


def _five_states(path: Path) -> None:
    _database(path, 5)


def _prune(stage: Stage) -> None:
    with Database(stage.path / "db").writing("test") as writer:
        for keep in (3, 1):
            writer.prune(keep, NOW)
            stage.settle()


def _three_states(path: Path) -> None:
    _database(path, 3)


def _lease(stage: Stage) -> None:
    """Two leases; one is given back; the other keeps its state from being pruned until it expires."""
    db = Database(stage.path / "db")
    first = _take(db, 1, 3, 10)
    stage.settle()
    if 2 in {name.number for name in db.states()}:
        _take(db, 2, 2, 100)
        stage.settle()
    db.leases.remove(first)
    stage.settle()
    with db.writing("test") as writer:
        for now in (NOW + 50, NOW + 101):
            writer.prune(1, now)
            stage.settle()


def _take(db: Database, ordinal: int, state: int, seconds: int) -> Lease:
    """As Database.lease does, but under the name of a process that has ended."""
    lease = Lease(store_steps.item_name(ordinal), state, "me", "test", store_steps.DEAD_PID, NOW + seconds)
    with db.leases.locked():
        db.leases.write(lease)
    return lease


def _inbox(stage: Stage) -> None:
    """Three items are dropped, taken by an unfinished directory, removed once a closed state has them, and then forgotten."""
    db = Database(stage.path / "db")
    with db.writing("test") as writer:
        if writer.furthest().number == 2:
            for number in (1, 2):
                db.inbox.drop(store_steps.item_name(number), [{"op": "insert", "url": store_steps.url_of(number)}] * number)
                stage.settle()
            store_steps.insert(db, store_steps.item_name(3), range(3))
            stage.settle()
            taken = tuple(item.name for item in db.inbox.items())
            store_steps.publish_changed(writer, 30, "merged", applied=taken)
            stage.settle()
        if not writer.furthest().name.closed:
            store_steps.publish_changed(writer, 31, number=3)
            stage.settle()
        if writer.furthest().number == 3:
            store_steps.publish_changed(writer, 40)
            stage.settle()


FOREIGN = cycle_steps.ITEM.format(8)


def _with_source(path: Path) -> None:
    """A closed state, and a harvest from elsewhere beside the database."""
    cycle_steps.grow(path / "db", "plan")
    pages = [harvests.Page(url, f"body of {url}" * 9) for url in cycle_steps.SEEDS]
    harvests.harvest(path / "source", pages, {"http://a.example/far": 7})


def _foreign_harvest(stage: Stage) -> None:
    """A harvest is dropped, taken by the next closed state, and removed."""
    db = Database(stage.path / "db")
    if db.furthest().number == 2 and not db.inbox.items(HARVEST_ITEM):
        db.inbox.drop_harvest(FOREIGN, stage.path / "source")
        stage.settle()
    with db.writing("test") as writer:
        if writer.furthest().number == 2:
            cork.run(writer, cycle_steps.config(stage.path / "db"), NOW, lambda _rows: None)
            stage.settle()


# --- a mirror ---------------------------------------------------------------------------------------------------


def _mirrored(path: Path) -> None:
    """A mirror with one state, whose source has gone on since: new segments and columns, and then an older state is gone."""
    store_steps.create(path / "source")
    with Database(path / "source").writing("test") as writer:
        store_steps.publish_with(writer, range(6))
        bring(Folder(path / "source"), path / "db")
        store_steps.publish_with(writer, range(6, 10))
        store_steps.publish_changed(writer, 40)


def _mirror(stage: Stage) -> None:
    """The state that is new is received; a later round deletes the older one."""
    for keep in (2, 1):
        bring(Folder(stage.path / "source"), stage.path / "db", way(keep=keep))
        stage.settle()


WORKLOADS = {
    "init": Workload(_nothing, _init),
    "publish": Workload(_two_states, _publish),
    "harvest": Workload(_planned, _gather, repeatable=False),
    "cork": Workload(_gathered, _cork),
    "harvest and cork": Workload(_planned, _gather_and_cork, repeatable=False),
    "resume": Workload(_reap_killed, _resume, repeatable=False),
    "recover": Workload(_all_killed, _recover),
    "recover from damage": Workload(_damaged, _recover, sound=False),
    "prune": Workload(_five_states, _prune),
    "lease": Workload(_three_states, _lease, repeatable=False),
    "inbox": Workload(_two_states, _inbox),
    "inbox harvest": Workload(_with_source, _foreign_harvest),
    "mirror": Workload(_mirrored, _mirror, tidies=False),
}


# --- the phases themselves --------------------------------------------------------------------------------------


def _phase(step: str) -> Workload:
    def prepare(path: Path) -> None:
        cycle_steps.grow(path / "db", step)

    def play(stage: Stage) -> None:
        with suppress(NothingToDo):
            cycle_steps.ALL[step](stage.path / "db", lambda _line: stage.settle())

    return Workload(prepare, play)


STEPS = ("merge", "select", "record", "plan", "cork", "merge more", "equiv", "feedback", "cleanup")
PHASES = {f"phase {step}": _phase(step) for step in STEPS}
