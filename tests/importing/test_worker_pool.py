"""Recorded answers that kill their worker fail alone: a real reapd, whose parser dies of what a page says."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from shepherd import urls
from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.importing.worker_pool import WorkerPool
from shepherd.wire import messages as wire
from tests.support.driver import FOOTPRINTS, LINKS, Outcome, greeting, run
from tests.support.origin import serve
from tests.support.reaping import ROOT
from tests.support.waiting import PATIENCE_S, wait_until

REAPD = """
import os, signal, sys
from pathlib import Path
from shepherd.addresses import UnixAddress
from shepherd.reaper.document import extract
from shepherd.reaper.process import reapd
from shepherd.reaper.process.limits import WorkerLimits
whole = extract.extract
def fatal(body, *rest):
    if b"KILL" in body:
        os.kill(os.getpid(), signal.SIGKILL)
    if b"HANG" in body:
        while True:
            pass
    return whole(body, *rest)
extract.extract = fatal
reapd.main(UnixAddress(Path(sys.argv[1])), WorkerLimits(workers=6, recycle=3, parse_s=1.0), None, "root")
"""


@contextlib.contextmanager
def reapd(path: Path) -> Iterator[UnixSource]:
    process = subprocess.Popen([sys.executable, "-c", REAPD, str(path)], cwd=ROOT)
    try:
        wait_until(path.exists)
        yield UnixSource(UnixAddress(path))
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def recorded(number: int, body: bytes) -> wire.Recorded:
    url = urls.parse(f"http://a.example/{number}")
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    prints = FOOTPRINTS.of(url)
    return wire.Recorded(number, Kind.PAGE, url.href, *prints, 1, "192.0.2.7", 9, 0, 1_580_000_000_000, http, "", "x", False)


def test_recorded_page_that_kills_its_worker_fails_alone(tmp_path: Path) -> None:
    bodies = [b"KILL" if n == 4 else b"HANG" if n == 9 else LINKS for n in range(1, 15)]

    async def all_of_them(source: UnixSource) -> list[wire.FetchResult | None]:
        with serve({}) as origin:
            async with WorkerPool(source, greeting(origin), 2) as pool:
                requests = (recorded(number, body) for number, body in enumerate(bodies, 1))
                return list(await asyncio.gather(*(pool.work_on(request) for request in requests)))

    with reapd(tmp_path / "reapd") as source:
        results = run(all_of_them(source))
    verdicts = [Outcome.of(result).verdict for result in results if result is not None]
    fatal = Result.HARD, Reason.PARSER
    assert verdicts == [fatal if body in (b"KILL", b"HANG") else (Result.STORED, Reason.GATHERED) for body in bodies]
