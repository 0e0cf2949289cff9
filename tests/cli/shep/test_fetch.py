"""shep fetch, run as a user runs it, against a real server: what it shows, when it refuses, and what it leaves behind.

That a server is never asked too soon is judged by the server's own clock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shepherd.formats.tables import JournalFlag
from shepherd.store.state import contact_notes as contactnotes
from shepherd.store.state.database import Database
from tests.crash.test_politeness import PAGE, Garden, garden, kill, pages
from tests.support.origin import Answer, Origin, ok, reset, serve
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits

DELAY_S = 0.8  # longer than a forked program needs to start, so that a gap that is kept is kept on purpose

LINKS = b"""<html><head><title>A \x1b[31mpage</title></head><a href="/1">1</a> <a href="http://b.example/x">2</a></html>"""
STEER = "X-Steer: \x1b]0;owned\x07\x9b2J"
DENYING = ok(b"User-agent: *\nDisallow: /private\n")


@contextlib.contextmanager
def fold(home: Path, routes: dict[str, Answer], delay_s: float = 0.2, **more: Any) -> Iterator[Garden]:
    with garden(home, routes, delay_s, **more) as one:
        one.must("shep-init", "-q")
        yield one


def fetch(one: Garden, *args: str, status: int = 0) -> tuple[str, str]:
    done = one.run("shep", "fetch", *args)
    assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def fetched(one: Garden, *args: str, status: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fetch(one, "--json", *args, status=status)[0])
    return found


def notes(one: Garden) -> contactnotes.Notes:
    database = Database(one.home / "db")
    return contactnotes.waiting(database.inbox, database.furthest().control.applied)


def test_everything_is_shown_and_nothing_is_stored(tmp_path: Path) -> None:
    rules = ok(b"User-agent: *\nDisallow: /private\n")
    with fold(tmp_path, {"a.example/robots.txt": rules, "a.example/0": ok(LINKS, "Content-Type: text/html", "X-One: 1")}) as one:
        found = fetched(one, "http://a.example/0")
        assert one.origin.paths() == ["/robots.txt", "/0"]
        assert found["answer"]["status_line"] == "HTTP/1.1 200 OK"
        assert found["answer"]["headers"] == [f"Content-Length: {len(LINKS)}", "Content-Type: text/html", "X-One: 1"]
        assert found["answer"]["first_byte_ms"] >= found["answer"]["connect_ms"] >= 0
        assert found["answer"]["end_ms"] > found["answer"]["start_ms"]
        assert found["links"] == ["http://a.example/1", "http://b.example/x"]
        assert (found["robots"]["verdict"], found["robots"]["file"]["source"]) == ("allowed", "asked for now")
        assert (found["address"], found["delay_ms"]) == ("127.0.4.1", 200)
        state = Database(one.home / "db").closed()
        assert (state.number, state.index.rows, state.segments()) == (1, 0, [])


def test_bytes_of_the_web_cannot_steer_a_terminal(tmp_path: Path) -> None:
    moved = ok(b"", "Location: http://b.example/\x1b[2J", STEER, status="302 \x1b[5mFound")
    with fold(tmp_path, {"a.example/0": ok(LINKS, "Content-Type: text/html; charset=\x1bc", STEER), "a.example/1": moved}) as one:
        for path in ("0", "1"):
            for flags in ((), ("--json",)):
                output, errors = fetch(one, "--wait", *flags, f"http://a.example/{path}")
                assert all(character.isprintable() or character == "\n" for character in output + errors)
                assert "x1b]0;owned" in output


def test_page_that_robots_txt_denies_is_not_fetched(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/robots.txt": ok(b"User-agent: *\nDisallow: /private\n")}) as one:
        found = fetched(one, "http://a.example/private/x", status=4)
        assert (found["robots"]["verdict"], found["robots"]["line"]) == ("denied", {"number": 2, "text": "Disallow: /private"})
        assert one.origin.paths() == ["/robots.txt"]
        assert len(notes(one).records) == 1


@pytest.mark.parametrize(("answer", "why"), [(reset, "connection failed"), (b"nonsense\r\n\r\n", "answer malformed")])
def test_server_without_a_usable_answer(tmp_path: Path, answer: Answer, why: str) -> None:
    with fold(tmp_path, {"a.example/robots.txt": ok(b""), "a.example/0": answer}) as one:
        output, errors = fetch(one, "http://a.example/0", status=20)
        assert why in errors
        assert re.search(r"^timings +ended after \d+ ms without a usable answer$", output, re.MULTILINE)


def test_address_that_the_guard_refuses_is_not_contacted(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/0": PAGE}) as one:
        (one.home / "cf" / "shepherd.toml").write_text("[network]\nallow = []\nstatic = 'static'\n")
        _output, errors = fetch(one, "http://a.example/0", status=4)
        assert "address refused by the guard" in errors and one.origin.connections == 0


def test_refusal_of_loopback_names_the_setting_that_allows_it(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/0": PAGE}) as one:
        (one.home / "cf" / "shepherd.toml").write_text("[network]\nallow = []\n")
        _output, errors = fetch(one, "http://127.0.0.1:1/", status=4)
        assert "contact" not in errors
        assert f"allow in [network] of {one.home / 'cf' / 'shepherd.toml'}" in errors


def test_stranger_is_not_contacted_without_a_contact_address(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/0": PAGE}) as one:
        (one.home / "cf" / "static").write_text("far.example 192.0.2.1 80\n")
        (one.home / "cf" / "shepherd.toml").write_text("[network]\nallow = ['192.0.2.0/24']\nstatic = 'static'\n")
        _output, errors = fetch(one, "http://far.example/", status=4)
        assert "no contact address is set" in errors


def test_fetch_during_a_reap_exits_with_status_3(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/0": PAGE}) as one, (one.home / "db" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetch(one, "http://a.example/0", status=3)
        assert one.origin.connections == 0


def test_server_that_may_not_be_asked_yet_is_refused(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/robots.txt": DENYING}, delay_s=90) as one:
        fetch(one, "http://a.example/private", status=4)
        assert one.origin.paths() == ["/robots.txt"]
        _output, errors = fetch(one, "http://a.example/0", status=4)
        assert "may be asked from 20" in errors and "give --wait" in errors
        assert one.origin.paths() == ["/robots.txt"]


def test_fetch_waits_for_a_server_that_may_not_be_asked_yet(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/0": PAGE}, delay_s=DELAY_S) as one:
        fetch(one, "http://a.example/0")
        assert len(one.origin.spans) == 2  # robots.txt, and after its delay the page
        fetch(one, "--wait", "http://a.example/0")
        assert len(one.origin.spans) > 2
        assert min(one.origin.gaps_s()) >= DELAY_S


def test_new_crawl_delay_applies_before_the_page(tmp_path: Path) -> None:
    routes: dict[str, Answer] = {"a.example/0": PAGE, "a.example/robots.txt": ok(b"User-agent: *\nCrawl-delay: 1\n")}
    with fold(tmp_path, routes, delay_s=0.1) as one:
        fetch(one, "http://a.example/0")
        assert [span[0] for span in one.origin.spans] == ["a.example/robots.txt", "a.example/0"]
        assert min(one.origin.gaps_s()) >= 1


def test_new_crawl_delay_applies_to_the_next_fetch(tmp_path: Path) -> None:
    rules = ok(b"User-agent: *\nCrawl-delay: 90\nDisallow: /private\n")
    with fold(tmp_path, {"a.example/robots.txt": rules}, delay_s=0.1) as one:
        fetch(one, "http://a.example/private", status=4)
        _output, errors = fetch(one, "http://a.example/0", status=4)
        assert "may be asked from 20" in errors
        assert one.origin.paths() == ["/robots.txt"]


def test_robots_redirect_is_followed_when_its_server_may_be_asked(tmp_path: Path) -> None:
    there = "Location: http://b.example/rules"
    routes: dict[str, Answer] = {
        "a.example/robots.txt": ok(b"", there, status="301 Moved Permanently"),
        "b.example/rules": ok(b"User-agent: *\nDisallow: /no\n"),
        "a.example/0": PAGE,
    }
    with fold(tmp_path, routes, delay_s=1) as one:
        found = fetched(one, "http://a.example/0")
        assert [one["url"] for one in found["robots_requests"]] == ["http://a.example/robots.txt", "http://b.example/rules"]
        assert one.origin.urls() == ["a.example/robots.txt", "b.example/rules", "a.example/0"]
        assert min(one.origin.gaps_s()) >= 1


def test_stored_robots_txt_is_not_fetched_again(tmp_path: Path) -> None:
    with garden(tmp_path, {**pages("a.example", 2), "a.example/robots.txt": ok(b"User-agent: *\n")}, delay_s=0.1) as one:
        one.cycle_to_plan("http://a.example/0")
        one.must("shep-reap", "--seconds", "60")
        one.must("shep-cork", "-q")
        found = fetched(one, "--wait", "http://a.example/1")
        assert found["robots"]["file"]["source"] == "stored"
        assert one.origin.paths() == ["/robots.txt", "/0", "/1"]


# --- never too soon -------------------------------------------------------------------------------------------------


def test_reap_and_fetch_keep_the_delay_of_a_server(tmp_path: Path) -> None:
    """A fetch before a reap, and one between it and its cork: in the origin's own log nothing is closer than the delay."""
    with garden(tmp_path, pages("a.example", 4), delay_s=DELAY_S) as one:
        one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(2)))
        fetch(one, "http://a.example/3")
        asked = len(one.origin.spans)
        one.must("shep-reap", "--seconds", "60")
        assert len(one.origin.spans) >= asked + 2
        fetch(one, "--wait", "http://a.example/2")
        assert len(notes(one).records) >= 3
        one.must("shep-cork", "-q")
        one.must("shep", "insert", "http://a.example/3")
        for phase in ("merge", "select", "record", "plan"):
            one.must(f"shep-{phase}", "-q")
        asked = len(one.origin.spans)
        one.must("shep-reap", "--seconds", "60")
        assert len(one.origin.spans) > asked
        assert min(one.origin.gaps_s()) >= DELAY_S


