"""Pages that an operator wants again while a reap runs: asked for in it, once, and not again after the merge."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shepherd.store.disk import names
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from tests.support.origin import Answer, ok
from tests.support.reaping import Home, planned
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits

HTML = "Content-Type: text/html"
SLOW = [f"http://slow.example/{n}" for n in range(8)]
KNOWN = [f"http://a.example/{word}" for word in ("one", "two", "denied", "moved")]


def slow(connection: socket.socket) -> None:
    time.sleep(1)
    connection.sendall(ok(b"<p>slow</p>", HTML))


def rules(connection: socket.socket) -> None:
    connection.sendall(ok(b"User-agent: *\nDisallow: /denied\n", "Content-Type: text/plain"))


ROUTES: dict[str, Answer] = {
    **{f"slow.example/{n}": slow for n in range(len(SLOW))},
    "a.example/robots.txt": rules,
    **{f"a.example/{word}": ok(f"<p>{word}</p>".encode(), HTML) for word in ("one", "two", "denied", "moved")},
}


@contextlib.contextmanager
def gated(path: Path, more: dict[str, Answer] | None = None, reap: str = "") -> Iterator[tuple[Home, threading.Event]]:
    """A plan whose slow server answers nothing before its gate is opened: so long the reap goes on, on any machine."""
    gate = threading.Event()

    def slow_answer(connection: socket.socket) -> None:
        gate.wait(PATIENCE_S)
        connection.sendall(ok(b"<p>slow</p>", HTML))

    routes = ROUTES | {f"slow.example/{n}": slow_answer for n in range(len(SLOW))} | (more or {})
    with planned(path, routes, KNOWN, [], reap=reap, servers=2, timeout_s=600) as home:
        try:
            yield home, gate
        finally:
            gate.set()


def cycle(home: Home, *programs: str) -> None:
    for program in programs:
        home.must(f"shep-{program}", "-q")


def delayed(home: Home, delay_s: float) -> None:
    """From now on every server has this delay."""
    path = home.path / "cf" / "shepherd.toml"
    path.write_text(path.read_text().replace("delay_s = 0.01", f"delay_s = {delay_s}"))


def checkpoints(home: Home) -> int:
    return harvest.inspect(Database(home.db).furthest().path / names.HARVESTS / "reap").checkpoint.sequence


def listed(home: Home, url: str, *columns: str) -> list[Any]:
    (line,) = home.must("shep", "list", url, "--json").splitlines()
    row = json.loads(line)
    return [row[name] for name in columns]


def known(home: Home, *others: str) -> None:
    """All of a.example is gathered, and not due; pages of a slow server are planned, the last of them last, and others."""
    cycle(home, "reap", "cork")
    home.must("shep", "insert", "--weight", "60000", *SLOW[:-1], *others)
    home.must("shep", "insert", "--weight", "10", SLOW[-1])
    cycle(home, "merge", "select", "record", "plan")
    for origin in home.origins:
        origin.seen.clear()
        origin.spans.clear()


def test_page_is_fetched_in_the_reap_and_not_again_after_the_merge(tmp_path: Path) -> None:
    with gated(tmp_path) as (home, gate):
        known(home)
        before = listed(home, KNOWN[2], "type", "reason")
        reaping = home.start("shep-reap", "--json")
        wait_until(lambda: any(url.startswith("slow.example/") for url in home.request_counts()), "the first slow page")
        home.must("shep", "refresh", KNOWN[0], KNOWN[2])
        answer = home.run("shep", "refresh", "http://a.example/unknown")
        assert answer.returncode == 4
        wait_until(lambda: home.request_counts()["a.example/one"] > 0, "the page that was refreshed")
        assert reaping.poll() is None
        gate.set()
        out, err = reaping.communicate(timeout=PATIENCE_S)
        assert reaping.returncode == 0, err
        report = json.loads(out.splitlines()[-1])
        assert (report["refreshes"], report["left"]) == (1, 0)
        asked = home.request_counts()
        assert asked["a.example/one"] == 1 and not asked["a.example/two"] and not asked["a.example/denied"]
        assert before == ["error", "robots-denied"]
        assert len(list((home.db / "inbox").glob("*.req"))) == 1  # read, not taken
        cycle(home, "cork")
        assert [one["url"] for one in home.journal() if one["url"].startswith("http://a.example/") and one["kind"] == "page"] == [
            "http://a.example/one"
        ]
        assert listed(home, KNOWN[0], "reason") in (["gathered"], ["unchanged"])
        cycle(home, "merge", "select", "record")
        assert "refresh" not in listed(home, KNOWN[0], "flags")[0]
        assert "refresh" in listed(home, KNOWN[2], "flags")[0]  # which the reap has left to the next plan
        assert list((home.db / "inbox").glob("*.req")) == []
        home.must("shep-check")


def test_planned_page_comes_first_and_once_when_it_is_refreshed(tmp_path: Path) -> None:
    """Its place in the plan is the last of a slow server."""
    with planned(tmp_path, ROUTES, KNOWN, [], servers=2) as home:
        known(home)
        reaping = home.start("shep-reap", "--json")
        wait_until(lambda: any(url.startswith("slow.example/") for url in home.request_counts()), "the first slow page")
        home.must("shep", "refresh", SLOW[-1])
        out, err = reaping.communicate(timeout=PATIENCE_S)
        assert reaping.returncode == 0, err
        order = [
            url for origin in home.origins for url in origin.urls() if url.startswith("slow.example/") and "robots" not in url
        ]
        assert sorted(order) == sorted(url.removeprefix("http://") for url in SLOW)
        assert order.index("slow.example/7") < len(order) - 1
        report = json.loads(out.splitlines()[-1])
        assert (report["refreshes"], report["left"]) == (1, 0)
        cycle(home, "cork", "merge", "select", "record")
        assert "refresh" not in listed(home, SLOW[-1], "flags")[0]


def test_refresh_that_was_answered_is_not_repeated_by_the_resumed_reap(tmp_path: Path) -> None:
    with gated(tmp_path, reap="checkpoint_s = 0.1") as (home, gate):
        known(home)
        reaping = home.start("shep-reap")
        wait_until(lambda: any(url.startswith("slow.example/") for url in home.request_counts()), "the first slow page")
        home.must("shep", "refresh", KNOWN[0])
        wait_until(lambda: home.request_counts()["a.example/one"] > 0, "the page that was refreshed")
        at = checkpoints(home)
        wait_until(lambda: checkpoints(home) > at + 1, "a checkpoint with the answer")
        reaping.send_signal(signal.SIGKILL)
        reaping.communicate(timeout=PATIENCE_S)
        gate.set()
        home.must("shep-reap", "-q")
        assert home.request_counts()["a.example/one"] == 1
        cycle(home, "cork", "merge", "select", "record")
        assert "refresh" not in listed(home, KNOWN[0], "flags")[0]


def test_page_that_the_reap_had_before_the_request_is_fetched_again(tmp_path: Path) -> None:
    """After the delay of its server; and an error of the second time does not hide what came the first time."""
    times: list[float] = []

    def flips(connection: socket.socket) -> None:
        times.append(time.monotonic())
        bad = b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(ok(b"<p>whole</p>", HTML) if len(times) == 1 else bad)

    with gated(tmp_path, {"a.example/flips": flips}) as (home, gate):
        known(home, "http://a.example/flips")
        delayed(home, 0.5)
        reaping = home.start("shep-reap", "-q")
        wait_until(lambda: bool(times), "the planned page")
        told = json.loads(home.must("shep", "refresh", "http://a.example/flips", KNOWN[0], "--json").splitlines()[-1])
        assert told["takes_effect"].startswith("within seconds by the reap that runs")
        wait_until(lambda: len(times) == 2 and home.request_counts()["a.example/one"] > 0, "the pages that were refreshed")
        gate.set()
        _out, err = reaping.communicate(timeout=PATIENCE_S)
        assert reaping.returncode == 0, err
        assert len(times) == 2 and home.request_counts()["a.example/one"] == 1
        assert min(gap for origin in home.origins for gap in origin.gaps_s()) > 0.49
        cycle(home, "cork")
        home.must("shep", "audit", "politeness")
        assert listed(home, "http://a.example/flips", "type", "reason") == ["gathered", "gathered"]
        assert b"whole" in home.must("shep", "cat", "http://a.example/flips").encode()
        cycle(home, "merge", "select", "record")
        assert "refresh" in listed(home, "http://a.example/flips", "flags")[0]  # for it was not checked since
        told = json.loads(home.must("shep", "refresh", KNOWN[0], "--json").splitlines()[-1])
        assert told["takes_effect"] == "at the start of the next cycle"
