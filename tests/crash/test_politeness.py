"""No crash, restart, lost reaper or learnt delay makes a server be asked too early: judged by the server's own clock.

The delays here are longer than a forked program needs to start, so that a gap that is kept is kept on purpose.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from shepherd.store.disk import names
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from tests.support.origin import Answer, Origin, ok, serve
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits

ROOT = Path(__file__).resolve().parents[2]
HTML = "Content-Type: text/html"
PAGE = ok(b"<html>a page</html>", HTML)
CF = """
[politeness]
delay_s = {delay_s}
[plan]
retry_s = 0
[fetch]
timeout_s = 3
[reap]
checkpoint_s = {checkpoint_s}
[network]
allow = ["127.0.0.0/8"]
static = "static"
"""


@dataclass(frozen=True)
class Garden:
    """One server with a few sites, and a database that gathers them."""

    home: Path
    origin: Origin

    def start(self, program: str, *args: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "SHEPHERD_DB": str(self.home / "db"), "SHEPHERD_CF": str(self.home / "cf")}
        command = [sys.executable, "-m", "shepherd.cli", program, *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        return call(program, *args, SHEPHERD_DB=str(self.home / "db"), SHEPHERD_CF=str(self.home / "cf"))

    def must(self, program: str, *args: str) -> None:
        done = self.run(program, *args)
        assert done.returncode == 0, f"{program}: {done.returncode} {done.stdout}{done.stderr}"

    def cycle_to_plan(self, *urls: str) -> None:
        self.must("shep-init", "-q")
        self.plan(*urls)

    def plan(self, *urls: str) -> None:
        self.must("shep", "insert", *urls)
        for phase in ("merge", "select", "record", "plan"):
            self.must(f"shep-{phase}", "-q")

    def checkpoints(self) -> int:
        path = Database(self.home / "db").furthest().path / names.HARVESTS / "reap"
        return harvest.inspect(path).checkpoint.sequence


@contextlib.contextmanager
def garden(
    home: Path, routes: dict[str, Answer], delay_s: float, filters: str = "", checkpoint_s: float = 0.05
) -> Iterator[Garden]:
    hosts = sorted({route.partition("/")[0] for route in routes})
    with serve(routes, address="127.0.4.1") as origin:
        (home / "cf").mkdir()
        (home / "cf" / "shepherd.toml").write_text(CF.format(delay_s=delay_s, checkpoint_s=checkpoint_s))
        (home / "cf" / "filter").write_text(f"{filters}default accept\n")
        (home / "cf" / "static").write_text("".join(f"{host} 127.0.4.1 {origin.port}\n" for host in hosts))
        yield Garden(home, origin)


def pages(host: str, count: int) -> dict[str, Answer]:
    return {f"{host}/{n}": PAGE for n in range(count)}


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_server_waits_its_full_delay_after_a_killed_reap(tmp_path: Path) -> None:
    with garden(tmp_path, pages("a.example", 6), delay_s=0.8) as one:
        one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(6)))
        process = one.start("shep-reap", "-q")
        wait_until(lambda: len(one.origin.spans) >= 2)
        kill(process)
        one.must("shep-reap", "--seconds", "60")
        assert len(one.origin.spans) >= 3
        assert min(one.origin.gaps_s()) >= 0.8


def test_server_waits_its_full_delay_after_a_killed_reap_was_resumed_for_a_moment(tmp_path: Path) -> None:
    """The killed run's only contact was never checkpointed, and the resumed one is too short to make any."""
    with garden(tmp_path, pages("a.example", 2), delay_s=1.5, checkpoint_s=60) as one:
        one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(2)))
        process = one.start("shep-reap", "-q")
        wait_until(lambda: len(one.origin.spans) >= 1)
        kill(process)
        one.must("shep-reap", "--seconds", "0")
        for phase in ("cork", "plan"):
            one.must(f"shep-{phase}", "-q")
        asked = len(one.origin.spans)
        one.must("shep-reap", "--seconds", "60")
        assert len(one.origin.spans) > asked, "nothing was tested"
        assert min(one.origin.gaps_s()) >= 1.5


def test_crawl_delay_that_was_learnt_is_kept_after_a_killed_reap(tmp_path: Path) -> None:
    routes: dict[str, Answer] = {**pages("a.example", 4), "a.example/robots.txt": ok(b"User-agent: *\nCrawl-delay: 1\n")}
    with garden(tmp_path, routes, delay_s=0.05) as one:
        one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(4)))
        process = one.start("shep-reap", "-q")
        wait_until(lambda: len(one.origin.spans) >= 2)
        seen = one.checkpoints()
        wait_until(lambda: one.checkpoints() > seen)
        kill(process)
        one.must("shep-reap", "--seconds", "60")
        assert len(one.origin.spans) >= 3
        assert min(one.origin.gaps_s()) >= 1


def test_retry_after_is_kept_across_reaps(tmp_path: Path) -> None:
    busy = ok(b"", "Retry-After: 6", status="503 Service Unavailable")
    with garden(tmp_path, {"a.example/0": busy, **{f"b.example/{n}": PAGE for n in range(3)}}, delay_s=0.05) as one:
        one.cycle_to_plan("http://a.example/0")
        one.must("shep-reap", "--seconds", "3")
        asked = len(one.origin.spans)
        assert asked == 2  # robots.txt and the page
        one.must("shep-cork", "-q")
        one.must("shep", "insert", *(f"http://b.example/{n}" for n in range(3)))
        for phase in ("merge", "select", "record", "plan"):
            one.must(f"shep-{phase}", "-q")
        one.must("shep-reap", "--seconds", "60")
        assert len(one.origin.spans) > asked
        assert one.origin.gaps_s()[asked - 1] >= 6


