"""Unreadable items of the inbox, for whoever runs the phases: each is reported and kept, and the rest is applied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.config import Config
from shepherd.cycle.feedback import drive as feedback
from shepherd.filters import parse_filter
from shepherd.report.facts import collect
from shepherd.store.state.database import Database
from tests.crash import cycle_steps
from tests.crash.disks import workplace
from tests.support import harvests
from tests.support.harvests import NOW, Page, begin, rows, run
from tests.support.somebody import as_somebody

A, B = "http://a.example/", "http://b.example/"


@pytest.fixture
def db() -> Iterator[Path]:
    with workplace() as home:
        home.chmod(0o755)  # so that another user gets to what is in it
        yield begin(home / "db", (A,))


def test_request_that_may_not_be_read_does_not_stop_the_merge(db: Path) -> None:
    cycle_steps.dropping(5, (B,))(db, lambda _line: None)
    cycle_steps.dropping(6, ("http://c.example/",))(db, lambda _line: None)
    closed = Database(db).inbox.items()[0].path
    closed.chmod(0)
    assert as_somebody(db, lambda: run(db, "merge", "select", "record")) == "done"
    assert {item.path for item in Database(db).inbox.items()} == {closed}
    known = rows(Database(db).closed(), "oid")
    assert "http://c.example/" in known and B not in known
    closed.chmod(0o644)
    assert B in rows(run(db, "merge", "select", "record"), "oid")
    assert Database(db).inbox.items() == []


def test_report_names_a_request_that_may_not_be_read(db: Path) -> None:
    cycle_steps.dropping(5, (B,))(db, lambda _line: None)
    cycle_steps.dropping(6, ("http://c.example/",))(db, lambda _line: None)
    closed = Database(db).inbox.items()[0].path
    closed.chmod(0)
    assert as_somebody(db, lambda: run(db, "merge")) == "done"
    report = Database(db).furthest().report()
    assert (report["requests"], report["bad requests"]) == (1, 1)
    assert report["bad"][0].startswith(f"{closed.name}: ") and "may not read" in report["bad"][0]


def test_request_that_may_not_be_read_is_nothing_to_do(db: Path) -> None:
    cycle_steps.dropping(5, (B,))(db, lambda _line: None)
    closed = Database(db).inbox.items()[0].path
    closed.chmod(0)
    told = as_somebody(db, lambda: run(db, "merge"))
    assert told.startswith("nothing: ") and closed.name in told


def test_upload_that_may_not_be_read_does_not_stop_feedback(db: Path) -> None:
    inbox = Database(db).inbox
    closed = inbox.drop_feedback(cycle_steps.ITEM.format(5), f"{A} 7\n".encode())
    inbox.drop_feedback(cycle_steps.ITEM.format(6), f"{A} 9\n".encode())
    closed.chmod(0)

    def hear() -> None:
        with Database(db).writing("a test") as writer:
            feedback.run(writer, harvests.Config(directory=cycle_steps.cf_of(db)), NOW, lambda _rows: None)

    assert as_somebody(db, hear) == "done"
    state = Database(db).closed()
    assert rows(state, "weight")[A] == (9,)
    assert state.report()["bad uploads"] == 1
    assert closed.exists()


def test_harvest_that_may_not_be_read_does_not_stop_the_cork(db: Path) -> None:
    inbox = Database(db).inbox
    closed = inbox.drop_harvest(cycle_steps.ITEM.format(5), harvests.harvest(db.parent / "1", [Page(A, "closed")]))
    closed.chmod(0)
    told = as_somebody(db, lambda: run(db, "cork"))
    assert told.startswith("nothing: ") and closed.name in told
    inbox.drop_harvest(cycle_steps.ITEM.format(6), harvests.harvest(db.parent / "2", [Page(A, "open")]))
    assert as_somebody(db, lambda: run(db, "cork")) == "done"
    state = Database(db).closed()
    assert [one.body() for one in state.documents()] == [b"open"]
    assert list(state.report()["refused harvests"]) == [cycle_steps.ITEM.format(5)]
    assert closed.exists()


def test_explain_continues_past_a_request_that_it_may_not_read(db: Path) -> None:
    cycle_steps.dropping(5, (B,))(db, lambda _line: None)
    Database(db).inbox.items()[0].path.chmod(0)
    found = Database(db)
    assert as_somebody(db, lambda: collect(found, found.closed(), Config(directory=Path()), parse_filter(""), B)) == "done"
