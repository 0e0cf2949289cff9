"""The walk of shep-check over damaged files: every fault is named with its file and offset, and none hides another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.errors import IoFailed, UsageError
from shepherd.formats import bucket
from shepherd.formats.check import check64
from shepherd.store.check import check
from shepherd.store.disk import fsio, names
from shepherd.store.state import database
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest
from tests.support.odd_files import fail_to_open
from tests.support.sound import KEY, NOW, content, contrib_file, flip, journal_file, publish

SEGMENT = "objects/00000001"


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database.create(tmp_path / "db", KEY, NOW, 0)
    return Database(tmp_path / "db")


@pytest.fixture
def state(db: Database) -> State:
    """A sound state, with two frames in its contrib file and three in its journal."""
    made = content()
    made.files[names.journal(1)] = journal_file() * 3
    return publish(db, made)


def faults(db: Database, quick: bool = False) -> list[tuple[str, int | None, str]]:
    """Path inside the newest state, offset and text."""
    found = [fault for fault in check.walk(db, quick) if not fault.note]
    root = db.states_path / str(db.states()[-1])
    return [(str(fault.path.relative_to(root)), fault.offset, fault.what) for fault in found]


def offsets() -> list[int]:
    """Where each bucket of the segment begins, and where the last one ends."""
    data, at = content().segment, [0]
    while at[-1] < len(data):
        at.append(at[-1] + bucket.parse_header(data, at[-1]).length)
    return at


# --- names and lengths ------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("path", ["index/norm", "index/norm.check", "sites/names", SEGMENT, "plan"])
def test_file_of_another_length_is_named(db: Database, state: State, path: str, quick: bool) -> None:
    length = (state.path / path).stat().st_size
    cut(state.path / path)
    offset = None if path.endswith(".check") else length - 1
    assert faults(db, quick) == [(path, offset, f"{length - 1} bytes instead of {length}")]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("path", ["index/norm", "index/norm.check", "sites/names", SEGMENT, "plan", "report.json", "control"])
def test_missing_file_is_named(db: Database, state: State, path: str, quick: bool) -> None:
    (state.path / path).unlink()
    ((named, _offset, what),) = faults(db, quick)
    assert named == path
    assert "missing" in what


@pytest.mark.parametrize("path", ["objects/00000009", "index/stray", "notes"])
def test_file_that_control_does_not_name_is_named(db: Database, state: State, path: str) -> None:
    (state.path / path).touch()
    assert faults(db) == [(path, None, "not named in control")]


def test_file_that_no_state_has_is_named(db: Database) -> None:
    made = content()
    made.files["surprise"] = b"x"
    publish(db, made)
    assert faults(db) == [("surprise", None, "control names a file that no state has")]


def test_newer_version_is_refused_and_a_damaged_one_is_damage(db: Database, state: State) -> None:
    control = state.path / "control"
    control.chmod(0o644)
    body = control.read_bytes().replace(b"shepherd-control ", b"shepherd-control 9", 1).rpartition(b"check ")[0]
    control.write_bytes(body + b"check 0000000000000000\n")
    assert [named for named, _offset, _what in faults(db)] == ["control"]
    control.write_bytes(body + f"check {check64(body):016x}\n".encode())
    with pytest.raises(UsageError, match="newer Shepherd"):
        faults(db)


# --- bytes ------------------------------------------------------------------------------------------------------


def test_every_damaged_bucket_is_named(db: Database, state: State) -> None:
    """One in a body, one in the attributes, one in a header, one in a magic."""
    at = offsets()
    flip(state.path / SEGMENT, at[1] + bucket.HEADER_BYTES + 6)
    flip(state.path / SEGMENT, at[3] - 1)
    flip(state.path / SEGMENT, at[4] + 25)
    flip(state.path / SEGMENT, at[6])
    assert [(path, offset) for path, offset, _what in faults(db)] == [(SEGMENT, at[n]) for n in (1, 2, 4, 6)]
    assert [what for _path, _offset, what in faults(db)][1] == "the body is damaged"


def test_every_damaged_frame_is_named(db: Database, state: State) -> None:
    length = len(journal_file())
    flip(state.path / names.journal(1), 40)
    flip(state.path / names.journal(1), 2 * length)
    flip(state.path / names.contrib(1), len(contrib_file()) - 1)
    assert faults(db) == [
        (names.contrib(1), len(contrib_file()) // 2, "no whole frame begins here"),
        (names.journal(1), 0, "no whole frame begins here"),
        (names.journal(1), 2 * length, "no whole frame begins here"),
    ]


def test_damaged_report_is_named(db: Database, state: State) -> None:
    flip(state.path / "report.json", 0)
    assert faults(db) == [("report.json", None, "the checksum of the file fails")]


def test_every_damaged_block_is_named(db: Database, state: State) -> None:
    for column in ("index/norm", "sites/names", "servers/qkey"):
        flip(state.path / column, 5)
    assert sorted(faults(db)) == [(path, 0, "the block is damaged") for path in ("index/norm", "servers/qkey", "sites/names")]


@pytest.mark.parametrize(
    "path", ["control", "index/norm", "index/norm.check", SEGMENT, "contrib.00000001", "plan", "report.json"]
)
def test_one_bit_in_every_byte_of_a_file_is_noticed(db: Database, state: State, path: str, crash_sweep: bool) -> None:
    for offset in range(0, (state.path / path).stat().st_size, 1 if crash_sweep else 23):
        flip(state.path / path, offset)
        assert {named for named, _offset, _what in faults(db)} == {path}, offset
        flip(state.path / path, offset)
    assert faults(db) == []


def test_quick_look_reads_headers_and_not_bodies(db: Database, state: State) -> None:
    flip(state.path / SEGMENT, offsets()[3] - 1)
    flip(state.path / names.journal(1), 40)
    assert faults(db, quick=True) == []
    flip(state.path / SEGMENT, 0)
    flip(state.path / names.journal(1), 0)
    assert faults(db, quick=True) == [
        (names.journal(1), 0, "no frame begins here"),
        (SEGMENT, 0, "no bucket header"),
    ]


# --- harvests ---------------------------------------------------------------------------------------------------


@pytest.fixture
def reaped(db: Database) -> Path:
    """A harvest with two checkpoints, in a .reap directory."""
    made = content()
    made.phase = "reap"
    path = publish(db, made).path / names.HARVESTS
    fsio.make_directory(path)
    one = Harvest(path / "reap", 1 << 20)
    for time_ms in (1, 2):
        one.store(made.segment[: offsets()[1]])
        one.journal(journal_file()[24 : 24 + 128])
        one.contribute(1, contrib_file()[24 : len(contrib_file()) // 2])
        one.checkpoint(time_ms)
    one.close()
    return path / "reap"


def test_sound_harvest_is_only_noted(db: Database, reaped: Path) -> None:
    assert faults(db) == faults(db, quick=True) == []
    assert [fault.path for fault in check.walk(db)] == [reaped]


def test_torn_tail_of_a_harvest_is_no_fault(db: Database, reaped: Path) -> None:
    for name in ("journal", "contrib", "seg.00000001", "checkpoints"):
        with (reaped / name).open("ab") as file:
            file.write(b"torn")
    assert faults(db) == []


@pytest.mark.parametrize(
    ("name", "offset", "begins"),
    [("journal", 30, 0), ("journal", 200, 152), ("contrib", 30, 0), ("seg.00000001", 3, 0), ("seg.00000001", 90, offsets()[1])],
)
def test_damage_below_a_checkpoint_is_named(db: Database, reaped: Path, name: str, offset: int, begins: int) -> None:
    flip(reaped / name, offset)
    assert [(path, at) for path, at, _what in faults(db)] == [(f"harvest/reap/{name}", begins)]


def test_damaged_checkpoint_before_a_whole_one_is_named(db: Database, reaped: Path) -> None:
    flip(reaped / "checkpoints", 30)
    assert [path for path, _offset, _what in faults(db)] == ["harvest/reap/checkpoints"]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("shorten", [cut, Path.unlink])
def test_file_shorter_than_its_checkpoint_says_is_named(
    db: Database, reaped: Path, shorten: Callable[[Path], None], quick: bool
) -> None:
    shorten(reaped / "journal")
    left = 2 * 152 - 1 if shorten is cut else 0
    assert faults(db, quick) == [
        ("harvest/reap/journal", left, f"{left} bytes, but {2 * 152} were durable at checkpoint 2"),
    ]


def test_size_of_an_unreadable_state_is_an_error(db: Database, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """shep-recover asks for it first, and must not continue."""
    control = state.path / "control"
    fail_to_open(monkeypatch, control)
    with pytest.raises(IoFailed, match="control: it cannot be read"):
        check.size(db)
    told = [(fault.path, fault.unread) for fault in check.walk(db) if not fault.note]
    # Which harvests still wait is in control as well: of the inbox nothing can be said either.
    assert told == [(control, True), (control, True), (db.path / "inbox", True)]
