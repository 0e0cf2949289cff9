"""What a worker may do: as whom it runs, its limits, and that it loads nothing after it has given up root."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.reaper.process import confine, worker
from shepherd.reaper.process.limits import WorkerLimits
from shepherd.wire import messages as wire
from tests.support.driver import HTML, LINKS, Dispatcher, greeting, run
from tests.support.origin import Answer, ok, serve
from tests.support.waiting import wait_until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
ROUTES: dict[str, Answer] = {
    "/html": ok(LINKS, HTML),
    "/gzip": ok(gzip.compress(LINKS), HTML, "Content-Encoding: gzip"),
    "/guess": ok("été ".encode("latin-1") * 50, "Content-Type: text/html"),
    "/declared": ok("日本語".encode("shift_jis") * 40, "Content-Type: text/html; charset=shift_jis"),
    "/untyped": ok(LINKS),
    "/idna": ok("<a href='http://bücher.example/é'>x</a>".encode(), HTML),
    "/xml": ok(
        b'<?xml version="1.0"?><urlset><url><loc>http://a.example/z</loc></url></urlset>', "Content-Type: application/xml"
    ),
    "/rss": ok(
        b"<rss><channel><item><link>http://a.example/k</link></item></channel></rss>", "Content-Type: application/rss+xml"
    ),
    "/large": ok(b"<a href=/q>x</a>" * 100_000, HTML),
}


@contextlib.contextmanager
def reapd(path: Path, log: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-X", "importtime", "-m", "shepherd.cli", "reapd", "--listen", f"unix:{path}", *options]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=out, text=True)
    try:
        wait_until(lambda: "listening" in log.read_text() or process.poll() is not None)
        yield process
    finally:
        process.terminate()
        process.wait()


def facts(path: Path, in_flight: int = 200) -> tuple[dict[str, str], dict[str, str]]:
    """What the system knows of a worker: its status, and its limits."""

    async def one() -> tuple[dict[str, str], dict[str, str]]:
        with serve(ROUTES) as origin:
            peer = await UnixSource(UnixAddress(path)).connect()
            await peer.send(greeting(origin, settings={"timeout_s": 20, "in_flight": in_flight}))
            welcome = await peer.receive()
            assert isinstance(welcome, wire.Welcome)
            proc = Path(f"/proc/{welcome.pid}")
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
            limits = {line[:26].strip(): line[26:47].strip() for line in (proc / "limits").read_text().splitlines()}
            dispatcher = Dispatcher(peer)
            await dispatcher.rules()
            for route in ROUTES:
                outcome = await dispatcher.fetch(route)
                assert outcome.verdict == (Result.STORED, Reason.GATHERED), route
            assert (await dispatcher.fetch("/robots.txt", kind=Kind.ROBOTS)).verdict == (Result.HARD, Reason.CLIENT_ERROR)
            await peer.close("done")
            return status, limits

    return run(one())


def test_worker_has_limits_and_no_way_to_more_rights(tmp_path: Path) -> None:
    with reapd(tmp_path / "reapd", tmp_path / "log", "--memory", str(1 << 30)):
        status, limits = facts(tmp_path / "reapd", in_flight=300)
    assert status["NoNewPrivs"].strip() == "1"
    assert limits["Max address space"] == str(1 << 30)
    assert limits["Max core file size"] == "0"
    ahead_s = int(limits["Max cpu time"]) - (WorkerLimits().parse_s + worker.SPARE_CPU_S)
    assert 0 <= ahead_s < 60, "moved ahead of what it has used"
    assert limits["Max open files"] == str(2 * 300 + confine.SPARE_FILES)


@as_root
def test_worker_is_not_root_has_no_groups_and_loads_nothing_later(tmp_path: Path) -> None:
    with reapd(tmp_path / "reapd", tmp_path / "log"):
        started = (tmp_path / "log").read_text()
        status, _ = facts(tmp_path / "reapd")
    assert set(status["Uid"].split()) == {"65534"} and set(status["Gid"].split()) == {"65534"}
    assert status["Groups"].strip() == ""
    later = (tmp_path / "log").read_text()[len(started) :]
    assert [line for line in later.splitlines() if line.startswith("import time")] == []
