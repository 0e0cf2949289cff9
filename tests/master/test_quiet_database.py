"""Cycles over a database in which no page is due: what operators and indexers change takes effect all the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shepherd.errors import NothingToDo
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.store.state import lookup
from shepherd.store.state.database import Database
from shepherd.urls import parse
from tests.support import programs
from tests.support.page_states import GATHERED, Herd, Page, make_herd
from tests.support.programs import call

BEST, SECOND, ERROR = (f"http://a.example/{name}" for name in ("best", "second", "error"))


@pytest.fixture
def quiet(tmp_path: Path) -> Herd:
    pages = [
        Page(BEST, RowType.GATHERED, Reason.GATHERED, b"best", columns=GATHERED | {"weight": 50, "digest": 1}),
        Page(SECOND, RowType.GATHERED, Reason.GATHERED, b"second", columns=GATHERED | {"weight": 40, "digest": 2}),
        Page(ERROR, RowType.ERROR, Reason.CLIENT_ERROR, columns={"status": 404, "retry": 1, "checked": GATHERED["checked"]}),
    ]
    herd = make_herd(tmp_path, pages, (), ())
    settings(herd, "")
    (herd.cf / "filter").write_text("reject ext zip\ndefault accept\n")  # another one: so a first cycle merges and selects
    assert cycle(herd)
    return herd


def settings(herd: Herd, select: str) -> None:
    """Nothing is due, and no cleanup."""
    lines = ("[plan]", "refresh_s = 1000000000", "retry_s = 1000000000", "[cleanup]", "garbage = 0", "every_s = 0", "[select]")
    (herd.cf / "shepherd.toml").write_text("\n".join((*lines, select, "")))


def cycle(herd: Herd) -> bool:
    """Whether there was anything to do."""
    return programs.cycle(herd.db, herd.cf)


def row(herd: Herd, url: str) -> dict[str, int]:
    state = Database(herd.db).furthest()
    (at,) = lookup.rows_of(state, *state.prints.of(parse(url))[:2])
    return {name: state.index[name].value(at) for name in ("type", "reason", "flags")}


def type_of(herd: Herd, url: str) -> tuple[RowType, Reason]:
    found = row(herd, url)
    return RowType(found["type"]), Reason(found["reason"])


def feedback(herd: Herd, *lines: str) -> None:
    number = len(Database(herd.db).states())
    herd.store.inbox.drop_feedback(f"1790000000000-host-77-{number}", "\n".join(lines).encode())


def test_nothing_is_done_where_nothing_has_changed(quiet: Herd) -> None:
    assert not cycle(quiet)


def test_changed_limits_take_effect_at_the_next_cycle(quiet: Herd) -> None:
    settings(quiet, "gathered = 1")
    assert cycle(quiet)
    assert type_of(quiet, BEST)[0] == RowType.GATHERED
    assert type_of(quiet, SECOND) == (RowType.SLEEPING, Reason.BELOW_BAR)
    assert not cycle(quiet)
    settings(quiet, "gathered = 9")
    assert cycle(quiet)
    assert type_of(quiet, SECOND)[0] == RowType.GATHERED


def test_new_weights_take_effect_in_the_cycle_that_takes_them(quiet: Herd) -> None:
    settings(quiet, "gathered = 1")
    cycle(quiet)
    feedback(quiet, f"{SECOND} 60")
    done = call("shepherd", "cycle", "--db", str(quiet.db), "--cf", str(quiet.cf))
    assert done.returncode == 0, done.stderr
    assert type_of(quiet, SECOND)[0] == RowType.GATHERED
    assert type_of(quiet, BEST) == (RowType.SLEEPING, Reason.BELOW_BAR)
    assert not cycle(quiet)


def test_error_that_nothing_links_to_any_more_is_forgotten(quiet: Herd) -> None:
    feedback(quiet, f"{ERROR} - unreferenced", f"{BEST} - unreferenced")
    assert cycle(quiet)
    assert type_of(quiet, ERROR) == (RowType.FORGOTTEN, Reason.UNREFERENCED)
    assert type_of(quiet, BEST)[0] == RowType.GATHERED  # its content is worth keeping


def test_page_that_is_linked_to_again_is_referenced(quiet: Herd) -> None:
    feedback(quiet, f"{BEST} - unreferenced")
    cycle(quiet)
    assert row(quiet, BEST)["flags"] & Flag.UNREFERENCED
    assert call("shep", "insert", "--db", str(quiet.db), "--cf", str(quiet.cf), BEST).returncode == 0
    cycle(quiet)
    assert not row(quiet, BEST)["flags"] & Flag.UNREFERENCED


def test_bodies_that_a_cleanup_has_dropped_are_not_gathered_again(tmp_path: Path) -> None:
    """An estimate far below what pages take must not let them in: they would be dropped again."""
    urls = [f"http://a.example/{number}" for number in range(12)]
    bodies = [random.Random(url).randbytes(1_000) for url in urls]
    pages = [
        Page(url, RowType.GATHERED, Reason.GATHERED, body, columns=GATHERED | {"weight": 50 + n, "digest": n + 1})
        for n, (url, body) in enumerate(zip(urls, bodies, strict=True))
    ]
    herd = make_herd(tmp_path, pages, (), ())
    lines = ("[plan]", "refresh_s = 1000000000", "[cleanup]", "size_bytes = 6500", "[select]", "average_bytes = 10")
    (herd.cf / "shepherd.toml").write_text("\n".join((*lines, "")))
    kept = []
    for sleeping in (100, 200, 300):  # each time another limit, so that each cycle selects
        (herd.cf / "shepherd.toml").write_text("\n".join((*lines, f"sleeping = {sleeping}", "")))
        cycle(herd)
        done = call("shep-cleanup", "--db", str(herd.db), "--cf", str(herd.cf))
        assert done.returncode in (0, NothingToDo.exit_status), done.stderr
        kept.append([url for url in urls if type_of(herd, url)[0] == RowType.GATHERED])
        assert not [url for url in urls if type_of(herd, url)[0] == RowType.UNGATHERED]
    assert kept[0] == kept[1] == kept[2] and 4 <= len(kept[0]) <= 6
