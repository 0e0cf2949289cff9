"""shep-mirror against a real shep-serve: what it brings, what it need not bring, and what it does when it is cut short."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shepherd.store.disk import failpoints
from shepherd.store.state.database import Database
from tests.store.mirror.received import advance, spoil
from tests.support import sampling
from tests.support.programs import call
from tests.support.segment_states import Sheep, clean, config, fill
from tests.support.serving import ROOT, Serving, serving, token_of
from tests.support.toy_farm import contents
from tests.support.waiting import PATIENCE_S, wait_until
from tests.worlds import NOW

FLOCK = [Sheep(f"http://h{n % 3}.example/{n}", now=b"body %d " % n * 30, before=(b"old " * 90,)) for n in range(60)]
LARGE = 5 << 20
KILLS = 3


@pytest.fixture
def source(home: Path) -> Iterator[Serving]:
    fill(home / "source", FLOCK)
    with serving(home / "source") as one:
        yield one


def arguments(source: Serving, db: Path, *more: str, client: str = "mirror") -> list[str]:
    token = source.home / f"{client}.token"
    token.write_text(f"{token_of(client)}\n")
    token.chmod(0o600)
    return ["--from", source.url, "--token-file", str(token), "--db", str(db), "--cf", str(source.home / "cf"), *more]


def mirror(source: Serving, db: Path, *more: str, fail: str = "", client: str = "mirror") -> subprocess.CompletedProcess[str]:
    return call("shep-mirror", *arguments(source, db, "--json", *more, client=client), SHEPHERD_FAIL=fail)


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(db: Path) -> None:
    assert call("shep-check", "--quiet", "--db", str(db)).returncode == 0


def newest(db: Path) -> dict[str, bytes]:
    return contents(Database(db).closed().path)


def fetched(source: Serving) -> list[str]:
    """The files that were asked for, without control."""
    paths = [event["path"].partition("/files/")[2] for event in source.events() if "/files/" in event.get("path", "")]
    return [path for path in paths if path != "control"]


def is_same(source: Serving, db: Path) -> bool:
    return Database(db).closed().number == source.database.closed().number and newest(db) == newest(source.home / "db")


# --- what travels -----------------------------------------------------------------------------------------------


def test_mirror_is_its_source_and_fetches_only_what_it_lacks(source: Serving, home: Path) -> None:
    first = report_of(mirror(source, home / "mirror"))
    assert (first["state"], first["linked"], first["fetched"]) == (2, 0, first["files"])
    assert is_same(source, home / "mirror")
    check(home / "mirror")
    assert call("shep", "stats", "--db", str(home / "mirror")).returncode == 0
    before = len(fetched(source))
    assert report_of(mirror(source, home / "mirror"))["fresh"] is False
    assert len(fetched(source)) == before
    advance(source.home / "db", 9)
    would = report_of(mirror(source, home / "mirror", "--dry-run"))
    assert (would["state"], would["fetched"], would["dry_run"]) == (3, 1, True)
    second = report_of(mirror(source, home / "mirror"))
    assert (second["state"], second["fetched"], second["linked"]) == (3, 1, second["files"] - 1)
    assert sorted(fetched(source)[before:]) == ["index/weight", "index/weight.check"]
    assert is_same(source, home / "mirror")
    check(home / "mirror")
    assert os.path.samefile(home / "mirror/state/000002/index/norm", home / "mirror/state/000003/index/norm")
    assert [lease for lease in source.database.leases.all() if lease.is_served] == []


def test_older_states_go_and_a_leased_one_stays(source: Serving, home: Path) -> None:
    mirror(source, home / "mirror")
    lease = Database(home / "mirror").lease(2, "me", "reading", NOW * 1000, 2_000_000_000 - NOW)
    for weight in (5, 6, 7):
        advance(source.home / "db", weight)
        assert mirror(source, home / "mirror", "--keep", "1").returncode == 0
    assert [name.number for name in Database(home / "mirror").states()] == [2, 5]
    Database(home / "mirror").leases.remove(lease)
    assert report_of(mirror(source, home / "mirror", "--keep", "1"))["deleted"] == [2]


def test_mirror_of_a_mirror_is_the_same_database(source: Serving, home: Path) -> None:
    mirror(source, home / "middle" / "db")
    with serving(home / "middle") as middle:
        report_of(mirror(middle, home / "far"))
        advance(source.home / "db", 4)
        report_of(mirror(source, home / "middle" / "db"))
        assert report_of(mirror(middle, home / "far"))["fetched"] == 1
    assert newest(home / "far") == newest(source.home / "db")
    check(home / "far")


def has_more(made: list[int], than: int) -> bool:
    return len(made) > than


def test_mirror_is_whole_while_cycles_and_cleanups_run(source: Serving, home: Path) -> None:
    """States come, are cleaned up and go at the source while files of one of them are on their way."""
    over, made = threading.Event(), list[int]()

    def change() -> None:
        settings = config(source.home / "cf", segment_bytes=20_000)
        while not over.is_set():
            advance(source.home / "db", len(made))
            clean(source.database, settings, now=NOW + len(made), everything=True)
            with source.database.writing("test") as writer:
                made.append(writer.furthest().number)
                writer.prune(1, int(time.time()))

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _round in range(4):
            rounds = len(made)
            report_of(mirror(source, home / "mirror", "--limit-rate", "100000"))
            check(home / "mirror")
            wait_until(partial(has_more, made, rounds))
    finally:
        over.set()
        changing.join()
    report_of(mirror(source, home / "mirror"))
    assert is_same(source, home / "mirror")


# --- cut short --------------------------------------------------------------------------------------------------


def test_mirror_killed_at_any_call_is_completed_by_the_next_run(source: Serving, home: Path, crash_sweep: bool) -> None:
    """The first state into an empty directory, and the next one beside it."""
    mirror(source, home / "second")
    advance(source.home / "db", 9)
    expected, dice = newest(source.home / "db"), sampling.dice("kills of a mirror")
    every = [(op, ordinal) for op in failpoints.OPS for ordinal in range(1, 400, 7)]
    some = [(op, dice.randint(1, 20)) for op in dice.sample(failpoints.OPS, KILLS)]
    for op, ordinal in every if crash_sweep else some:
        shutil.copytree(home / "second", home / "copy", copy_function=os.link)
        for db in (home / "first", home / "copy"):
            done = mirror(source, db, "--jobs", "1", fail=f"{op}::{ordinal}=kill")
            assert done.returncode in (0, -signal.SIGKILL), done.stderr
            assert report_of(mirror(source, db, "--jobs", "1"))["state"] == 3
            assert newest(db) == expected, (op, ordinal)
            check(db)
            shutil.rmtree(db)


def large(home: Path) -> Path:
    """A database with one segment of some MB that cannot be compressed."""
    body = np.random.default_rng(1).bytes(LARGE)
    return fill(home, [Sheep("http://a.example/large", now=body)], segment_bytes=1 << 30).path


def test_large_file_is_resumed_after_a_kill(home: Path) -> None:
    large(home / "source")
    with serving(home / "source") as source:
        done = mirror(source, home / "mirror", "--jobs", "1", fail="write:objects/00000001:12=kill")
        assert done.returncode == -signal.SIGKILL
        have = (home / "mirror/state/000002.tmp/objects/00000001").stat().st_size
        assert 0 < have < LARGE
        assert 0 < report_of(mirror(source, home / "mirror"))["fetched_bytes"] < LARGE - have + 100_000
        assert is_same(source, home / "mirror")
    check(home / "mirror")


@pytest.mark.parametrize("damage", ["another byte", "longer", "sealed"])
def test_damage_to_what_a_killed_mirror_left_is_noticed(home: Path, damage: str) -> None:
    large(home / "source")
    with serving(home / "source") as source:
        mirror(source, home / "mirror", "--jobs", "1", fail="write:objects/00000001:12=kill")
        half = home / "mirror/state/000002.tmp/objects/00000001"
        with half.open("r+b") as file:
            if damage == "another byte":
                file.write(b"XXXX")
            else:
                file.seek(0, 2)
                file.write(bytes(2 * LARGE) if damage == "longer" else b"")
        if damage == "sealed":
            half.chmod(0o444)
        report_of(mirror(source, home / "mirror"))
        assert is_same(source, home / "mirror")
    check(home / "mirror")


def test_transfer_that_was_cut_off_is_resumed_although_the_source_has_a_newer_state(home: Path) -> None:
    large(home / "source")
    with serving(home / "source") as source:
        mirror(source, home / "mirror", "--jobs", "1", fail="write:objects/00000001:12=kill")
        advance(source.home / "db", 9)
        with source.database.writing("test") as writer:
            writer.prune(1, int(time.time()) + 100_000)
        done = report_of(mirror(source, home / "mirror"))
        assert done["state"] == 3 and done["fetched_bytes"] < LARGE
        assert is_same(source, home / "mirror")
    check(home / "mirror")


@pytest.mark.parametrize(("fault", "status"), [("enospc", 12), ("eio", 13)])
def test_disk_that_is_full_or_fails_does_not_cost_the_state_that_is_there(
    source: Serving, home: Path, fault: str, status: int
) -> None:
    mirror(source, home / "mirror")
    had = contents(home / "mirror" / "state")
    advance(source.home / "db", 9)
    assert mirror(source, home / "mirror", fail=f"write:index/weight:1={fault}").returncode == status
    assert {name: data for name, data in contents(home / "mirror" / "state").items() if ".tmp/" not in name} == had
    report_of(mirror(source, home / "mirror"))
    check(home / "mirror")


def test_stop_in_the_middle_of_a_file_keeps_what_has_come(home: Path) -> None:
    large(home / "source")
    with serving(home / "source") as source:
        words = arguments(source, home / "mirror", "--limit-rate", "1000000", "--jobs", "1")
        command = [sys.executable, "-m", "shepherd.cli", "shep-mirror", *words]
        slow = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
        try:
            half = home / "mirror/state/000002.tmp/objects/00000001"
            wait_until(lambda: half.exists() and half.stat().st_size > 0)
            slow.send_signal(signal.SIGTERM)
            assert b"the next run continues" in slow.communicate(timeout=PATIENCE_S)[1]
        finally:
            slow.kill()
        assert slow.returncode == 128 + signal.SIGTERM
        have = half.stat().st_size
        assert report_of(mirror(source, home / "mirror"))["fetched_bytes"] < LARGE - have + 100_000
    check(home / "mirror")


def test_damage_of_a_mirror_is_repaired_and_does_not_spread(source: Serving, home: Path) -> None:
    mirror(source, home / "mirror")
    for path in ("objects/00000002", "index/norm", "index/site.check"):
        spoil(home / "mirror/state/000002" / path)
    (home / "mirror/state/000002/report.json").unlink()
    assert mirror(source, home / "mirror").returncode == 11
    lease = Database(home / "mirror").lease(2, "me", "reading", NOW * 1000, 2_000_000_000 - NOW)
    assert mirror(source, home / "mirror", "--verify").returncode == 3  # somebody reads it
    Database(home / "mirror").leases.remove(lease)
    Database(home / "mirror").lease(2, "me", "reading, once", NOW * 1000, -NOW)  # one that is over holds nothing
    done = report_of(mirror(source, home / "mirror", "--verify"))
    assert (done["state"], done["fetched"]) == (2, 4)
    assert is_same(source, home / "mirror")
    check(home / "mirror")
    assert report_of(mirror(source, home / "mirror", "--verify"))["fresh"] is False


def test_damage_of_the_source_is_reported_as_damage_there(source: Serving, home: Path) -> None:
    spoil(source.database.closed().path / "index/norm")
    done = mirror(source, home / "mirror")
    assert done.returncode == 11 and done.stderr.endswith("nothing here is damaged: run shep-check at the source\n")


# --- who may ------------------------------------------------------------------------------------------------------


def test_second_mirror_into_one_directory_is_locked_out(source: Serving, home: Path) -> None:
    mirror(source, home / "mirror")
    with Database(home / "mirror").writing("another mirror"):
        done = mirror(source, home / "mirror")
    assert done.returncode == 3 and "another mirror" in done.stderr


def test_client_without_the_mirror_role_gets_no_files(source: Serving, home: Path) -> None:
    assert mirror(source, home / "mirror", client="reader").returncode == 21
    assert mirror(source, home / "mirror", client="nobody").returncode == 21
    assert not (home / "mirror").exists()


def test_source_that_refuses_leaves_no_empty_database_here(source: Serving, home: Path) -> None:
    """To every program that would be a database that has lost its states."""
    (home / "empty").mkdir()
    for db in (home / "new" / "db", home / "empty"):
        assert mirror(source, db, client="reader").returncode == 21
        assert mirror(source, db, "--watch", "1", client="reader").returncode == 21
        assert call("shep-mirror", *arguments(source, db), "--from", "http://127.0.0.1:1").returncode == 20
    assert not (home / "new").exists() and not list((home / "empty").iterdir())


def test_standby_waits_for_its_source_before_it_makes_anything(source: Serving, home: Path) -> None:
    source.end()
    words = arguments(source, home / "mirror", "--watch", "1")
    command = [sys.executable, "-m", "shepherd.cli", "shep-mirror", *words]
    standby = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
    try:
        assert standby.stderr is not None
        assert b"the next look" in standby.stderr.readline()
        assert not (home / "mirror").exists()
        with serving(home / "source", listen=f"127.0.0.1:{source.url.rpartition(':')[2]}"):
            wait_until(lambda: (home / "mirror/state/000002").is_dir())
    finally:
        standby.kill()
        standby.communicate()


def test_token_that_others_can_read_is_refused(source: Serving, home: Path) -> None:
    words = arguments(source, home / "mirror")
    (source.home / "mirror.token").chmod(0o640)
    done = call("shep-mirror", *words)
    assert done.returncode == 2 and "chmod 600" in done.stderr and token_of("mirror") not in done.stderr


def test_first_gathering_after_a_restore_is_unsure_of_every_server(source: Serving, home: Path) -> None:
    """The machine that is gone continued to fetch after the state that was mirrored: from whom is unknown here."""
    mirror(source, home / "mirror")
    advance(home / "mirror", 3)
    made = Database(home / "mirror").furthest()
    assert made.control.unsure == made.control.now * 1000 > 0
    assert source.database.furthest().control.unsure == 0
    assert mirror(source, home / "mirror").returncode == 2  # it is a database of its own now


# --- a warm standby -----------------------------------------------------------------------------------------------


def test_standby_survives_the_absence_of_its_source_and_catches_up(home: Path) -> None:
    fill(home / "source", FLOCK)
    with serving(home / "source") as source:
        port = source.url.rpartition(":")[2]
        command = [sys.executable, "-m", "shepherd.cli", "shep-mirror", *arguments(source, home / "mirror", "--watch", "1")]
        standby = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
        try:
            wait_until(lambda: (home / "mirror/state/000002").is_dir())
            advance(source.home / "db", 3)
            wait_until(lambda: (home / "mirror/state/000003").is_dir())
            source.end()
            advance(source.home / "db", 4)
            with serving(home / "source", listen=f"127.0.0.1:{port}"):
                wait_until(lambda: (home / "mirror/state/000004").is_dir())
                assert call("shep-merge", "--db", str(home / "mirror")).returncode == 3  # nobody gathers there meanwhile
                standby.send_signal(signal.SIGTERM)
                assert standby.wait(PATIENCE_S) == 0
        finally:
            standby.kill()
            standby.communicate()
    assert newest(home / "mirror") == newest(home / "source" / "db")
    check(home / "mirror")
