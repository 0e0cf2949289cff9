"""shep states, lock and unlock, run as a user runs them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from shepherd.store.disk.names import StateName
from shepherd.store.state import cursors
from tests.support.killed import kill_reader, reader
from tests.support.page_states import PAGES, Herd, Run, add_state, objects, stdout_of
from tests.support.programs import call


def keep_everything(herd: Herd) -> int:
    """One more state, all by hard links."""
    with herd.store.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "closed"), herd.now)
        builder.keep(path for path in parent.control.files if path != "report.json")
        return writer.publish(builder, {"phase": "test"}).number


def inodes(directory: Path) -> dict[int, int]:
    found = (Path(place, name).stat() for place, _, names in os.walk(directory) for name in names)
    return {one.st_ino: one.st_size for one in found}


def prune(herd: Herd, keep: int) -> list[int]:
    with herd.store.writing("test") as writer:
        return writer.prune(keep, int(time.time()))


# --- states


def test_bytes_are_those_of_inodes(own_herd: Herd, shep: Run) -> None:
    keep_everything(own_herd)
    add_state(own_herd, PAGES[:3])
    files = {name: inodes(own_herd.db / "state" / f"{name:06d}") for name in (1, 2, 3, 4)}
    found = {one["number"]: one for one in objects(shep(own_herd, "states", "--json"))}
    assert list(found) == [1, 2, 3, 4]
    for number, mine in files.items():
        others = {inode for other, theirs in files.items() if other != number for inode in theirs}
        newer = {inode for other, theirs in files.items() if other > number for inode in theirs}
        assert found[number]["own_bytes"] == sum(size for inode, size in mine.items() if inode not in others)
        assert found[number]["shared_bytes"] == sum(size for inode, size in mine.items() if inode in others)
        assert found[number]["pinned_bytes"] == sum(size for inode, size in mine.items() if inode not in newer)
    assert 0 < found[2]["own_bytes"] < found[2]["shared_bytes"]
    assert (found[2]["rows"], found[2]["sites"], found[2]["from"], found[2]["contributions"]) == (len(PAGES), 3, "000001", 1)


def test_new_database_has_one_state(tmp_path: Path) -> None:
    db = tmp_path / "db"
    assert call("shep-init", "--db", str(db), "--cf", str(tmp_path / "cf")).returncode == 0
    title, line, total, configuration = call("shep", "states", "--db", str(db)).stdout.splitlines()
    assert title.split()[:4] == ["state", "made", "from", "rows"]
    assert line.startswith("000001  20") and "Z  -" in line
    assert total.endswith("on the disk") and configuration.startswith("configuration: ")


def test_unfinished_and_left_over_directories_are_listed(own_herd: Herd, shep: Run) -> None:
    planned = call("shep-plan", "--db", str(own_herd.db), "--cf", str(own_herd.cf), "--now", str(own_herd.now))
    assert planned.returncode == 0, planned
    (own_herd.db / "state" / "000004.tmp").mkdir()
    (own_herd.db / "state" / "not-ours").mkdir()
    found = objects(shep(own_herd, "states", "--json"))
    assert [(one["state"], one["phase"]) for one in found] == [
        ("000001", "closed"),
        ("000002", "closed"),
        ("000003.reap", "reap"),
        ("000004.tmp", "tmp"),
    ]
    assert found[2]["from"] == "000002"
    assert found[2]["shared_bytes"] > 0
    assert "left by a program that was killed" in stdout_of(shep(own_herd, "states"))


def test_damaged_state_does_not_hide_the_others(own_herd: Herd, shep: Run) -> None:
    control = own_herd.db / "state" / "000001" / "control"
    control.chmod(0o644)
    control.write_bytes(b"nonsense\x1b[2J\n")
    answer = shep(own_herd, "states")
    lines = stdout_of(answer).splitlines()
    assert "control" in lines[1]
    assert lines[2].startswith("000002  2026-09-21T")
    assert "\x1b" not in answer.stdout.decode()


def test_state_that_a_cursor_needs_lists_the_cursor(own_herd: Herd, shep: Run) -> None:
    """Else it would be unclear why a cleanup does not delete it."""
    add_state(own_herd, PAGES)
    logs = own_herd.db / "log"
    logs.mkdir(exist_ok=True)
    with own_herd.store.reading("test", 1_000 * own_herd.now, 2) as state:
        cursors.advance(own_herd.store, cursors.Cursor("archive", 0), state)
    (own_herd.cf / "shepherd.toml").write_text('[export]\ncursors = ["archive", "never"]\n')
    found = {one["number"]: one["cursors"] for one in objects(shep(own_herd, "states", "--json"))}
    assert found == {1: ["never"], 2: ["never"], 3: ["archive", "never"]}
    with own_herd.store.writing("test") as writer:  # as the writer sees it
        assert writer.prune(1, own_herd.now, unexported=("archive", "never")) == []
    lines = stdout_of(shep(own_herd, "states")).splitlines()
    assert lines[2].endswith("  cursor never") and lines[3].endswith("  cursor archive, cursor never")
    (own_herd.cf / "shepherd.toml").write_text('[export]\ncursors = ["never"]\nnonsense = 1\n')
    answer = shep(own_herd, "states", "--json")
    assert [one["cursors"] for one in objects(answer)] == [["never"]] * 3
    assert b"nonsense" in answer.stderr
    (own_herd.cf / "shepherd.toml").unlink()
    assert [one["cursors"] for one in objects(shep(own_herd, "states", "--json"))] == [[]] * 3


# --- lock and unlock


def test_locked_state_outlives_every_deletion(own_herd: Herd, shep: Run) -> None:
    add_state(own_herd, PAGES)
    before = int(time.time())
    (made,) = objects(shep(own_herd, "lock", "2", "--for", "2h", "--purpose", "the index", "--json"))
    assert (made["state"], made["purpose"]) == (2, "shep lock: the index")
    (lease,) = own_herd.store.leases.all()
    assert before + 7_200 <= lease.expires <= time.time() + 7_201
    assert prune(own_herd, 1) == [1]
    (listed,) = objects(shep(own_herd, "lock", "--json"))
    assert listed["id"] == made["id"]
    assert listed["pinned_bytes"] == sum(inodes(own_herd.db / "state" / "000002").values())
    assert "the index" in stdout_of(shep(own_herd, "states"))
    stdout_of(shep(own_herd, "unlock", made["id"]))
    assert objects(shep(own_herd, "lock", "--json")) == []
    assert prune(own_herd, 1) == [2]


def test_lock_of_the_newest_pins_nothing(own_herd: Herd, shep: Run) -> None:
    assert "state 2 is held until" in stdout_of(shep(own_herd, "lock", "newest"))
    assert [one["pinned_bytes"] for one in objects(shep(own_herd, "lock", "--json"))] == [0]
    assert stdout_of(shep(own_herd, "unlock", "2")).startswith("state 2 is not held any more by ")


def test_lock_works_while_a_cycle_runs(own_herd: Herd, shep: Run) -> None:
    with own_herd.store.writing("shepherd cycle"):
        stdout_of(shep(own_herd, "lock", "1"))
        assert len(stdout_of(shep(own_herd, "states")).splitlines()) == 5
        stdout_of(shep(own_herd, "stats"))
        stdout_of(shep(own_herd, "unlock", "1"))


def test_unlock_of_a_program_that_reads_needs_force(own_herd: Herd, shep: Run) -> None:
    lease = own_herd.store.lease(2, "other", "shep-mirror", time.time_ns() // 1_000_000, 60)
    answer = shep(own_herd, "unlock", lease.name)
    assert stdout_of(answer, 2) == ""
    assert b"shep-mirror may still be reading; --force" in answer.stderr
    answer = shep(own_herd, "unlock", "2")
    assert stdout_of(answer, 4) == ""
    assert b"no lock; name the leases of 1 program by ID" in answer.stderr
    stdout_of(shep(own_herd, "unlock", "--force", lease.name))
    assert own_herd.store.leases.all() == []


def test_what_others_wrote_cannot_steer_a_terminal(own_herd: Herd, shep: Run) -> None:
    own_herd.store.lease(2, "\x1b]0;owner\x07", "two\nlines", time.time_ns() // 1_000_000, 60)
    for command in ("lock", "states"):
        text = stdout_of(shep(own_herd, command))
        assert "\\x1b]0;owner\\x07" in text and "two\\nlines" in text
        assert text.isascii() and "\x1b" not in text


def test_expired_lease_is_no_lock(own_herd: Herd, shep: Run) -> None:
    own_herd.store.lease(2, "me", "shep lock", time.time_ns() // 1_000_000 - 100_000, 60)
    answer = shep(own_herd, "lock")
    assert (stdout_of(answer), answer.stderr) == ("", b"nobody holds a state\n")


def test_lease_of_a_killed_program_is_no_lock(own_herd: Herd, shep: Run) -> None:
    pid = kill_reader(own_herd.db, 1)
    answer = shep(own_herd, "lock")
    assert (stdout_of(answer), answer.stderr.decode().splitlines()) == (
        "",
        [f"state 1 is not held any more by shep-export, pid {pid}: it has ended", "nobody holds a state"],
    )
    assert [one["leases"] for one in objects(shep(own_herd, "states", "--json"))] == [[], []]
    with reader(own_herd.db, 1):
        assert [one["purpose"] for one in objects(shep(own_herd, "lock", "--json"))] == ["shep-export"]
        assert [len(one["leases"]) for one in objects(shep(own_herd, "states", "--json"))] == [1, 0]


@pytest.mark.parametrize(
    ("args", "status", "why"),
    [
        (["lock", "9"], 2, "no closed state 9; there are 1, 2"),
        (["lock", "2.reap"], 2, "2.reap: allowed is the number of a closed state"),
        (["lock", "2", "--for", "0d"], 2, "from 1s to 3650d"),
        (["lock", "2", "--for", "soon"], 2, "90m, 12h, 30d"),
        (["unlock", "2"], 4, "state 2 has no lock"),
        (["unlock", "\x1b[2J"], 4, "\\x1b[2J: no lease has this ID"),
        (["unlock"], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_locked_is_refused_in_one_sentence(herd: Herd, shep: Run, args: list[str], status: int, why: str) -> None:
    answer = shep(herd, *args)
    assert stdout_of(answer, status) == ""
    assert why in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1
    assert herd.store.leases.all() == []
