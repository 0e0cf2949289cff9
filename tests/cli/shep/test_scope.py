"""shep scope, and what the programs do where nobody has said what is in scope."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import call

COMMENTED = "# what is mine\nreject ext zip  # packed\nonly site a.example b.example  # two\nstrip utm_*\n"
TWO_WAYS = ("`shep scope add HOST|URL|SURT`", "`default accept`")


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return call(*words, cwd=home, SHEPHERD_DB="", SHEPHERD_CF="")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "db" / "cf").mkdir(parents=True)
    (tmp_path / "db" / "cf" / "filter").write_text(COMMENTED)
    return tmp_path


def text_of(home: Path) -> str:
    return (home / "db" / "cf" / "filter").read_text()


def test_words_are_added_behind_the_last_line_and_everything_else_stays(home: Path) -> None:
    words = ("c.example:8080", "*.d.example", "https://e.example/x/", "http://(org,f,")
    assert run(home, "shep", "scope", "add", *words).returncode == 0
    lines = COMMENTED.splitlines(keepends=True)
    added = [
        "only site c.example:8080\n",
        "only host d.example\n",
        "only prefix https://e.example/x/\n",
        "only surt http://(org,f,\n",
    ]
    assert text_of(home) == "".join([*lines[:3], *added, *lines[3:]])
    assert [path.name for path in (home / "db" / "cf").iterdir()] == ["filter"]


def test_word_is_removed_from_its_line_and_the_last_one_with_it(home: Path) -> None:
    assert run(home, "shep", "scope", "remove", "a.example").returncode == 0
    assert text_of(home) == COMMENTED.replace("a.example b.example", "b.example")
    last = run(home, "shep", "scope", "remove", "https://www.b.example/", "b.example")
    assert last.returncode == 0 and all(way in last.stderr for way in TWO_WAYS)
    assert text_of(home) == "# what is mine\nreject ext zip  # packed\nstrip utm_*\n"


def test_what_is_there_already_or_not_at_all_changes_nothing(home: Path) -> None:
    for verb, word in (("add", "www.a.example"), ("remove", "c.example")):
        assert run(home, "shep", "scope", verb, word).returncode == 4
    assert text_of(home) == COMMENTED


@pytest.mark.parametrize("word", ["ftp://a.example/", "a.example/x", "https://a.example", "http://(org", "*.", "a b", ""])
def test_word_that_means_nothing_is_refused_and_nothing_is_changed(home: Path, word: str) -> None:
    done = run(home, "shep", "scope", "add", "good.example", word)
    assert (done.returncode, "allowed is" in done.stderr) == (2, True), done.stderr
    assert text_of(home) == COMMENTED


def test_list_shows_each_word_with_its_line(home: Path) -> None:
    shown = run(home, "shep", "scope", "list").stdout.splitlines()
    assert shown == ["only site a.example  (db/cf/filter, line 3)", "only site b.example  (db/cf/filter, line 3)"]
    records = [json.loads(line) for line in run(home, "shep", "scope", "list", "--json").stdout.splitlines()]
    assert records[1] == {"kind": "site", "pattern": "b.example", "file": "db/cf/filter", "line": 3}


def test_list_says_where_nothing_bounds_the_scope(home: Path) -> None:
    (home / "db" / "cf" / "filter").write_text("reject ext zip\n")
    done = run(home, "shep", "scope", "list")
    assert done.returncode == 4 and all(way in done.stderr for way in TWO_WAYS)
    (home / "db" / "cf" / "filter").write_text("default accept\n")
    done = run(home, "shep", "scope", "list")
    assert done.returncode == 0 and "has no `only` line" in done.stderr


def test_faulty_filter_is_not_edited(home: Path) -> None:
    (home / "db" / "cf" / "filter").write_text("rejct ext zip\n")
    done = run(home, "shep", "scope", "add", "a.example")
    assert (done.returncode, "db/cf/filter, line 1" in done.stderr) == (2, True)
    assert text_of(home) == "rejct ext zip\n"


# --- where nobody has said what is in scope


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """A database as shep-init makes it, with the filter that comes with Shepherd."""
    assert run(tmp_path, "shep-init", "-q", "--db", "db").returncode == 0
    return tmp_path


@pytest.mark.parametrize("words", ["shepherd cycle", "shepherd run", "shep-reap"])
def test_program_that_would_ask_servers_names_two_ways_to_say_where_to_stop(new: Path, words: str) -> None:
    done = run(new, *words.split())
    assert done.returncode == 2
    assert "cf/filter does not say where to stop" in done.stderr and all(way in done.stderr for way in TWO_WAYS)


def test_insert_warns_until_the_scope_is_named(new: Path) -> None:
    first = run(new, "shep", "insert", "http://a.example/")
    assert first.returncode == 0 and all(way in first.stderr for way in TWO_WAYS)
    assert run(new, "shep", "scope", "add", "a.example").returncode == 0
    second = run(new, "shep", "insert", "http://a.example/2", "http://b.example/")
    assert second.returncode == 2 and "where to stop" not in second.stderr
    assert "http://b.example/: rejected by the filter" in second.stderr and "outside the scope" in second.stderr
    assert run(new, "shep-reap").returncode == 4  # nothing is planned, but it may begin


def test_default_that_is_said_on_purpose_is_enough(new: Path) -> None:
    with (new / "cf" / "filter").open("a") as file:
        file.write("default accept\n")
    assert run(new, "shep-reap").returncode == 4
    assert "where to stop" not in run(new, "shep", "insert", "http://a.example/").stderr


def test_check_config_mentions_a_filter_without_bounds(new: Path) -> None:
    assert "note: cf/filter does not say where to stop" in run(new, "shepherd", "check-config").stdout


def test_explain_says_that_a_url_is_outside_the_scope(new: Path) -> None:
    run(new, "shep", "scope", "add", "a.example")
    verdict = run(new, "shep", "explain", "http://b.example/").stdout.splitlines()[-1]
    assert verdict.endswith("it will not be: the scope of cf/filter, where no `only` line has it, rejects it.")