def test_cork_counts_notes_for_the_next_contact_once(tmp_path: Path) -> None:
    with garden(tmp_path, pages("a.example", 2), delay_s=2) as one:  # longer than a connection is kept: each contact is seen
        one.cycle_to_plan("http://a.example/0")
        one.must("shep-reap", "--seconds", "60")
        fetch(one, "--wait", "http://a.example/1")
        last = notes(one).records
        one.must("shep-cork", "-q")
        state = Database(one.home / "db").closed()
        assert state.servers["next_ms"].value(0) == int(last["end_ms"][-1]) + 2000
        assert state.servers["fetches"].value(0) == len(one.origin.spans)
        assert not list((one.home / "db" / "inbox").iterdir())
        journal = state.journal(state.numbered("journal")[-1])
        hops = journal[(journal["flags"] & np.uint16(JournalFlag.HOP)) > 0]
        assert len(hops) == len(last) and hops["end_ms"][-1] == last["end_ms"][-1]
        assert state.index.rows == 2  # robots.txt and the page: the note has settled nothing


@pytest.mark.parametrize("moment", ["asked", "answered"])
def test_reap_keeps_the_delay_after_a_killed_fetch(tmp_path: Path, moment: str) -> None:
    """Killed while the server still answers, or just after: the note that was written before it delays the server."""

    def slow(connection: socket.socket) -> None:
        time.sleep(DELAY_S)
        with contextlib.suppress(OSError):
            connection.sendall(PAGE)

    with garden(tmp_path, {**pages("a.example", 2), "a.example/slow": slow}, delay_s=DELAY_S) as one:
        one.cycle_to_plan("http://a.example/0")
        process = one.start("shep", "fetch", "http://a.example/slow")
        wait_until(lambda: len(one.origin.seen) >= 2)
        if moment == "answered":
            wait_until(lambda: len(one.origin.spans) >= 2)
        kill(process)
        assert len(notes(one).records) == 2
        wait_until(lambda: len(one.origin.spans) >= 2)
        one.must("shep-reap", "--seconds", "60")
        assert len(one.origin.spans) >= 3
        assert min(one.origin.gaps_s()) >= DELAY_S


