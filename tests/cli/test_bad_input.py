"""Every program that takes --db, on a database that is missing, foreign, newer, cut, unreadable, locked or on a full disk.

Each time: one clear sentence on stderr that says what to do next, the documented exit status, and nothing lost.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from shepherd.cli.__main__ import PROGRAMS
from shepherd.formats.check import check64
from shepherd.store.disk import fsio, locks
from tests.support.page_states import ROOT, Herd, make_herd
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S
from tests.test_docs import commands

URL = "http://a.example/"
CONTACT = ("--contact", "me@example.org")
ARGUMENTS = {  # of what cannot be called without
    "gather": (*CONTACT, "--pages", "1", "--minutes", "0.001", URL),
    "shep insert": (URL,),
    "shep cat": (URL,),
    "shep robots": (URL,),
    "shep fetch": (URL,),
    "shep url": (URL,),
    "shep explain": (URL,),
    "shep at": ("000002", URL),
    "shep diff": ("000001", "000002"),
    "shep delete": (URL,),
    "shep refresh": (URL,),
    "shep set": ("weight=9", URL),
    "shep unlock": ("2",),
    "shep-dump bucket": (URL,),
    "shep-export": ("--format", "jsonl", "-o", "-"),
    "shep-import": ("-",),
}
ELSEWHERE = {"shep-mirror"}  # brings a database from a server into a directory, and meets these things in tests/serve
MAKERS = {"gather", "shep-init"}  # make a database where there is none
WRITERS = {
    "gather", "shep-cleanup", "shep-cork", "shep-equiv", "shep-feedback", "shep-import", "shep-merge", "shep-plan", "shep-reap",
    "shep-record", "shep-recover", "shep-select", "shep-upgrade", "shep fetch", "shepherd cycle", "shepherd run",
}  # fmt: skip
INBOX = {"shep insert", "shep delete", "shep refresh", "shep set", "shep-rank"}  # leave something there, whoever has the lock
MASTERS = {"shepherd cycle", "shepherd run"}  # say more than a sentence: what their programs say, too
SERVERS = {"shep-serve"}  # run until they are stopped, where nothing is wrong: tests/serve
IDLE = {"shep-dump plan": 2, "shep audit politeness": 4, "shep unlock": 4}  # where there is no plan, no journal, no lease
STATELESS = {"shep insert", "shep reports", "shep lock", "shep unlock", "shep-dump leases"}  # look at no state
UNLEASED = {
    "shep-check",
    "shep-dump inbox",
    "shep-dump leases",
    "shep lock",
    "shep reports",
    "shep states",
    "shepherd status",
}  # see what is there
TOLERANT = {"shep states", "shepherd status"}  # tell what is wrong as they tell everything else


def with_database() -> Iterator[str]:
    """The words that call each program and subcommand that takes --db, and more of the database than its configuration."""
    for program, place in PROGRAMS.items():
        command = importlib.import_module(place.partition(":")[0]).command
        for path, below in commands(program, command):
            if path not in ELSEWHERE and any(
                isinstance(p, click.Option) and "--db" in p.opts and p.expose_value for p in below.params
            ):
                yield path


EVERY = tuple(with_database())


def test_no_program_is_forgotten() -> None:
    assert {"gather", "shep list", "shep-check", "shep-dump index", "shep-init", "shep-recover", "shepherd cycle"} <= set(EVERY)
    assert WRITERS | MAKERS | INBOX | MASTERS | SERVERS | STATELESS | TOLERANT | set(ARGUMENTS) | set(IDLE) <= set(EVERY)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    return make_herd(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def db(sound: Herd, tmp_path: Path) -> Path:
    """A database of one's own to spoil."""
    return Path(shutil.copytree(sound.db, tmp_path / "db"))


def run(sound: Herd, what: str, db: Path) -> subprocess.CompletedProcess[str]:
    program, *rest = what.split()
    arguments = (*rest, "--db", str(db), *ARGUMENTS.get(what, ()))
    return call(program, *arguments, cwd=db.parent, SHEPHERD_CF=str(sound.cf))


def sentence(done: subprocess.CompletedProcess[str], status: int) -> str:
    """The one sentence that a program which fails says; of a master that of its own, with which it stops."""
    assert done.returncode == status, done
    assert "Traceback" not in done.stderr
    said = done.stderr
    if list(done.args[:2]) == ["shepherd", "run"] and "event=failed" in said:
        said = said.split("event=failed")[1].split("\n")[0].partition('text="')[2].rstrip('"') + "\n"
    elif list(done.args[:2]) == ["shepherd", "cycle"]:
        said = said.splitlines(keepends=True)[-1]
    assert said.count("\n") == 1, said
    assert said.startswith(f"{done.args[0]}"), said
    return said.partition(": ")[2].rstrip("\n")


