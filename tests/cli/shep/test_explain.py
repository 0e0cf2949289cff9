"""shep explain, run as a user runs it: every kind of row, and what waits for a URL that has none."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from shepherd.config import Config, Plan
from shepherd.cycle.plan.rules import due_rows
from shepherd.filters import parse_filter
from shepherd.formats import tables
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.report.facts import collect
from shepherd.report.verdict import SETTLED, due_at, verdict
from tests.support.page_states import Herd, Run, objects, stdout_of

DAY = 86_400
HERE = Config(directory=Path())


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
        (
            "http://a.example/dead",
            "Not gathered: answer malformed, 4 failures in a row; plan.max_retries allows 4, so",
        ),
        ("http://a.example/forgotten", "Forgotten: deleted by an operator; `shep insert` brings it back, a link does not."),
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
    last = stdout_of(shep(herd, "explain", "--now", str(herd.now), url)).splitlines()[-1]
    assert last.startswith(f"verdict       {verdict}")


@pytest.mark.parametrize(
    ("rule", "reason", "said"),
    [
        ("reject prefix http://a.example/\n", Reason.FILTER, "Forgotten: line 1 of filter rejects it."),
        ("reject prefix http://a.example/\n", Reason.PURGED, "Forgotten: purged by an operator; it is kept out for ever."),
        (
            "reject prefix http://a.example/\n",
            Reason.BELOW_SLEEP,
            "Forgotten: below the bar of sleeping; and it cannot come back: line 1 of filter rejects it.",
        ),
        (
            "",
            Reason.NONE,
            f"Forgotten: {SETTLED}; a link or `shep insert` brings it back.",
        ),
        ("", Reason.FILTER, "Forgotten: an earlier filter rejected it; a link or `shep insert` brings it back."),
    ],
)
def test_verdict_of_a_forgotten_row_gives_its_reason(herd: Herd, rule: str, reason: Reason, said: str) -> None:
    facts = collect(herd.store, herd.store.closed(), HERE, parse_filter(rule), "http://a.example/forgotten")
    assert facts.row is not None
    assert verdict(dataclasses.replace(facts, row=facts.row | {"reason": reason}), Config(), herd.now) == said


def test_verdict_of_a_deleted_robots_file_says_forgotten(herd: Herd) -> None:
    facts = collect(herd.store, herd.store.closed(), HERE, parse_filter(""), "http://a.example/robots.txt")
    assert facts.row is not None
    deleted = dataclasses.replace(facts, row=facts.row | {"type": RowType.FORGOTTEN, "reason": Reason.DELETED})
    told = verdict(deleted, Config(), herd.now)
    assert told.startswith("The robots file of its site, forgotten: deleted by an operator; but politeness needs it")
    assert "gathered" not in told


def test_verdict_of_the_robots_file_of_an_empty_site(herd: Herd) -> None:
    facts = collect(herd.store, herd.store.closed(), HERE, parse_filter(""), "http://a.example/robots.txt")
    assert facts.row is not None
    emptied = dataclasses.replace(facts, row=facts.row | {"type": RowType.FORGOTTEN, "reason": Reason.SITE_EMPTY})
    told = verdict(emptied, Config(), herd.now)
    assert (
        told
        == "The robots file of its site, forgotten: its site keeps nothing else; it comes back with the next page of its site."
    )


def test_verdict_says_how_to_pass_the_guard(herd: Herd) -> None:
    facts = collect(herd.store, herd.store.closed(), HERE, parse_filter(""), "http://a.example/gone")
    assert facts.row is not None
    refused = dataclasses.replace(facts, row=facts.row | {"reason": Reason.GUARD})
    hint = (
        "refused by the guard, 2 failures in a row; set allow in [network] of shepherd.toml to let Shepherd reach it; it is due"
    )
    assert hint in verdict(refused, Config(), herd.now)
    assert "allow" not in verdict(facts, Config(), herd.now)


def test_explain_lists_the_steps_in_order(herd: Herd, shep: Run) -> None:
    text = stdout_of(shep(herd, "explain", "--now", str(herd.now), "https://www.A.example/?utm_source=x#f"))
    lines = {line[:12].rstrip(): line[14:] for line in text.splitlines()}
    order = [
        "given",
        "by rule",
        "normalised",
        "by filter",
        "stripped",
        "site",
        "class",
        "footprint",
        "known",
        "filter",
        "robots.txt",
    ]
    assert [label for label in lines if label in order] == order
    assert lines["given"] == "https://www.A.example/?utm_source=x#f"
    assert lines["by rule"] == "no fragment: https://www.a.example/?utm_source=x"  # the last of two
    assert lines["normalised"] == "https://www.a.example/?utm_source=x"
    assert lines["by filter"] == f"without utm_source=x: {herd.cf}/filter, line 1: strip utm_*"
    assert lines["stripped"] == "https://www.a.example/"
    assert lines["class"] == "a.example: http and https, with and without www., are one"
    assert lines["stored as"] == "http://a.example/"
    assert lines["filter"] == f"accepted: {herd.cf}/filter, no line decides: default accept"
    assert lines["checked"] == "2026-09-19T14:13:20Z (2 days ago)"
    assert lines["robots.txt"] == "http://a.example/robots.txt, status 200, checked 2026-09-20T14:13:20Z"
    assert lines["it says"] == "not-known for shepherd: no copy of it is stored; the next reap of the site asks for it"
    assert lines["in site"] == "weight rank 1 of 7 in its site, soft limit 100,000, hard limit 200,000"
    assert lines["in server"] == "0 documents in 127.0.0.7, soft limit 129,600, hard limit 259,200"
    assert lines["in all"] == "11 documents in the whole database, soft limit 80,000,000"
    assert lines["server"] == "delay 10000 ms, 0 documents, 9 contacts, 0 failed"


def test_explain_as_json(herd: Herd, shep: Run) -> None:
    (found,) = objects(shep(herd, "explain", "--json", "http://a.example/moved"))
    assert (found["row"]["type"], found["row"]["reason"], found["row"]["flags"]) == ("gathered", "redirect", ["redirect"])
    assert found["row"]["redirect_to"] == "http://b.example/\\x1b]0;"
    assert (found["site_row"]["name"], found["site_row"]["qkey"]) == ("http://a.example", "127.0.0.7")
    (found,) = objects(shep(herd, "explain", "--json", "http://a.example/x.zip"))
    assert found["filter"] == {
        "accepted": False,
        "file": f"{herd.cf}/filter",
        "line": 2,
        "text": "reject ext zip",
        "pattern": "ext zip",
    }
    assert found["row"] is None


def test_insert_that_waits_is_explained(own_herd: Herd, shep: Run) -> None:
    own_herd.store.inbox.drop(own_herd.store.new_item_name(1), [{"op": "insert"}, {"op": "insert", "url": "http://x.example/1"}])
    stdout_of(shep(own_herd, "insert", "https://www.x.example/2"))
    for url in ("http://x.example/1", "http://x.example/2"):
        (found,) = objects(shep(own_herd, "explain", "--json", url))
        assert found["waiting"] == "inbox"
        assert found["verdict"].startswith("Not known yet: an insert of it waits in the inbox")
    (found,) = objects(shep(own_herd, "explain", "--json", "http://x.example/3"))
    assert found["waiting"] is None


def test_waiting_purge_of_an_unknown_url_is_explained(own_herd: Herd, shep: Run) -> None:
    purge = {"op": "delete", "purge": True, "url": "http://x.example/1"}
    own_herd.store.inbox.drop(own_herd.store.new_item_name(1), [purge, {"op": "delete", "url": "http://x.example/2"}])
    text = stdout_of(shep(own_herd, "explain", "http://www.x.example/1"))
    assert "no, and a purge waits in the inbox (state 2)" in text
    assert "verdict       Not known, and it will not be: a purge of it waits in the inbox" in text
    (found,) = objects(shep(own_herd, "explain", "--json", "http://x.example/2"))
    assert found["waiting"] is None


def test_due_time_is_the_one_that_plan_uses(herd: Herd) -> None:
    """For every kind of row: not planned one second before `due_at`, planned from then on."""
    plan = Plan()
    reasons = (Reason.GATHERED, Reason.CLIENT_ERROR, Reason.ROBOTS_DENIED, Reason.ROBOTS_UNREACHABLE)
    for kind, reason, retry, frequency, weight, boost, flags, asked in itertools.product(
        RowType, reasons, (0, 1, 3, 4), (0, 1, 4), (0, 60_000), (0, 3), (0, Flag.REFRESH, Flag.MODIFIED), (0, herd.now)
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
