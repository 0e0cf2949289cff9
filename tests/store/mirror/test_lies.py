"""A mirror whose source lies, in names, sizes, bytes or order: it is refused, nothing is lost, nothing is written outside."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.errors import Corruption, NoSpace, PeerLost, PeerRefused, ShepherdError, UsageError
from shepherd.formats.check import check64
from shepherd.formats.control import Control, FileEntry, parse_control
from shepherd.store.state.database import Database
from tests.store.mirror.received import Folder, Tamper, advance, bring, way
from tests.support.segment_states import Sheep, faults, fill
from tests.support.toy_farm import contents

FLOCK = [Sheep(f"http://a.example/{n}", now=b"body %d" % n * 30, before=(b"old" * 50,)) for n in range(12)]


@pytest.fixture
def source(home: Path) -> Path:
    return fill(home / "home", FLOCK).path


def states(db: Path) -> list[str]:
    return [str(name) for name in Database(db).states()] if (db / "state").is_dir() else []


def forged(change: Callable[[Control], Control]) -> Tamper:
    """A control that says something else, and checks."""
    return lambda path, _at, data: change(parse_control(data, "test")).pack() if path == "control" else data


def naming(path: str, length: int = 5) -> Tamper:
    """A control with one file more."""
    return forged(lambda control: dataclasses.replace(control, files=control.files | {path: FileEntry(length, 1)}))


def replacing(path: str, change: Callable[[bytes], bytes]) -> Tamper:
    return lambda found, _at, data: change(data) if found == path else data


def other_version(data: bytes) -> bytes:
    text = data.rpartition(b"check ")[0].replace(b"shepherd-control 4", b"shepherd-control 5")
    return text + f"check {check64(text):016x}\n".encode()


def without(path: str) -> Tamper:
    return forged(lambda c: dataclasses.replace(c, files={name: one for name, one in c.files.items() if name != path}))


CONTROLS = {
    "a name above the directory": (naming("../../evil"), Corruption),
    "a name above the segments": (naming("objects/../../../evil"), Corruption),
    "a name from the root": (naming("/tmp/evil"), Corruption),
    "a name above a table": (naming("index/../evil"), Corruption),
    "a name of a thousand digits": (naming(f"objects/{'1' * 5000}"), Corruption),
    "a numbered name of a thousand digits": (naming(f"contrib.{'1' * 5000}"), Corruption),
    "a plan": (naming("plan"), Corruption),
    "a harvest": (naming("harvest/reap/journal"), Corruption),
    "control itself": (naming("control"), Corruption),
    "a block table": (naming("index/norm.check"), Corruption),
    "a segment beyond the next free one": (naming("objects/99999999"), Corruption),
    "an item above the inbox": (forged(lambda c: dataclasses.replace(c, applied=("../../evil",))), Corruption),
    "a parent that no state has": (forged(lambda c: dataclasses.replace(c, parent="../evil")), Corruption),
    "another number": (forged(lambda c: dataclasses.replace(c, state=77)), Corruption),
    "another phase": (forged(lambda c: dataclasses.replace(c, phase="merged")), Corruption),
    "no key": (forged(lambda c: dataclasses.replace(c, key=b"")), Corruption),
    "a column less": (without("index/weight"), Corruption),
    "no report": (without("report.json"), Corruption),
    "half a row": (naming("index/norm", 95), Corruption),
    "more rows in one column": (naming("index/norm", 8_000), Corruption),
    "more bytes than there are disks": (naming("objects/00000001", 10**17), NoSpace),
    "another version": (replacing("control", other_version), PeerRefused),
    "damage": (replacing("control", lambda data: data.replace(b"closed", b"clothed")), Corruption),
    "nothing": (replacing("control", lambda data: b""), Corruption),
}


@pytest.mark.parametrize("what", CONTROLS)
def test_control_that_lies_is_refused(source: Path, home: Path, what: str) -> None:
    tamper, error = CONTROLS[what]
    before = contents(home)
    folder = Folder(source, tamper)
    with pytest.raises(error, match="run shep-check at the source" if error is Corruption else None):
        bring(folder, home / "mirror")
    assert [path for path, _at in folder.asked] == ["control"]  # nothing else was asked for
    assert states(home / "mirror") == []
    assert {name: data for name, data in contents(home).items() if not name.startswith("mirror/")} == before
    bring(Folder(source), home / "mirror")
    assert faults(Database(home / "mirror")) == []


FILES = ("index/norm", "index/norm.check", "sites/names", "objects/00000001", "report.json")
BYTES: dict[str, tuple[Callable[[bytes], bytes], type[ShepherdError]]] = {
    "another byte": (lambda data: data[:3] + bytes([data[3] ^ 1]) + data[4:], Corruption),
    "another last byte": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), Corruption),
    "a byte more": (lambda data: data + b"x", Corruption),
    "much more": (lambda data: data + b"x" * 100_000, Corruption),
    "zeros": (lambda data: bytes(len(data)), Corruption),
    "nothing": (lambda data: b"", PeerLost),
}


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("what", BYTES)
def test_file_that_is_not_what_control_says_is_refused(source: Path, home: Path, path: str, what: str) -> None:
    change, error = BYTES[what]
    with pytest.raises(error, match="run shep-check at the source" if error is Corruption else None):
        bring(Folder(source, replacing(path, change)), home / "mirror")
    assert states(home / "mirror") == []
    bring(Folder(source), home / "mirror")  # nothing that was taken in spoils it
    assert faults(Database(home / "mirror")) == []


def test_file_that_ends_early_is_refused(source: Path, home: Path) -> None:
    with pytest.raises(PeerLost):
        bring(Folder(source, lambda path, at, data: data[: max(100 - at, 0)] if "/0" in path else data), home / "mirror")
    assert states(home / "mirror") == []


# --- a source that is another one ---------------------------------------------------------------------------------


def test_older_state_does_not_replace_a_newer_one(source: Path, home: Path) -> None:
    advance(source, 7)
    bring(Folder(source), home / "mirror")
    had = states(home / "mirror")
    older = fill(home / "older", FLOCK).path
    with pytest.raises(PeerRefused, match="already"):
        bring(Folder(older), home / "mirror")
    assert states(home / "mirror") == had and faults(Database(home / "mirror")) == []


def test_same_number_with_other_bytes_is_refused(source: Path, home: Path) -> None:
    bring(Folder(source), home / "mirror")
    other = fill(home / "other", FLOCK[1:]).path
    with pytest.raises(PeerRefused, match="not the one"):
        bring(Folder(other), home / "mirror")


def test_database_with_another_key_is_refused(source: Path, home: Path) -> None:
    bring(Folder(source), home / "mirror")
    with pytest.raises(PeerRefused, match="key"):
        bring(Folder(source, forged(lambda c: dataclasses.replace(c, key=bytes(16)))), home / "mirror")


def test_mirror_does_not_overwrite_what_was_made_in_it_after_a_promotion(source: Path, home: Path) -> None:
    bring(Folder(source), home / "mirror")
    advance(home / "mirror", 8)
    had = contents(home / "mirror" / "state")
    advance(source, 7)
    with pytest.raises(UsageError, match="made here"):
        bring(Folder(source), home / "mirror")
    assert contents(home / "mirror" / "state") == had


def test_directory_that_is_no_database_is_refused_untouched(source: Path, home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="thesis"):
        bring(Folder(source), home / "mine")
    assert contents(home / "mine") == {"thesis.txt": b"mine"}


def test_copy_made_by_hand_is_not_fetched_again(source: Path, home: Path) -> None:
    """Whoever carries the first copy over on a disk need not send it over the network."""
    shutil.copytree(source, home / "mirror")
    advance(source, 7)
    folder = Folder(source)
    done = bring(folder, home / "mirror", way(adopt=True))
    assert (done.fresh, done.fetched) == (True, 1)
    assert sorted(path for path, _at in folder.asked) == ["control", "control", "control", "index/weight", "index/weight.check"]
    assert faults(Database(home / "mirror")) == []
