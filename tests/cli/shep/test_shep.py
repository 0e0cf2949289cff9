"""shep, run as a user runs it, on a small database of known content."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shepherd.console import selector_words
from shepherd.formats.tables import Reason, RowType
from shepherd.store.check import check
from tests.support.page_states import GREETING, PAGES, ROOT, Herd, Run, objects, stdout_of
from tests.support.waiting import PATIENCE_S
from tests.worlds import KEY

DAY = 86_400


def test_the_made_database_is_one_that_the_checker_accepts(herd: Herd) -> None:
    assert [str(fault) for fault in check.walk(herd.store)] == []


@pytest.mark.parametrize("command", ["list", "stats"])
def test_configuration_is_accepted_by_a_command_that_needs_none(herd: Herd, shep: Run, tmp_path: Path, command: str) -> None:
    stdout_of(shep(herd, command, "--cf", str(herd.cf)))
    (tmp_path / "shepherd.toml").write_text("no toml")
    stdout_of(shep(herd, command, "--cf", str(tmp_path)))
    assert b"nowhere is not a directory" in shep(herd, command, "--cf", "nowhere").stderr


def test_no_lease_is_left_behind(herd: Herd, shep: Run) -> None:
    stdout_of(shep(herd, "stats"))
    assert herd.store.leases.all() == []


@pytest.mark.parametrize("command", [["stats"], ["list"], ["cat", "http://a.example/"], ["explain", "http://a.example/"]])
def test_database_that_may_only_be_read_is_read_without_a_lease(own_herd: Herd, shep: Run, command: list[str]) -> None:
    (own_herd.db / "lease" / "lock").unlink(missing_ok=True)
    (own_herd.db / "lease").rmdir()
    answer = shep(own_herd, *command)
    assert stdout_of(answer)
    assert answer.stderr.decode().count("without a lease") == 1
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["insert"],
        ["insert", "-f", "/nowhere"],
        ["insert", "--weight", "70000", "http://x/"],
        ["list", "--state", "9"],
        ["cat", "x"],
    ],
)
def test_bad_arguments_are_one_sentence_and_status_2(herd: Herd, shep: Run, args: Sequence[str]) -> None:
    answer = shep(herd, *args)
    assert stdout_of(answer, 2) == ""
    assert len(answer.stderr.splitlines()) == 1


def test_missing_database_is_one_sentence(herd: Herd, shep: Run, tmp_path: Path) -> None:
    for args in (["list"], ["stats"], ["explain", "http://x/"], ["insert", "http://x/"]):
        answer = shep(herd, *args, "--db", str(tmp_path))
        stdout_of(answer, 2)
        assert b"no database here; make one with" in answer.stderr


# --- list


def urls_of(answer: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [one["url"] for one in objects(answer)]


def test_list_shows_every_row(herd: Herd, shep: Run) -> None:
    lines = stdout_of(shep(herd, "list")).splitlines()
    assert lines[0].split() == ["type", "status", "weight", "checked", "reason", "size", "url"]
    assert len(lines) == 1 + len(PAGES)
    assert any(line.startswith("error          404   30000  2026-09-20T14:13:20Z  client-error ") for line in lines)
    assert any("http://a.example (path " in line and "its text is gone" in line for line in lines)


def test_list_by_site_takes_www_and_scheme_as_one(herd: Herd, shep: Run) -> None:
    for site in ("b.example", "www.b.example", "http://b.example/other"):
        assert urls_of(shep(herd, "list", "--site", site, "--json")) == ["https://www.b.example/page"]
    answer = shep(herd, "list", "--site", "nobody.example")
    assert (stdout_of(answer), answer.stderr) == ("", b"no row matches\n")


def test_list_by_type_and_reason(herd: Herd, shep: Run) -> None:
    errors = urls_of(shep(herd, "list", "--type", "error", "--type", "sleeping", "--json"))
    assert set(errors) == {f"http://a.example/{name}" for name in ("gone", "dead", "asleep")}
    assert urls_of(shep(herd, "list", "--type", "error", "--reason", "client-error", "--json")) == ["http://a.example/gone"]


def test_list_sorted_by_weight(herd: Herd, shep: Run) -> None:
    found = objects(shep(herd, "list", "--sort", "weight", "--limit", "5", "--json"))
    assert [one["weight"] for one in found] == [60_000, 50_000, 50_000, 50_000, 49_000]
    assert found[0]["url"] == "https://www.b.example/page"
    assert len(stdout_of(shep(herd, "list", "--limit", "2")).splitlines()) == 3


def test_list_of_an_older_state(herd: Herd, shep: Run) -> None:
    assert objects(shep(herd, "list", "--state", "1", "--json")) == []


def test_names_of_the_options_are_those_of_the_format() -> None:
    assert list(selector_words.TYPES) == [kind.name.lower() for kind in RowType]
    assert list(selector_words.REASONS) == [reason.name.lower().replace("_", "-") for reason in Reason]


# --- cat


def test_body_comes_out_byte_by_byte(herd: Herd, shep: Run) -> None:
    answer = shep(herd, "cat", "http://a.example/")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, GREETING, b"")


def test_equivalent_url_is_answered_and_the_stored_one_named(herd: Herd, shep: Run) -> None:
    answer = shep(herd, "cat", "http://b.example/page?utm_source=x")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"the page", b"stored as https://www.b.example/page\n")


def test_headers_cannot_steer_a_terminal(herd: Herd, shep: Run) -> None:
    text = stdout_of(shep(herd, "cat", "--headers", "http://a.example/"))
    assert text == "HTTP/1.1 200 OK\nContent-Type: text/html\nX-Steer: \\x1b[2J\n"


def test_body_cannot_steer_a_terminal(herd: Herd) -> None:
    ours, theirs = pty.openpty()
    call = [sys.executable, "-m", "shepherd.cli", "shep", "cat", "--db", str(herd.db), "--cf", str(herd.cf), "http://a.example/"]
    subprocess.run(
        call, stdout=theirs, env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}, timeout=PATIENCE_S, check=True
    )
    shown = os.read(ours, 10_000)
    os.close(ours)
    os.close(theirs)
    assert shown.decode() == "Grüße   \\x1b[31m\r\n\r\n"


def test_cat_as_json(herd: Herd, shep: Run) -> None:
    (found,) = objects(shep(herd, "cat", "--json", "--headers", "http://a.example/"))
    assert found["status_line"] == "HTTP/1.1 200 OK"
    assert found["headers"] == ["Content-Type: text/html", "X-Steer: \\x1b[2J"]
    (found,) = objects(shep(herd, "cat", "--json", "http://b.example/page"))
    assert (found["url"], found["body_base64"]) == ("https://www.b.example/page", "dGhlIHBhZ2U=")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a.example/never", "is not known; `shep explain http://a.example/never` says more"),
        ("http://a.example/new?x=1", "known, but no document is stored for it; `shep explain 'http://a.example/new?x=1'`"),
        ("http://a.example/moved", "a redirect to http://b.example/\\x1b]0; and has no body"),
        ("http://a.example/forgotten", "no document is stored"),
    ],
)
def test_nothing_stored_is_status_4(herd: Herd, shep: Run, url: str, why: str) -> None:
    answer = shep(herd, "cat", url)
    assert stdout_of(answer, 4) == ""
    assert why in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1


# --- url


def test_url_shows_each_step_and_continues_after_a_bad_one(herd: Herd, shep: Run) -> None:
    answer = shep(herd, "url", "--json", "-", "HTTP://www.A.example:80/b/../c?#d", stdin=b"mailto:x\n")
    bad, good = objects(answer, 2)
    assert bad == {"given": "mailto:x", "where": "stdin:1", "error": "scheme mailto: only http and https are gathered"}
    assert good == {
        "given": "HTTP://www.A.example:80/b/../c?#d",
        "parsed": "http://www.a.example/c",
        "site": "http://www.a.example",
        "path": "/c",
        "normalised_site": "a.example",
        "equivalence": None,
    }


def test_url_shows_footprints_under_the_key_of_a_database(herd: Herd, shep: Run) -> None:
    from shepherd.urls import Footprints, parse

    text = stdout_of(shep(herd, "url", "--db", str(herd.db), "https://www.b.example/page"))
    norm, path, site = Footprints(KEY).of(parse("https://www.b.example/page"))
    assert f"footprint        {norm:016x} {path:016x}\nsite footprint   {site:016x}\n" in text