def reported_faults(done: subprocess.CompletedProcess[str]) -> str:
    """What a program prints that reports damage among other things."""
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def contents(path: Path) -> dict[str, bytes]:
    """Every file that counts: the text in a lock only informs, and a request that was inserted is meant to be there."""
    files = (
        p
        for p in sorted(path.rglob("*"))
        if p.is_file() and p.name != "lock" and not {"inbox", "log"} & set(p.relative_to(path).parts)
    )
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


# --- missing and foreign ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [w for w in EVERY if w not in MAKERS])
def test_missing_database(sound: Herd, tmp_path: Path, what: str) -> None:
    db = tmp_path / "db"
    assert sentence(run(sound, what, db), 2) == f"{db}: no database here; make one with `shep-init --db {db}`"
    assert not db.exists()


@pytest.mark.parametrize("what", EVERY)
def test_foreign_directory(sound: Herd, tmp_path: Path, what: str) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "holiday.jpg").write_text("x")
    said = sentence(run(sound, what, tmp_path / "db"), 2)
    assert "give --db" in said
    assert contents(tmp_path) == {"db/holiday.jpg": b"x"}


@pytest.mark.parametrize("what", EVERY)
def test_file_in_place_of_the_directory(sound: Herd, tmp_path: Path, what: str) -> None:
    (tmp_path / "db").write_text("x")
    assert "is a file. (see " in sentence(run(sound, what, tmp_path / "db"), 2)


@pytest.mark.parametrize("what", [w for w in EVERY if w not in STATELESS | MAKERS])
def test_database_without_a_state(sound: Herd, db: Path, what: str) -> None:
    shutil.rmtree(db / "state")
    (db / "state").mkdir()
    done = run(sound, what, db)
    if what in TOLERANT:
        assert "no state is there" in reported_faults(done)
    elif what == "shep-check":
        assert done.stdout == f"{db}/state: no closed state is there; copy the database back from a mirror\n"
        assert "shep-recover" in sentence(done, 11)
    else:
        assert re.search("state is there.*; (run shep-recover|copy (one|it) back from a mirror)", sentence(done, 10))


# --- what cannot be read ----------------------------------------------------------------------------------------


def newer(control: Path) -> None:
    """A format that we do not know yet."""
    control.chmod(0o644)
    body = control.read_bytes().replace(b"shepherd-control ", b"shepherd-control 9", 1).rpartition(b"check ")[0]
    control.write_bytes(body + f"check {check64(body):016x}\n".encode())
    control.chmod(0o444)


