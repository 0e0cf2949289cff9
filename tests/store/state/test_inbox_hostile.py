"""Whatever somebody drops into the inbox under the name of an item: it is reported and stays, and the rest is taken in.

Every kind of item meets every kind of thing that is not a file, as a user who is not root. No link is followed, and no phase ends
because of an item.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shepherd.cycle.feedback import drive as feedback
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from shepherd.store.state.inbox import KINDS
from tests.crash import cycle_steps
from tests.crash.disks import workplace
from tests.support import bad_files, harvests
from tests.support.harvests import NOW, Page, begin, rows, run
from tests.support.somebody import as_somebody

A, B = "http://a.example/", "http://b.example/"


@pytest.fixture
def db() -> Iterator[Path]:
    with workplace() as home:
        home.chmod(0o755)  # so that another user gets to what is in it
        yield begin(home / "db", (A,))


def litter(db: Path, kind: str) -> dict[str, Path]:
    """Items of a kind that cannot be read, by what they are."""
    numbers = itertools.count(100)
    wanted = "a directory" if kind == "harvest" else "a file"

    def new_name() -> str:
        return f"{cycle_steps.ITEM.format(next(numbers))}.{kind}"

    return dict(bad_files.everything(db.parent / "elsewhere", db / "inbox", new_name, wanted))


def bad_of_merge(db: Path) -> str:
    cycle_steps.dropping(5, (B,))(db, lambda _line: None)
    assert as_somebody(db, lambda: run(db, "merge")) == "done"
    bad = str(Database(db).furthest().report()["bad"])
    run(db, "select", "record")
    assert B in rows(Database(db).closed(), "oid")
    return bad


def bad_of_feedback(db: Path) -> str:
    Database(db).inbox.drop_feedback(cycle_steps.ITEM.format(6), f"{A} 9\n".encode())

    def hear() -> None:
        with Database(db).writing("a test") as writer:
            feedback.run(writer, harvests.Config(directory=cycle_steps.cf_of(db)), NOW, lambda _rows: None)

    assert as_somebody(db, hear) == "done"
    assert rows(Database(db).closed(), "weight")[A] == (9,)
    return str(Database(db).closed().report()["bad"])


def bad_of_cork(db: Path) -> str:
    source = harvests.harvest(db.parent / "source", [Page(A, "open")])
    Database(db).inbox.drop_harvest(cycle_steps.ITEM.format(6), source)
    assert as_somebody(db, lambda: run(db, "cork")) == "done"
    state = Database(db).closed()
    assert [document.body() for document in state.documents()] == [b"open"]
    report = state.report()
    return str(report.get("refused harvests", "")) + str(report.get("refused notes", ""))


TAKERS: dict[str, Callable[[Path], str]] = {
    "req": bad_of_merge,
    "contrib": bad_of_merge,
    "feedback": bad_of_feedback,
    "harvest": bad_of_cork,
    "contact": bad_of_cork,
}


@pytest.mark.parametrize("kind", KINDS)
def test_item_that_is_no_file_is_reported_and_stays(db: Path, kind: str) -> None:
    bad = litter(db, kind)
    report = TAKERS[kind](db)
    assert [what for what, path in bad.items() if path.name.removesuffix(f".{kind}") not in report] == []
    assert [what for what, path in bad.items() if not os.path.lexists(path)] == []
    assert (db.parent / "elsewhere" / "file").read_bytes() == b"kept"
    noted = {fault.path for fault in check.walk(Database(db)) if fault.note}
    assert [what for what, path in bad.items() if path not in noted and what != "file of mode 0"] == []
    assert [fault for fault in check.walk(Database(db)) if not fault.note and fault.path != bad["file of mode 0"]] == []


@pytest.mark.parametrize("file", [names.CHECKPOINTS, names.JOURNAL, names.CONTRIB, names.local_segment(1)])
def test_harvest_with_a_strange_file_in_it_is_reported_and_stays(db: Path, file: str) -> None:
    source, inbox = harvests.harvest(db.parent / "bad", [Page(A, "bad")]), Database(db).inbox
    bad = {}
    for number, (what, make) in enumerate({**bad_files.makers(db.parent / "elsewhere"), "directory": Path.mkdir}.items(), 100):
        bad[what] = path = inbox.drop_harvest(cycle_steps.ITEM.format(number), source)
        (path / file).unlink()
        make(path / file)
    report = bad_of_cork(db)
    assert [what for what, path in bad.items() if path.name.removesuffix(".harvest") not in report] == []
    assert [what for what, path in bad.items() if not os.path.lexists(path / file)] == []
    assert (db.parent / "elsewhere" / "file").read_bytes() == b"kept"


def test_unreadable_names_stay_where_they_are(db: Path) -> None:
    strange = [b"\xff\xfe.req", b"17-\x1b[2J-1-1.req", b"9" * 200 + b"-h-1-1.req", b".1-" + b"h" * 99 + b"-1-1.req.tmp"]
    inbox = os.fsencode(db / "inbox")
    for name in strange:
        os.mkfifo(inbox + b"/" + name)
    bad_of_merge(db)
    assert set(strange) <= set(os.listdir(inbox))
    assert [fault for fault in check.walk(Database(db)) if not fault.note] == []


def test_item_that_this_user_may_not_remove_is_taken_once(db: Path) -> None:
    """A directory of another user under the name of an item that was taken."""
    cycle_steps.dropping(5, (B,))(db, lambda _line: None)
    (item,) = Database(db).inbox.items()
    other = item.path.with_suffix(".contrib")
    if os.getuid():
        pytest.skip("only root can make what belongs to others")

    def merge() -> None:
        run(db, "merge", "select", "record")

    (other / "full").mkdir(parents=True)
    assert as_somebody(db, merge, of_root=(other, other / "full")) == "done"
    assert other.exists() and not item.path.exists()
    assert B in rows(Database(db).closed(), "oid")
