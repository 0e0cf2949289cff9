"""A cleanup of many batches, killed before any call that changes the disk: no document changes, and run again it ends the same.

This is case (b) of recovery: rows and buckets never disagree, because a batch moves both or neither.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.config import Config
from shepherd.cycle.cleanup import drive as cleanup
from shepherd.cycle.rebuild import recover
from shepherd.errors import NothingToDo
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.crash.dying import killed_after
from tests.support import sampling, segment_states
from tests.support.segment_states import THIN, TOMBSTONE, Sheep
from tests.support.toy_farm import contents
from tests.worlds import NOW

SITE = "http://a.example"
SAMPLE_STEP = 89
MOST_CALLS = 20_000


def flock() -> list[Sheep]:
    """Something of everything: waste, sleeping and forgotten bodies, a tombstone, a purged page, a robots file."""
    pages = [
        Sheep(f"{SITE}/{n}", now=b"%d " % n * 50, before=(b"older %d " % n * 40, b"old %d " % n * 30), weight=n) for n in range(9)
    ]
    return [
        *pages,
        Sheep(f"{SITE}/robots.txt", now=b"User-agent: *\n", before=(b"old",), flags=int(Flag.ROBOTS)),
        Sheep(f"{SITE}/thin", RowType.UNGATHERED, Reason.LINK, THIN),
        Sheep(f"{SITE}/asleep", RowType.SLEEPING, Reason.BELOW_BAR, b"asleep " * 30),
        Sheep(f"{SITE}/gone", RowType.FORGOTTEN, Reason.BELOW_SLEEP, b"gone " * 30),
        Sheep(f"{SITE}/deleted", RowType.FORGOTTEN, Reason.DELETED, TOMBSTONE, (b"deleted " * 30,)),
        Sheep(f"{SITE}/purged", RowType.FORGOTTEN, Reason.PURGED, TOMBSTONE, (b"purged",)),
        Sheep(f"{SITE}/rejected.zip", now=b"zip " * 30),
    ]


@dataclass(frozen=True)
class Fold:
    """A database before its cleanup, and what the cleanup makes of it."""

    home: Path
    before: dict[str, tuple[object, ...]]
    after: dict[str, bytes]

    @property
    def config(self) -> Config:
        return settings(self.home / "before")


def settings(home: Path) -> Config:
    return segment_states.config(home / "cf", step=5, batch_bytes=900)


@pytest.fixture(scope="module")
def fold(tmp_path_factory: pytest.TempPathFactory) -> Fold:
    home = tmp_path_factory.mktemp("fold")
    db = segment_states.fill(home / "before", flock(), segment_bytes=900, rule="reject ext zip\n")
    db.lease(2, "me", "test", NOW * 1000, 600)
    before = {url: told for url, told in segment_states.documents(db.closed()).items() if not url.endswith(".zip")}
    shutil.copytree(home / "before", home / "after")
    undisturbed = Database(home / "after" / "db")
    state = segment_states.clean(undisturbed, settings(home / "after"))
    assert state is not None
    assert state.number > 5, "only many batches test what happens between them"
    assert segment_states.documents(state) == before
    return Fold(home, before, contents(undisturbed.states_path))


def judge(db: Database, fold: Fold, leased: dict[str, bytes]) -> None:
    """After a kill: readers find the same documents, before and after a recover, and in the leased state."""
    closed = segment_states.documents(db.closed())
    assert {url: told for url, told in closed.items() if not url.endswith(".zip")} == fold.before
    assert contents(db.states_path / "000002") == leased
    with db.writing("test", tidy=False) as writer:
        recover.recover(writer, recover.Recovery(fold.config, NOW, lambda _bytes: None), False)
    assert [name for name in sorted(p.name for p in db.states_path.iterdir()) if names.is_leftover(name)] == []
    assert segment_states.faults(db) == []
    assert all(name.closed for name in db.states())
    assert {url: told for url, told in segment_states.documents(db.closed()).items() if not url.endswith(".zip")} == fold.before


@pytest.mark.parametrize("jobs", [1, 2])
def test_cleanup_killed_at_any_call_changes_no_document_and_continues_to_the_same_bytes(
    fold: Fold, jobs: int, tmp_path: Path
) -> None:
    leased = contents(fold.home / "before" / "db" / "state" / "000002")
    step = sampling.step(SAMPLE_STEP * jobs**2)
    for call in range(jobs + sampling.first(step, f"cleanup {jobs}"), MOST_CALLS, step):
        shutil.copytree(fold.home / "before", tmp_path / "one")
        db = Database(tmp_path / "one" / "db")
        if not killed_after(call, cleaning(db, settings(tmp_path / "one"), jobs)):
            assert contents(db.states_path) == fold.after
            break
        judge(db, fold, leased)
        cleaning(db, settings(tmp_path / "one"), jobs)()
        found = contents(db.states_path)
        assert found.items() >= fold.after.items(), f"killed after {call} calls"
        # Killed between its last commit and the deletions that follow, it leaves them to the next cycle.
        assert len({path.partition("/")[0] for path in found.keys() - fold.after.keys()}) <= 1
        shutil.rmtree(tmp_path / "one")
    else:
        pytest.fail("it never came to its end")


def cleaning(db: Database, config: Config, jobs: int) -> Callable[[], object]:
    return lambda: segment_states.clean(db, config, jobs=jobs)


def test_recover_has_nothing_to_mend_between_two_batches(fold: Fold, tmp_path: Path) -> None:
    """What the seed of this program needed its recover for: buckets that have moved, and an index that does not know."""
    shutil.copytree(fold.home / "before", tmp_path / "one")
    db = Database(tmp_path / "one" / "db")
    calls = 0
    while db.furthest().number < 4:  # a state with marks, and one with a batch
        calls += 25
        shutil.rmtree(tmp_path / "one")
        shutil.copytree(fold.home / "before", tmp_path / "one")
        assert killed_after(calls, cleaning(db, settings(tmp_path / "one"), 1))
    with db.writing("test") as writer:  # which removes N.tmp
        assert recover.recover(writer, recover.Recovery(fold.config, NOW, lambda _bytes: None), True) == []


def test_cleanup_that_is_done_has_nothing_to_do(fold: Fold, tmp_path: Path) -> None:
    shutil.copytree(fold.home / "after", tmp_path / "one")
    db = Database(tmp_path / "one" / "db")
    with db.writing("test") as writer, pytest.raises(NothingToDo):
        cleanup.run(writer, settings(tmp_path / "one"), NOW + 1, lambda _rows: None)