def test_group_keeps_the_retry_after_of_a_server_that_has_no_pages_left(tmp_path: Path) -> None:
    """One server of a group asks for patience, the reap is killed, and only the other one has something left to ask for."""
    busy = ok(b"", "Retry-After: 90", status="503 Service Unavailable")
    group = "group farm host a.example b.example\n"
    with garden(tmp_path, {"a.example/0": busy}, 0.3, group) as one, serve(pages("b.example", 40), address="127.0.4.2") as other:
        with (tmp_path / "cf" / "static").open("a") as static:
            static.write(f"b.example 127.0.4.2 {other.port}\n")
        one.must("shep-init", "-q")
        one.must("shep", "insert", "--weight", "60000", "http://a.example/0")  # so that it is asked for before the others are
        one.plan(*(f"http://b.example/{n}" for n in range(40)))
        process = one.start("shep-reap", "-q")
        wait_until(lambda: any(url == "a.example/0" for url, _begin, _end in one.origin.spans))
        at = one.checkpoints()
        wait_until(lambda: one.checkpoints() > at + 1 or process.poll() is not None)
        kill(process)
        asked = len(other.seen)
        assert asked < 41, "nothing was left to ask for: nothing was tested"
        one.must("shep-reap", "--seconds", "3")
        assert len(other.seen) == asked


def test_request_of_a_lost_reaper_counts_as_a_contact(tmp_path: Path) -> None:
    def slow(connection: socket.socket) -> None:
        time.sleep(2)
        with contextlib.suppress(OSError):
            connection.sendall(PAGE)

    with garden(tmp_path, {"a.example/robots.txt": slow, "a.example/0": PAGE}, delay_s=15) as one:
        one.cycle_to_plan("http://a.example/0")
        process = one.start("shep-reap", "-q")
        wait_until(lambda: len(one.origin.seen) >= 1)
        [worker] = grandchildren(process.pid)
        os.kill(worker, signal.SIGKILL)
        lost = time.time()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        one.must("shep-cork", "-q")
        servers = Database(tmp_path / "db").closed().servers
        assert servers["fetches"].value(0) == 1
        assert servers["next_ms"].value(0) / 1000 >= lost + 15


def test_first_signal_is_soft_while_the_reap_is_starting(tmp_path: Path) -> None:
    with garden(tmp_path, pages("a.example", 2), delay_s=0.1) as one:
        one.cycle_to_plan("http://a.example/0", "http://a.example/1")
        master = one.start("shepherd", "cycle")
        wait_until(lambda: any(b"shep-reap" in command for command in commands_below(master.pid)))
        master.send_signal(signal.SIGINT)
        _output, errors = master.communicate(timeout=PATIENCE_S)
        assert master.returncode == 0, errors


def commands_below(pid: int) -> list[bytes]:
    """The command lines of a process's children."""
    with contextlib.suppress(FileNotFoundError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return []


def grandchildren(pid: int) -> list[int]:
    """The workers of the reapd of a dispatcher."""

    def children(of: int) -> list[int]:
        return [int(child) for child in Path(f"/proc/{of}/task/{of}/children").read_text().split()]

    return [worker for reapd in children(pid) for worker in children(reapd)]


def test_filter_delay_of_a_site_that_only_a_redirect_named_is_kept(tmp_path: Path) -> None:
    routes: dict[str, Answer] = {**pages("www.a.example", 2)}
    for n in range(2):
        target = f"Location: http://www.a.example/{n}"
        routes[f"a.example/{n}"] = ok(b"", target, status="301 Moved Permanently")
    with garden(tmp_path, routes, delay_s=0.05, filters="set min_delay 1.2 glob *://www.a.example\n") as one:
        one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(2)))
        one.must("shep-reap", "--seconds", "20")
        moved = [(begin, end) for url, begin, end in sorted(one.origin.spans, key=lambda s: s[1]) if url.startswith("www.")]
        assert len(moved) == 3  # robots.txt and two pages
        assert min(after[0] - before[1] for before, after in pairwise(moved)) >= 1.2


def test_request_is_not_repeated_on_a_kept_connection_that_dies(tmp_path: Path) -> None:
    """The server takes a second request on a connection, and hangs up without a word."""
    kept = ok(b"<html>a page</html>", HTML, "Connection: keep-alive")
    taken: set[int] = set()

    def only_once(connection: socket.socket) -> None:
        if connection.fileno() in taken:
            return
        taken.add(connection.fileno())
        connection.sendall(kept)
        request = connection.recv(65536)
        if request:
            hung_up.append(time.monotonic())

    hung_up: list[float] = []
    routes: dict[str, Answer] = {f"a.example/{n}": only_once for n in range(4)}
    with garden(tmp_path, routes, delay_s=0.5) as one:
        one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(4)))
        one.must("shep-reap", "--seconds", "60")
        times = sorted([*(begin for _url, begin, _end in one.origin.spans), *hung_up])
        assert hung_up, "no connection was kept: nothing was tested"
        assert min(after - before for before, after in pairwise(times)) >= 0.5
