"""shep, run as a user runs it, on a small database of known content."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shepherd.cli import shep_list
from shepherd.cli.shep_facts import collect
from shepherd.cli.shep_verdict import due_at, verdict
from shepherd.config import Config, Plan
from shepherd.filters import parse_filter
from shepherd.formats import tables
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.phases.plan import due_rows
from shepherd.store import check
from tests.cli.conftest import GREETING, KEY, PAGES, ROOT, Herd, Run, objects, told

DAY = 86_400


def test_the_made_database_is_one_that_the_checker_accepts(herd: Herd) -> None:
    assert [str(fault) for fault in check.walk(herd.store)] == []


@pytest.mark.parametrize("command", ["list", "stats"])
def test_configuration_is_refused_by_a_command_that_needs_none(herd: Herd, shep: Run, tmp_path: Path, command: str) -> None:
    told(shep(herd, command, "--cf", str(herd.cf)))
    (tmp_path / "shepherd.toml").write_text("no toml")
    told(shep(herd, command, "--cf", str(tmp_path)))
    assert b"nowhere is not a directory" in shep(herd, command, "--cf", "nowhere").stderr


def test_no_lease_is_left_behind(herd: Herd, shep: Run) -> None:
    told(shep(herd, "stats"))
    assert herd.store.leases.all() == []


@pytest.mark.parametrize("command", [["stats"], ["list"], ["cat", "http://a.example/"], ["explain", "http://a.example/"]])
def test_database_that_may_only_be_read_is_read_without_a_lease(own_herd: Herd, shep: Run, command: list[str]) -> None:
    (own_herd.db / "lease" / "lock").unlink(missing_ok=True)
    (own_herd.db / "lease").rmdir()
    answer = shep(own_herd, *command)
    assert told(answer)
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
    assert told(answer, 2) == ""
    assert len(answer.stderr.splitlines()) == 1


def test_missing_database_is_one_sentence(herd: Herd, shep: Run, tmp_path: Path) -> None:
    for args in (["list"], ["stats"], ["explain", "http://x/"], ["insert", "http://x/"]):
        answer = shep(herd, *args, "--db", str(tmp_path))
        told(answer, 2)
        assert b"no database here; make one with" in answer.stderr


# --- list


def urls_of(answer: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [one["url"] for one in objects(answer)]


def test_list_shows_every_row(herd: Herd, shep: Run) -> None:
    lines = told(shep(herd, "list")).splitlines()
    assert lines[0].split() == ["type", "status", "weight", "checked", "reason", "size", "url"]
    assert len(lines) == 1 + len(PAGES)
    assert any(line.startswith("error          404   30000  2026-09-20T14:13:20Z  client error (4xx) ") for line in lines)
    assert any("http://a.example (path " in line and "its text is gone" in line for line in lines)


def test_list_by_site_takes_www_and_scheme_as_one(herd: Herd, shep: Run) -> None:
    for site in ("b.example", "www.b.example", "http://b.example/other"):
        assert urls_of(shep(herd, "list", "--site", site, "--json")) == ["https://www.b.example/page"]
    answer = shep(herd, "list", "--site", "nobody.example")
    assert (told(answer), answer.stderr) == ("", b"no row is like that\n")


def test_list_by_type_and_reason(herd: Herd, shep: Run) -> None:
    errors = urls_of(shep(herd, "list", "--type", "error", "--type", "sleeping", "--json"))
    assert set(errors) == {f"http://a.example/{name}" for name in ("gone", "dead", "asleep")}
    assert urls_of(shep(herd, "list", "--type", "error", "--reason", "client-error", "--json")) == ["http://a.example/gone"]


def test_list_sorted_by_weight(herd: Herd, shep: Run) -> None:
    found = objects(shep(herd, "list", "--sort", "weight", "--limit", "5", "--json"))
    assert [one["weight"] for one in found] == [60_000, 50_000, 50_000, 50_000, 49_000]
    assert found[0]["url"] == "https://www.b.example/page"
    assert len(told(shep(herd, "list", "--limit", "2")).splitlines()) == 3


def test_list_of_an_older_state(herd: Herd, shep: Run) -> None:
    assert objects(shep(herd, "list", "--state", "1", "--json")) == []


def test_names_of_the_options_are_those_of_the_format() -> None:
    assert list(shep_list.TYPES) == [kind.name.lower() for kind in RowType]
    assert list(shep_list.REASONS) == [reason.name.lower().replace("_", "-") for reason in Reason]


# --- stats


def test_stats_count_what_is_there(herd: Herd, shep: Run) -> None:
    (found,) = objects(shep(herd, "stats", "--json", "--now", str(herd.now)))
    assert (found["rows"], found["pages"], found["robots_files"]) == (11, 10, 1)
    assert found["types"] == {"sleeping": 1, "ungathered": 2, "gathered": 4, "error": 2, "forgotten": 1}
    assert found["statuses"] == {"none": 4, "200": 3, "301": 1, "404": 1, "410": 1}
    assert found["reasons"]["client error (4xx)"] == 1
    assert found["checked"] == {"under a week": 6, "never": 4}
    assert sum(found["weights"].values()) == 10
    assert (found["sites"], found["sites_resolved"], found["servers"], found["sites_robots_unreachable"]) == (3, 1, 1, 1)
    assert found["sites_not_looked_up"] == 2
    assert found["stored_bytes"] == found["segment_bytes"] > 0


def test_stats_draw_bars(herd: Herd, shep: Run) -> None:
    text = told(shep(herd, "stats", "--now", str(herd.now)))
    assert "11 rows: 10 pages and 1 robots file\n" in text
    assert "3 sites: 2 not looked up yet, 0 without an address that may be asked, 1 with an unreachable robots.txt\n" in text
    assert "  gathered                4   40.0%  " + 40 * "#" + "\n" in text
    assert "  error                   2   20.0%  " + 20 * "#" + "\n" in text


def test_stats_of_an_empty_state(herd: Herd, shep: Run) -> None:
    assert "0 rows: 0 pages and 0 robots files" in told(shep(herd, "stats", "--state", "1"))


# --- cat


def test_body_comes_out_byte_by_byte(herd: Herd, shep: Run) -> None:
    answer = shep(herd, "cat", "http://a.example/")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, GREETING, b"")


def test_equivalent_url_is_found_and_the_stored_one_told(herd: Herd, shep: Run) -> None:
    answer = shep(herd, "cat", "http://b.example/page?utm_source=x")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"the page", b"stored as https://www.b.example/page\n")


def test_headers_cannot_steer_a_terminal(herd: Herd, shep: Run) -> None:
    text = told(shep(herd, "cat", "--headers", "http://a.example/"))
    assert text == "HTTP/1.1 200 OK\nContent-Type: text/html\nX-Steer: \\x1b[2J\n"


def test_body_cannot_steer_a_terminal(herd: Herd) -> None:
    ours, theirs = pty.openpty()
    call = [sys.executable, "-m", "shepherd.cli", "shep", "cat", "--db", str(herd.db), "--cf", str(herd.cf), "http://a.example/"]
    subprocess.run(call, stdout=theirs, env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}, timeout=60, check=True)
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
        ("http://a.example/never", "is not known; `shep explain http://a.example/never` tells more"),
        ("http://a.example/new?x=1", "known, but no document is stored for it; `shep explain 'http://a.example/new?x=1'`"),
        ("http://a.example/moved", "a redirect to http://b.example/\\x1b]0; and has no body"),
        ("http://a.example/forgotten", "no document is stored"),
    ],
)
def test_nothing_stored_is_status_4(herd: Herd, shep: Run, url: str, why: str) -> None:
    answer = shep(herd, "cat", url)
    assert told(answer, 4) == ""
    assert why in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1


# --- url


def test_url_shows_each_step_and_goes_on_after_a_bad_one(herd: Herd, shep: Run) -> None:
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

    text = told(shep(herd, "url", "--db", str(herd.db), "https://www.b.example/page"))
    norm, path, site = Footprints(KEY).of(parse("https://www.b.example/page"))
    assert f"footprint        {norm:016x} {path:016x}\nsite footprint   {site:016x}\n" in text


# --- explain


@pytest.mark.parametrize(
    ("url", "verdict"),
    [
        ("http://a.example/", "Gathered 3 days ago; it is due from 2026-10-19T13:59:33Z on."),
        ("http://a.example/robots.txt", "The robots file of its site, gathered 3 days ago; the next plan that has a page"),
        (
            "http://a.example/new?x=1",
            "Known (found by a link), not gathered yet; it is due, and its server may be asked from 2026-",
        ),
        ("http://a.example/asleep", "Known but asleep: over the site's soft limit; it wakes if its weight of 7"),
        ("http://a.example/gone", "Not gathered: client error (4xx), 2 failures in a row; it is due from 2026-09-22T14:13:20Z"),
        ("http://a.example/dead", "Not gathered: dead error, 4 failures in a row; plan.max_retries allows 4, so it is not tried"),
        ("http://a.example/forgotten", "Forgotten: deleted by an operator."),
        ("http://a.example/moved", "Answered with a redirect 24 h ago; it is due from "),
        ("http://a.example/private/old", "Gathered 3 days ago; it is due from 2026-10-19T14:05:01Z on. But line 3 of "),
        ("http://a.example/private/x", "Not known, and it will not be: line 3 of "),
        ("http://a.example/linked", "Not known yet: a link to it was found in the last reap"),
        ("http://a.example/nothing", "Not known: its site is, but nothing gathered so far led to it"),
        ("http://nowhere.example/", "Not known, and neither is its site"),
        (
            "http://down.example/x",
            "Known (inserted), not gathered yet; it is due, and its site's robots.txt has been unreachable",
        ),
    ],
)
def test_verdict(herd: Herd, shep: Run, url: str, verdict: str) -> None:
    last = told(shep(herd, "explain", "--now", str(herd.now), url)).splitlines()[-1]
    assert last.startswith(f"verdict       {verdict}")


def test_verdict_says_how_to_pass_the_guard(herd: Herd) -> None:
    facts = collect(herd.store, herd.store.closed(), parse_filter(""), Path("filter"), "http://a.example/gone")
    assert facts.row is not None
    refused = dataclasses.replace(facts, row=facts.row | {"reason": Reason.GUARD})
    hint = (
        "refused by the guard, 2 failures in a row; set allow in [network] of shepherd.toml to let Shepherd reach it; it is due"
    )
    assert hint in verdict(refused, Config(), herd.now)
    assert "allow" not in verdict(facts, Config(), herd.now)


def test_explain_goes_step_by_step(herd: Herd, shep: Run) -> None:
    text = told(shep(herd, "explain", "--now", str(herd.now), "https://www.A.example/?utm_source=x#f"))
    lines = dict(line.split(None, 1) for line in text.splitlines())
    assert lines["given"] == "https://www.A.example/?utm_source=x#f"
    assert lines["normalised"] == "https://www.a.example/?utm_source=x"
    assert lines["stripped"] == "https://www.a.example/ (the filter strips utm_source=x)"
    assert lines["stored"] == "as     http://a.example/"
    assert lines["filter"] == f"accepted: {herd.cf}/filter, no line decides: default accept"
    assert lines["checked"] == "2026-09-19T14:13:20Z (2 days ago)"
    assert lines["robots.txt"] == "status 200, checked 2026-09-20T14:13:20Z (24 h ago)"
    assert lines["server"] == "delay 10000 ms, 9 contacts, 0 failed"


def test_explain_as_json(herd: Herd, shep: Run) -> None:
    (found,) = objects(shep(herd, "explain", "--json", "http://a.example/moved"))
    assert (found["row"]["type"], found["row"]["reason"], found["row"]["flags"]) == ("gathered", "redirect", ["redirect"])
    assert found["row"]["redirect_to"] == "http://b.example/\\x1b]0;"
    assert (found["site_row"]["name"], found["site_row"]["qkey"]) == ("http://a.example", "127.0.0.7")
    (found,) = objects(shep(herd, "explain", "--json", "http://a.example/x.zip"))
    assert found["filter"] == {"accepted": False, "file": f"{herd.cf}/filter", "line": 2, "text": "reject ext zip"}
    assert found["row"] is None


def test_insert_that_waits_is_explained(own_herd: Herd, shep: Run) -> None:
    own_herd.store.inbox.drop(own_herd.store.new_item_name(1), [{"op": "insert"}, {"op": "insert", "url": "http://x.example/1"}])
    told(shep(own_herd, "insert", "https://www.x.example/2"))
    for url in ("http://x.example/1", "http://x.example/2"):
        (found,) = objects(shep(own_herd, "explain", "--json", url))
        assert found["waiting"] == "inbox"
        assert found["verdict"].startswith("Not known yet: an insert of it waits in the inbox")
    (found,) = objects(shep(own_herd, "explain", "--json", "http://x.example/3"))
    assert found["waiting"] is None


def test_purge_that_waits_is_not_told_of_a_url_that_nobody_knows(own_herd: Herd, shep: Run) -> None:
    purge = {"op": "delete", "purge": True, "url": "http://x.example/1"}
    own_herd.store.inbox.drop(own_herd.store.new_item_name(1), [purge, {"op": "delete", "url": "http://x.example/2"}])
    text = told(shep(own_herd, "explain", "http://www.x.example/1"))
    assert "no, and a purge waits in the inbox (state 2)" in text
    assert "verdict       Not known, and it will not be: a purge of it waits in the inbox" in text
    (found,) = objects(shep(own_herd, "explain", "--json", "http://x.example/2"))
    assert found["waiting"] is None


def test_due_time_is_the_one_that_plan_goes_by(herd: Herd) -> None:
    """For every kind of row: not planned one second before `due_at`, planned from then on."""
    plan = Plan()
    reasons = (Reason.GATHERED, Reason.CLIENT_ERROR, Reason.ROBOTS_DENIED, Reason.ROBOTS_UNREACHABLE)
    for kind, reason, retry, frequency, weight, boost, flags, asked in itertools.product(
        RowType, reasons, (0, 1, 3, 4), (0, 1, 4), (0, 60_000), (0, 3), (0, Flag.REFRESH), (0, herd.now)
    ):
        row = dict.fromkeys(tables.INDEX, 0) | {"site": 1, "type": kind, "reason": reason, "retry": retry, "flags": flags}
        row |= {"frequency": frequency, "weight": weight, "path": kind * 2**61 + frequency, "checked": herd.now - DAY}
        site = dict.fromkeys(tables.SITES, 0) | {"site": 1, "robots_checked": asked, "refresh_boost": boost}
        index_columns = {name: np.array([row[name]], width) for name, width in tables.INDEX.items()}
        site_columns = {name: np.array([site[name]], width) for name, width in tables.SITES.items()}
        due = due_at(row, site, plan)
        for moment in (herd.now, due - 1, due) if due else (herd.now,):
            planned = due_rows(index_columns, site_columns, now_s=moment, plan=plan, first_row=0)
            assert len(planned) == (due is not None and due <= moment), (row, site, moment)
