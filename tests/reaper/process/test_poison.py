"""Pages that kill or wedge their worker: they fail alone, and no neighbour is lost. Real reapd, real shep-reap, real signals.

No page is known that kills the parser, so the test does: it watches the slots in which workers note the page at hand, and strikes
when the large page is there. Its neighbours are held back by their server until then, so it is never another page that is struck.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.formats.tables import Reason, Result
from shepherd.reaper.process.parsing import INLINE_BYTES
from shepherd.wire import messages as wire
from tests.support.driver import HTML, LINKS, Dispatcher, greeting, run
from tests.support.origin import Answer, ok, serve
from tests.support.reaping import BoardView, Home, planned, reapd
from tests.support.waiting import PATIENCE_S, children

pytestmark = pytest.mark.waits

NEIGHBOURS = 30
POISON = "http://poison.example/large"
LARGE = b"".join(b'<p>words and words <a href="/%d?x=%d">link</a></p>\n' % (n, n) for n in range(18_000))[: INLINE_BYTES - 10_000]


class Striker(threading.Thread):
    """Strikes the only worker of a reapd at the page that it has at hand; after that, on request, every child of a worker."""

    def __init__(self, pid: int, number: int, also_children: bool) -> None:
        super().__init__(daemon=True)
        self._pid, self._number, self._also = pid, number, also_children
        self._over = threading.Event()
        self.ready = threading.Event()  # the next page at hand is the one
        self.struck = threading.Event()
        self.struck_children: set[int] = set()

    def run(self) -> None:
        board = BoardView(self._pid)
        self.ready.wait()
        while not self._over.is_set() and not self.struck.is_set():
            if board.busy():
                for worker in children(self._pid):
                    os.kill(worker, self._number)
                if board.busy():  # it was still at it when it was struck
                    self.struck.set()
                elif self._number == signal.SIGSTOP:
                    for worker in children(self._pid):
                        os.kill(worker, signal.SIGCONT)
        while self._also and not self._over.wait(0.002):
            for worker in children(self._pid):
                for child in children(worker):
                    if child not in self.struck_children:
                        self.struck_children.add(child)
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(child, self._number)

    def stop(self) -> None:
        self._over.set()
        self.ready.set()
        self.join(PATIENCE_S)


@contextlib.contextmanager
def striking(pid: int, number: int, also_children: bool) -> Iterator[Striker]:
    striker = Striker(pid, number, also_children)
    striker.start()
    try:
        yield striker
    finally:
        striker.stop()


@contextlib.contextmanager
def poisoned(home: Path, number: int, also_children: bool, *options: str) -> Iterator[tuple[Home, Striker]]:
    """A reap of the poison page and its neighbours, while it is struck."""
    path = home / "reapd"
    strikers: list[Striker] = []
    homes: list[Home] = []

    def large(connection: socket.socket) -> None:
        """When all robots.txt have been answered, and so nothing else is left to be parsed."""
        while sum(count for url, count in homes[0].request_counts().items() if url.endswith("/robots.txt")) <= NEIGHBOURS:
            time.sleep(0.01)
        time.sleep(0.3)
        strikers[0].ready.set()
        connection.sendall(ok(LARGE, HTML))

    def neighbour(connection: socket.socket) -> None:
        """In flight until the poison page was struck."""
        strikers[0].struck.wait()
        connection.sendall(ok(LINKS, HTML))

    hosts = [f"n{n}.example" for n in range(NEIGHBOURS)]
    routes: dict[str, Answer] = {f"{host}/a": neighbour for host in hosts}
    urls = [POISON, *(f"http://{host}/a" for host in hosts)]
    with (
        reapd(path, "--workers", "1", *options) as process,
        planned(
            home, {**routes, "poison.example/large": large}, urls, [f"unix:{path}"], servers=NEIGHBOURS + 1, timeout_s=3
        ) as made,
        striking(process.pid, number, also_children) as striker,
    ):
        homes.append(made)
        strikers.append(striker)
        yield made, striker


def assert_neighbours_are_gathered(made: Home) -> None:
    fates, asked = made.fates(), made.request_counts()
    for n in range(NEIGHBOURS):
        assert fates[f"http://n{n}.example/a"] == ("gathered", "gathered")
        assert asked[f"n{n}.example/a"] <= 2
    settled = [record for record in made.journal() if record["kind"] == "page" and "hop" not in record["flags"]]
    assert len(settled) == len({record["plan_row"] for record in settled}) == NEIGHBOURS + 1  # each once


def test_page_that_kills_its_worker_and_its_child_fails_alone(tmp_path: Path) -> None:
    with poisoned(tmp_path, signal.SIGKILL, True) as (made, striker):
        made.must("shep-reap", "-q")
        assert striker.struck.is_set() and len(striker.struck_children) == 1
        made.must("shep-cork", "-q")
        assert made.fates()[POISON] == ("error", "parser")
        assert made.request_counts()["poison.example/large"] == 2
        assert_neighbours_are_gathered(made)


def test_page_whose_worker_was_killed_from_outside_is_gathered_after_all(tmp_path: Path) -> None:
    with poisoned(tmp_path, signal.SIGKILL, False) as (made, striker):
        made.must("shep-reap", "-q")
        assert striker.struck.is_set()
        made.must("shep-cork", "-q")
        assert made.fates()[POISON] == ("gathered", "gathered")
        assert made.request_counts()["poison.example/large"] == 2
        assert_neighbours_are_gathered(made)


def test_page_that_wedges_its_worker_and_its_child_fails_alone(tmp_path: Path) -> None:
    with poisoned(tmp_path, signal.SIGSTOP, True, "--parse", "1") as (made, striker):
        made.must("shep-reap", "-q")
        assert striker.struck.is_set() and len(striker.struck_children) == 1
        made.must("shep-cork", "-q")
        assert made.fates()[POISON] == ("error", "parser")
        assert_neighbours_are_gathered(made)


def test_memory_bomb_fails_alone_in_its_child(tmp_path: Path) -> None:
    """64 MB of page against a little more address space than a worker begins with."""
    path = tmp_path / "reapd"
    bomb = ok(gzip.compress(b"<p>word word</p>" * (4 << 20), 1), HTML, "Content-Encoding: gzip")
    with serve({"/bomb": bomb, "/x": ok(LINKS, HTML)}) as origin, reapd(path, "--memory", str(230 << 20)):

        async def work() -> None:
            peer = await UnixSource(UnixAddress(path)).connect()
            await peer.send(greeting(origin))
            welcome = await peer.receive()
            assert isinstance(welcome, wire.Welcome)
            dispatcher = Dispatcher(peer)
            await dispatcher.rules()
            assert (await dispatcher.fetch("/bomb")).verdict == (Result.HARD, Reason.PARSER)
            outcome = await dispatcher.fetch("/x")  # by the same worker
            assert outcome.verdict == (Result.STORED, Reason.GATHERED)
            await peer.close("done")

        run(work())


@pytest.mark.parametrize("alone", [False, True])
def test_page_is_parsed_alike_in_the_worker_and_in_a_child(alone: bool) -> None:
    with serve({"/x": ok(LINKS, HTML)}) as origin:
        from tests.support.driver import connected

        async def one() -> list[str]:
            async with connected(origin) as dispatcher:
                await dispatcher.rules()
                outcome = await dispatcher.fetch("/x", alone=alone)
                assert outcome.verdict == (Result.STORED, Reason.GATHERED)
                assert outcome.bucket.body() == LINKS
                return outcome.hrefs

        assert run(one()) == ["http://a.example/one", "https://b.example/two?y=2"]