def killed_reap(one: Garden) -> int:
    """A reap that was killed after its first request, and before any checkpoint; how many requests it has made."""
    one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(6)))
    process = one.start("shep-reap", "-q")
    wait_until(lambda: len(one.origin.spans) >= 1)
    kill(process)
    return len(one.origin.spans)


def test_fetch_after_a_reap_that_was_killed_is_refused_within_the_delay(tmp_path: Path) -> None:
    with garden(tmp_path, pages("a.example", 6), delay_s=90, checkpoint_s=60) as one:
        asked = killed_reap(one)
        _output, errors = fetch(one, "http://a.example/0", status=4)
        assert "it is unknown when it was last asked" in errors
        assert len(one.origin.spans) == asked


def test_fetch_after_a_reap_that_was_killed_waits_the_full_delay(tmp_path: Path) -> None:
    with garden(tmp_path, pages("a.example", 6), delay_s=DELAY_S, checkpoint_s=60) as one:
        asked = killed_reap(one)
        fetch(one, "--wait", "http://a.example/0")
        assert len(one.origin.spans) > asked
        assert min(one.origin.gaps_s()) >= DELAY_S


@contextlib.contextmanager
def grouped(home: Path, other_routes: dict[str, Answer], delay_s: float) -> Iterator[tuple[Garden, Origin]]:
    """Sites of one group at two addresses; that of b.example is in no table, and not in the plan."""
    with (
        serve(other_routes, address="127.0.4.2") as other,
        garden(home, pages("a.example", 2), delay_s, filters="group one host a.example b.example\n") as one,
    ):
        with (one.home / "cf" / "static").open("a") as static:
            static.write(f"b.example 127.0.4.2 {other.port}\n")
        one.cycle_to_plan("http://a.example/0")
        yield one, other