def cut(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size // 2)
    path.chmod(0o444)


@pytest.mark.parametrize("what", [w for w in EVERY if w not in STATELESS])
def test_newer_version(sound: Herd, db: Path, what: str) -> None:
    for control in db.glob("state/*/control"):
        newer(control)
    before = contents(db)
    done = run(sound, what, db)
    said = reported_faults(done) if what in TOLERANT else sentence(done, 2)
    expected = {"shep-init": "a database is there already"}.get(what, "use a newer Shepherd")
    assert re.search(f"{expected}$" if what not in TOLERANT | {"shep-init"} else expected, said)
    assert contents(db) == before


@pytest.mark.parametrize("what", [w for w in EVERY if w not in STATELESS | {"shep-init", "shep-recover"}])
def test_control_that_is_cut_off(sound: Herd, db: Path, what: str) -> None:
    for control in db.glob("state/*/control"):
        cut(control)
    before = contents(db)
    done = run(sound, what, db)
    if what in TOLERANT:
        assert "/state/000002/control: the control file is damaged or cut off" in reported_faults(done)
        return
    said = sentence(done, 11)
    if what == "shep-check":
        assert said == f"2 faults in {db}; shep-recover --dry-run lists what can be mended"
    else:
        assert re.match(rf"{db}/state/00000[12]/control: the control file is damaged or cut off; ", said)
        assert said.endswith("; shep-check names all damage")
    assert contents(db) == before


READS_COLUMNS = {
    "shep list": "index/type", "shep stats": "index/type", "shep cat": "index/", "shep explain": "index/", "gather": "servers/",
    "shep-dump index": "index/norm", "shep-dump sites": "sites/site", "shep-dump servers": "servers/qkey",
    "shep-dump buckets": "objects/00000001", "shep-dump bucket": "index/", "shep-plan": "sites/",
}  # fmt: skip


@pytest.mark.parametrize("what", READS_COLUMNS)
def test_files_that_are_cut_off(sound: Herd, db: Path, what: str) -> None:
    for file in db.glob("state/000002/*/*"):
        cut(file)
        file.chmod(0o444)
    before = contents(db)
    said = sentence(run(sound, what, db), 11)
    assert said.startswith(f"{db}/state/000002/{READS_COLUMNS[what]}"), said
    assert "shep-check" in said
    assert contents(db) == before


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize(("error", "next_step"), [("EACCES", "run as its owner"), ("EIO", "look at the disk before")])
@pytest.mark.parametrize("what", ["shep list", "shep-dump index", "shep-merge", "shep-recover", "shepherd cycle", "shep-check"])
def test_control_that_cannot_be_opened(sound: Herd, db: Path, what: str, error: str, next_step: str) -> None:
    control = db / "state/000002/control"
    strace = ["strace", "-f", "-qq", "-o", os.devnull, "-P", str(control), "-e", f"inject=openat:error={error}"]
    command = [*strace, sys.executable, "-m", "shepherd.cli", *what.split(), "--db", str(db), "--cf", str(sound.cf)]
    if what in ("shep list", "shep-dump index", "shep-recover", "shep-check"):
        command = command[:-2]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    done.args = what.split()
    said = sentence(done, 13)
    if what == "shep-check" and error == "EIO":  # which goes on, and tells of every place
        assert f"{control}: " in done.stdout
    else:
        assert f"{control}: " in said
        assert next_step in said


# --- lock, disk and arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [w for w in EVERY if w not in SERVERS | {"shep-init"}])
def test_lock_of_another_program(sound: Herd, db: Path, what: str) -> None:
    before = contents(db)
    held = locks.lock(db / "lock", "shep-plan")
    try:
        done = run(sound, what, db)
    finally:
        held.release()
    if what in WRITERS:
        said = sentence(done, 3)
        assert said.startswith(f"{db}/lock is held by shep-plan, pid {os.getpid()} on ")
        assert said.endswith("; wait for it to end, or stop it")
    elif what in IDLE:
        sentence(done, IDLE[what])
    else:
        assert done.returncode == 0, done
    assert contents(db) == before


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_full_disk(sound: Herd, tmp_path: Path) -> None:
    """A writer stops with status 12 and has lost nothing; a reader continues, without a lease; then there is room again."""
    with small_disk(tmp_path / "disk") as disk:
        db = Path(shutil.copytree(sound.db, disk / "db"))
        locks.lock(db / "lock", "test").release()
        before = contents(db)
        fill(disk / "filler")
        for what in (w for w in EVERY if w not in SERVERS):
            done = run(sound, what, db)
            if what in INBOX | {"gather", "shep-cleanup", "shep-merge", "shep-plan", "shepherd cycle", "shepherd run"}:
                assert done.returncode == 12, (what, done)
                assert "no space left" in done.stderr
                assert "run the same" in done.stderr
            elif what in WRITERS | {"shep-init", *IDLE}:
                assert done.returncode in (0, 2, 4), (what, done)
            else:
                assert done.returncode == 0, (what, done)
                assert "reads without a lease" in done.stderr or what in UNLEASED
            assert before.items() <= contents(db).items(), what
        fsio.unlink(disk / "filler")
        for what in ("shep insert", "shep-merge"):
            assert run(sound, what, db).returncode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system")
def test_read_only_disk(sound: Herd, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        db = Path(shutil.copytree(sound.db, disk / "db"))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for what in (w for w in EVERY if w not in SERVERS):
            done = run(sound, what, db)
            if what in (WRITERS | INBOX) - {"shep-init"}:
                assert "Read-only file system; nothing was changed: run as a user who may write there" in sentence(done, 13), what
            elif what not in ("shep-init", *IDLE):
                assert done.returncode == 0, (what, done)


BAD: dict[str, tuple[Callable[[str], bool], list[str]]] = {
    "an option that there is not": (lambda what: True, ["--no-such-option"]),
    "a state that is no name": (lambda what: what.startswith("shep-dump ") or what == "shep-check", ["--state", "newest"]),
    "a limit of nothing": (lambda what: what in ("shep list", "shep-dump index", "shep-dump inbox"), ["--limit", "0"]),
    "a time that is none": (lambda what: what in ("shep-plan", "shep-init", "shep-dump leases"), ["--now", "yesterday"]),
    "a configuration that is not there": (lambda what: what in WRITERS - {"gather", "shep-recover"}, ["--cf", "nowhere"]),
    "a URL that is none": (
        lambda what: what in ("shep cat", "shep explain", "shep url", "shep insert", "shep fetch", "shep robots"),
        ["ftp://x/"],
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_argument(sound: Herd, tmp_path: Path, bad: str) -> None:
    applies, arguments = BAD[bad]
    whats = [what for what in EVERY if applies(what)]
    assert whats
    for what in whats:
        if what in ("shep-dump inbox", "shep-dump leases") and "--state" in arguments:
            continue
        program, *rest = what.split()
        more = () if "ftp" in arguments[0] else ARGUMENTS.get(what, ())
        done = call(program, *rest, "--db", str(sound.db), *more, *arguments, cwd=tmp_path)
        assert done.returncode == 2, (what, done)
        assert done.stdout == "" or what == "shep url"
        assert 1 <= done.stderr.count("\n") <= 2, done.stderr  # shep url and shep insert name each URL, then sum up
        assert done.stderr.startswith((program, "ftp://x/"))
