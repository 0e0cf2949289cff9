"""shep-dump on a terminal, into a pipe, over a table that is large and over files that are damaged."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from shepherd.formats import tables
from shepherd.formats.tables import NO_OID
from shepherd.store.disk.names import StateName
from shepherd.store.state import database
from shepherd.store.state.database import Database
from tests.support.page_states import ROOT, Herd, make_herd
from tests.support.sound import flip
from tests.support.unfinished_states import refusal, run, start_reap
from tests.support.waiting import PATIENCE_S
from tests.worlds import KEY, NOW


@pytest.fixture(scope="module")
def reaping(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """A database in the midst of a reap. For tests that change nothing."""
    herd = make_herd(tmp_path_factory.mktemp("reaping"))
    start_reap(herd)
    return herd


def dump(db: Path, *arguments: str) -> str:
    done = run(db, "shep-dump", *arguments)
    assert done.returncode == 0, done
    return done.stdout


# --- how it is laid out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["index", "sites", "servers", "journal", "plan", "buckets", "checkpoints", "contrib"])
def test_cells_stand_under_their_titles(reaping: Herd, command: str) -> None:
    """A title and its cells begin or end in the same column, and never touch what is beside them."""
    header, *lines = dump(reaping.db, command).splitlines()
    assert lines
    for title in re.finditer(r"\S+", header):
        for line in lines:
            cells = re.finditer(r"\S+(?: \S+)*", line)
            assert any(cell.start() == title.start() or cell.end() == title.end() for cell in cells), (title[0], line)


def test_empty_table_has_its_header(tmp_path: Path) -> None:
    database.create(tmp_path / "db", KEY, NOW, 0)
    for command in ("index", "sites", "servers", "journal", "buckets", "contrib", "checkpoints", "inbox", "leases"):
        assert dump(tmp_path / "db", command).count("\n") == 1
        assert dump(tmp_path / "db", command, "--json") == ""


@pytest.mark.parametrize("command", [["bucket", "http://a.example/", "--body"], ["bucket", "http://a.example/moved"]])
def test_bytes_from_the_web_cannot_steer_a_terminal(herd: Herd, command: list[str]) -> None:
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "shepherd.cli", "shep-dump", *command, "--db", str(herd.db)]
    subprocess.run(line, cwd=ROOT, stdout=theirs, check=True, timeout=PATIENCE_S)
    shown = os.read(ours, 100_000)
    os.close(ours)
    os.close(theirs)
    assert b"\x1b" not in shown
    assert b"\\x1b" in shown


# --- large and damaged ------------------------------------------------------------------------------------------


def make_big(directory: Path, count: int) -> Path:
    """A state with so many rows and no buckets."""
    database.create(directory / "db", KEY, NOW, 0)
    with Database(directory / "db").writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(2, "closed"), NOW)
        columns = tables.empty(tables.INDEX, count)
        columns["norm"], columns["oid"] = np.arange(count, dtype="<u8"), np.full(count, NO_OID, "<u8")
        columns["flags"][:] = 0x8001
        builder.write_table("index", columns)
        for table in ("sites", "servers"):
            builder.keep_table(table)
        writer.publish(builder, {})
    return directory / "db"


def test_value_without_a_name_is_shown_as_a_number(tmp_path: Path) -> None:
    big = make_big(tmp_path, 1)
    (row,) = [json.loads(line) for line in dump(big, "index", "--json").splitlines()]
    assert (row["type"], row["reason"], row["flags"]) == ("0", "none", ["robots", "0x8000"])


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_big(tmp_path_factory.mktemp("big"), 300_000)


def test_rows_are_printed_up_to_the_damage(big: Path) -> None:
    column = big / "state/000002/index/oid"
    flip(column, 1_500_000)
    done = run(big, "shep-dump", "index")
    flip(column, 1_500_000)
    assert done.returncode == 11
    assert done.stderr == f"shep-dump: {column} at 1048576: the block is damaged; shep-check lists all damage\n"
    assert 120_000 < done.stdout.count("\n") <= 1 + 1_048_576 // 8


def test_table_is_never_whole_in_memory(big: Path) -> None:
    """300,000 rows of 20 values are 190 MB as objects; the program alone is about 20 MB of private memory."""
    command = [sys.executable, "-m", "shepherd.cli", "shep-dump", "index", "--db", str(big)]
    seen = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            status = Path(f"/proc/{child.pid}/status").read_text()
            seen += [int(found[1]) for found in re.finditer(r"RssAnon:\s+([0-9]+) kB", status)]
            time.sleep(0.01)
    assert child.returncode == 0
    assert 10_000 < max(seen) < 70_000


def test_rows_of_a_site_are_read_without_the_rest(big: Path) -> None:
    """A slice by bisection does not meet the damage that a scan would."""
    column = big / "state/000002/index/path"
    flip(column, 1_500_000)
    done = run(big, "shep-dump", "index", "--site", "a.example", "--json")
    flip(column, 1_500_000)
    assert (done.returncode, done.stdout) == (0, "")


def test_reader_that_has_seen_enough_is_no_failure(big: Path) -> None:
    command = [sys.executable, "-m", "shepherd.cli", "shep-dump", "index", "--db", str(big)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout and writer.stderr
        assert writer.stdout.readline().split()[:2] == [b"row", b"norm"]
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 141
    assert list((big / "lease").glob("*.lease")) == []


@pytest.mark.parametrize(
    ("command", "path", "offset", "named"),
    [
        ("control", "control", 30, "control: the control file is damaged"),
        ("index", "index/norm", 3, "index/norm at 0: the block is damaged"),
        ("index", "index/norm.check", 3, "index/norm.check: the block table is damaged"),
        ("sites", "sites/names", 3, "sites/names at 0: the block is damaged"),
        ("servers", "servers/qkey", 3, "servers/qkey at 0: the block is damaged"),
        ("plan", "plan", 40, "plan at 0: no whole frame"),
        ("contrib", "contrib.00000001", 140, "contrib.00000001 at 0: no whole frame"),
        ("buckets", "objects/00000001", 90, "objects/00000001 at 0: header or attributes"),
        ("journal", "harvest/reap/journal", 200, "harvest/reap: journal is not as checkpoint 2 says"),
    ],
)
def test_damaged_file_is_named(own_herd: Herd, command: str, path: str, offset: int, named: str) -> None:
    start_reap(own_herd)
    flip(own_herd.db / "state/000003.reap" / path, offset)
    assert f"state/000003.reap/{named}" in refusal(own_herd.db, "shep-dump", command, status=11)


def test_journal_is_shown_up_to_the_damage(own_herd: Herd) -> None:
    flip(start_reap(own_herd) / "journal", 200)
    done = run(own_herd.db, "shep-dump", "journal", "--json")
    assert done.returncode == 11
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["qkey"]
