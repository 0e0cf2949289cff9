"""shep-equiv on a database of a few sites: joined, listed, split again, proposed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.store.check import check
from shepherd.store.state import lookup
from shepherd.store.state.database import Database
from shepherd.urls import parse
from tests.support import programs
from tests.support.page_states import Herd, Page, make_herd
from tests.worlds import NOW

SAME = {"status": 200, "gathered": NOW - 9, "checked": NOW - 9, "weight": 9}


def page(url: str, body: bytes, **columns: int) -> Page:
    digest = hashlib.sha256(body).digest()
    known = {"digest": int.from_bytes(digest[:8], "little")}
    return Page(url, RowType.GATHERED, Reason.GATHERED, body, {"D": digest}, SAME | known | columns)


PAGES = [
    page("http://a.example/", b"root", flags=Flag.EQUIV),
    page("http://a.example/one", b"one", weight=20),
    page("http://a.example/two", b"two"),
    page("http://b.example/", b"root", flags=Flag.EQUIV),
    page("http://b.example/one", b"one", weight=30, flags=Flag.PINNED),
    page("http://b.example/three", b"three"),
    page("http://c.example/", b"other root", flags=Flag.EQUIV),
    page("http://c.example/one", b"another"),
]


@pytest.fixture
def herd(tmp_path: Path) -> Herd:
    return make_herd(tmp_path, PAGES, (), ())


def run(herd: Herd, program: str, *arguments: str, status: int = 0) -> str:
    done = programs.call(program, "--db", str(herd.db), "--cf", str(herd.cf), "--now", str(NOW), *arguments)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def declare(herd: Herd, text: str) -> None:
    (herd.cf / "url-equiv").write_text(text)


def documents(herd: Herd) -> list[str]:
    state = Database(herd.db).closed()
    return sorted(str(one.url) for one in state.documents())


def cycle(herd: Herd) -> None:
    for program in ("shep-merge", "shep-equiv", "shep-select", "shep-record"):
        run(herd, program)
    assert [fault for fault in check.walk(Database(herd.db)) if not fault.note] == []


def test_documents_of_joined_sites_become_one(herd: Herd) -> None:
    declare(herd, "a.example b.example\n")
    cycle(herd)
    assert documents(herd) == [
        *("http://a.example/", "http://a.example/one", "http://a.example/two", "http://b.example/", "http://b.example/three"),
        *("http://c.example/", "http://c.example/one"),
    ]
    state = Database(herd.db).closed()
    norm, path, _site = state.prints.of(parse("http://a.example/one"))
    (row,) = lookup.rows_of(state, norm, path)  # found under both names
    assert lookup.rows_of(state, *state.prints.of(parse("https://www.b.example/one"))[:2]) == range(row, row + 1)
    assert state.index["weight"].value(row) == 30  # the best of both; the first name of the line stands for them
    assert state.index["flags"].value(row) & Flag.PINNED
    run(herd, "shep-merge", status=4)


def test_dry_run_changes_nothing_and_reports_the_same(herd: Herd) -> None:
    declare(herd, "a.example b.example\n")
    before = sorted(p.name for p in (herd.db / "state").iterdir())
    told = json.loads(run(herd, "shep-equiv", "--dry-run", "--json"))
    assert told["report"]["joined"] == ["http://b.example/one"]
    assert (told["report"]["joined documents"], told["report"]["sites"], told["dry_run"]) == (1, 1, True)
    assert sorted(p.name for p in (herd.db / "state").iterdir()) == before
    run(herd, "shep-merge")
    told = json.loads(run(herd, "shep-equiv", "--dry-run", "--json"))
    assert json.loads(run(herd, "shep-equiv", "--json"))["report"] == told["report"]


def test_split_keeps_rows_joined_and_warns_of_it(herd: Herd) -> None:
    declare(herd, "a.example b.example\n")
    cycle(herd)
    joined = documents(herd)
    declare(herd, "# nothing\n")
    run(herd, "shep-merge")
    told = json.loads(run(herd, "shep-equiv", "--json"))["report"]
    assert told["split sites"] == told["sites"] == 1
    assert told["apart"] == ["http://b.example"]
    assert "do not come back" in told["note"]
    for program in ("shep-select", "shep-record"):
        run(herd, program)
    assert [fault for fault in check.walk(Database(herd.db)) if not fault.note] == []
    assert documents(herd) == joined
    state = Database(herd.db).closed()
    assert state.control.equiv == 0
    assert state.prints.norm("http://a.example") != state.prints.norm("http://b.example")


def test_links_to_a_joined_site_are_known(herd: Herd) -> None:
    declare(herd, "a.example b.example\n")
    cycle(herd)
    rows = Database(herd.db).closed().index.rows
    done = programs.call("shep", "insert", "--db", str(herd.db), "--cf", str(herd.cf), "http://b.example/two")
    assert done.returncode == 0, done.stderr
    report = json.loads(run(herd, "shep-merge", "--json"))["report"]
    assert (report["known"], report["new"]) == (1, 0)
    assert Database(herd.db).furthest().index.rows == rows


def test_table_that_says_the_same_is_nothing_to_do(herd: Herd) -> None:
    declare(herd, "# only a comment\n")
    run(herd, "shep-merge")
    assert "says the same as when 000003.merged was made" in run(herd, "shep-equiv", status=4)
    run(herd, "shep-select")


def test_only_mirrors_are_proposed(herd: Herd) -> None:
    said = run(herd, "shep-equiv", "--detect")
    assert said.splitlines() == ["# b.example: 2 of 2 common pages equal, roots equal", "a.example b.example"]
    (told,) = [json.loads(line) for line in run(herd, "shep-equiv", "--detect", "--json").splitlines()]
    assert told["names"] == ["a.example", "b.example"]
    assert told["evidence"][0] | {"name": ""} == {
        "name": "", "common": 2, "equal": 2, "near": 0, "roots_equal": True, "redirect": False,
    }  # fmt: skip


def test_jobs_do_not_change_the_report(herd: Herd, tmp_path: Path) -> None:
    (herd.cf / "shepherd.toml").write_text("[store]\npartition_rows = 3\n")
    declare(herd, "a.example b.example\n")
    run(herd, "shep-merge")
    told = [run(herd, "shep-equiv", "--dry-run", "--json", "--jobs", jobs) for jobs in ("1", "3")]
    assert told[0] == told[1]
