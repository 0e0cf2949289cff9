"""A plan with room left includes what would fall due next; with nothing due there is no plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shepherd.config import Config, Plan
from shepherd.cycle.plan import drive as plan
from shepherd.errors import NothingToDo
from shepherd.formats.tables import Why
from shepherd.store.state.database import Database
from tests.crash import cycle_steps
from tests.support.harvests import NOW, Page, begin, reap, run

A, ONE, B = "http://a.example/", "http://a.example/one", "http://b.example/two"
DAY = 86_400


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Two pages gathered, one new."""
    db = begin(tmp_path / "db", (A, ONE, B))
    reap(db, ("reap", [Page(A, "a"), Page(ONE, "1")], {}))
    run(db, "cork")
    return db


def planned(db: Path, days: int, jobs: int = 1, **settings: int) -> dict[str, Any]:
    config = Config(directory=cycle_steps.cf_of(db), plan=Plan(**settings))
    with Database(db).writing("a test") as writer:
        state = plan.run(writer, config, NOW + days * DAY, lambda _rows: None, jobs)
    assert sorted(state.plan()["priority"].tolist(), reverse=True) == state.plan()["priority"].tolist()
    assert (state.plan()["why"][-2:] == Why.ANTICIPATED).all() or "anticipated" not in state.report()["planned_by"]
    return state.report()


def test_plan_with_room_includes_what_would_fall_due_next(db: Path) -> None:
    report = planned(db, 28, jobs=2)
    assert report["planned_by"] == {"new": 1, "anticipated": 2, "robots": 2}
    assert (report["pages"], report["deferred"]) == (3, {})


@pytest.mark.parametrize(("days", "settings"), [(26, {}), (28, {"anticipate": 0}), (28, {"max_pages": 2})])
def test_page_is_not_anticipated_too_early_or_without_room(db: Path, days: int, settings: dict[str, int]) -> None:
    assert planned(db, days, **settings)["planned_by"] == {"new": 1, "robots": 1}


def test_page_that_is_one_and_a_half_of_the_shorter_cycles_old_is_anticipated(db: Path) -> None:
    assert planned(db, 28, anticipate=50)["planned_by"] == {"new": 1, "anticipated": 2, "robots": 2}


def test_page_that_is_due_is_not_counted_as_anticipated(db: Path) -> None:
    assert planned(db, 31)["planned_by"] == {"new": 1, "due": 2, "robots": 2}


def test_no_plan_is_made_of_anticipated_pages_alone(db: Path) -> None:
    reap(db, ("reap", [Page(B, "b")], {}))
    run(db, "cork")
    with pytest.raises(NothingToDo, match="nothing is due"):
        planned(db, 28)


def test_full_plan_does_not_read_the_index_again(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_again(*_arguments: object) -> None:
        raise AssertionError("the index was read again")

    monkeypatch.setattr(plan, "_anticipated", not_again)
    planned(db, 28, max_pages=2)