def test_reap_keeps_the_delay_of_a_group_after_a_fetch_of_one_of_its_sites(tmp_path: Path) -> None:
    with grouped(tmp_path, {"/0": PAGE}, delay_s=DELAY_S) as (one, other):
        fetch(one, "http://b.example/0")
        one.must("shep-reap", "--seconds", "60")
        assert len(other.spans) == 2 and len(one.origin.spans) == 2
        spans = sorted((*other.spans, *one.origin.spans), key=lambda span: span[1])
        assert min(after[1] - before[2] for before, after in pairwise(spans)) >= DELAY_S


def test_fetch_keeps_the_delay_of_a_group_after_a_fetch_of_one_of_its_sites(tmp_path: Path) -> None:
    with grouped(tmp_path, {"/robots.txt": DENYING}, delay_s=90) as (one, other):
        fetch(one, "http://b.example/private", status=4)
        assert len(other.spans) == 1
        _output, errors = fetch(one, "http://a.example/1", status=4)
        assert "may be asked from 20" in errors and one.origin.connections == 0


def test_damaged_note_delays_every_server(tmp_path: Path) -> None:
    with garden(tmp_path, pages("a.example", 2), delay_s=DELAY_S) as one:
        one.cycle_to_plan("http://a.example/0")
        fetch(one, "http://a.example/1")
        for path in (one.home / "db" / "inbox").glob("*.contact"):
            path.write_bytes(path.read_bytes()[:-1])
        one.must("shep-reap", "--seconds", "60")
        assert min(one.origin.gaps_s()) >= DELAY_S
        done = one.run("shep-check")
        assert done.returncode == 11 and done.stdout.count(".contact") == 2


def test_interrupted_wait_leaves_the_lock_free(tmp_path: Path) -> None:
    with fold(tmp_path, {"a.example/0": PAGE}, delay_s=30) as one:
        fetch(one, "http://b.example/0", status=4)  # has no address: nobody is asked, nothing is left
        assert not len(notes(one).records)
        process: subprocess.Popen[str] = one.start("shep", "fetch", "http://a.example/0")
        assert process.stderr is not None
        assert any("waiting" in line for line in process.stderr), "it has not waited"
        assert len(one.origin.spans) == 1 and len(notes(one).records) == 1
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        with (one.home / "db" / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
