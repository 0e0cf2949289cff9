"""The lease of a killed program ends; that of a program that may still be alive, or of no process, stays."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shepherd import processes
from shepherd.formats import tables
from shepherd.store.disk.names import StateName
from shepherd.store.state import database
from shepherd.store.state.database import Database
from shepherd.store.state.lease import SERVED, Lease
from tests.support.killed import kill_reader, reader


@pytest.fixture
def db(tmp_path: Path) -> Database:
    """With closed states 1 and 2."""
    now = int(time.time())
    database.create(tmp_path / "db", bytes(16), now, 0)
    found = Database(tmp_path / "db")
    with found.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(2, "closed"), now)
        for table in tables.TABLES:
            builder.keep_table(table)
        writer.publish(builder, {})
    return found


def prune(db: Database) -> list[int]:
    with db.writing("test") as writer:
        return writer.prune(1, int(time.time()))


def test_lease_of_a_killed_program_ends_at_once(db: Database) -> None:
    kill_reader(db.path, 1)
    (lease,) = db.leases.all()
    assert lease.expires > time.time() + 3_600 and db.leases.states_in_use(int(time.time())) == set()
    assert prune(db) == [1] and db.leases.all() == []


def test_state_stays_while_a_program_reads_it(db: Database) -> None:
    with reader(db.path, 1):
        assert prune(db) == [] and len(db.leases.all()) == 1
    assert prune(db) == [1]


def test_state_stays_while_we_read_it(db: Database) -> None:
    with db.reading("test", time.time_ns() // 1_000_000, 1):
        assert prune(db) == []
    assert prune(db) == [1]


def test_lease_under_a_reused_pid_is_orphaned(db: Database) -> None:
    place, _, start = processes.own().rpartition(" ")
    lease = db.lease(1, "me", "test", time.time_ns() // 1_000_000, 600, f"{place} {int(start) - 1}")
    assert lease.pid == os.getpid() and lease.is_orphaned
    assert not db.lease(1, "me", "test", time.time_ns() // 1_000_000, 600, processes.own()).is_orphaned


def elsewhere(lease: Lease) -> list[Lease]:
    """The same of another boot, another container, another clock, another machine, and of an older version of the program."""
    words = lease.process.split(" ")
    others = [" ".join([*words[:at], words[at] + "0", *words[at + 1 :]]) for at in range(3)]
    time_ms, _, rest = lease.name.partition("-")
    away = replace(lease, name="-".join([time_ms, "elsewhere", *rest.rsplit("-", 2)[1:]]))
    return [away, *(replace(lease, process=text) for text in (*others, "", "x", " 1"))]


def test_lease_of_another_machine_is_kept(db: Database) -> None:
    kill_reader(db.path, 1)
    (lease,) = db.leases.all()
    assert lease.is_orphaned
    for other in elsewhere(lease):
        assert not other.is_orphaned and other.holds(int(time.time())), other
        db.leases.remove(lease)
        db.leases.write(other)
        assert prune(db) == [], other
        db.leases.remove(other)


@pytest.mark.parametrize("purpose", ["shep lock: the index", f"{SERVED}an index"])
def test_lease_of_a_lock_or_client_outlives_the_program_that_took_it(db: Database, purpose: str) -> None:
    pid = kill_reader(db.path, 1)
    (killed,) = db.leases.all()
    db.leases.remove(killed)
    lease = replace(killed, purpose=purpose, process=processes.UNKNOWN)
    db.leases.write(lease)
    assert lease.pid == pid and prune(db) == []
    fields = json.loads((db.leases.directory / f"{lease.name}.lease").read_bytes())
    assert sorted(fields) == ["expires", "owner", "pid", "purpose", "state"]
