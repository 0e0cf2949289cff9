"""A reapd over TLS, keys of an authority of the test's own, and dispatchers that connect to it: real processes."""

from __future__ import annotations

import contextlib
import datetime
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shepherd.addresses import TlsAddress
from shepherd.formats.tables import Reason, Result
from shepherd.wire import authority, tls
from shepherd.wire.tls import Role
from tests.support.driver import HTML, LINKS, fetch_once, run
from tests.support.origin import ok, serve
from tests.support.waiting import free_port, wait_until

NOW = datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Reapd:
    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def address(self) -> TlsAddress:
        return TlsAddress("127.0.0.1", self.port)

    def dropped(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith("connection dropped")]


@contextlib.contextmanager
def running(keys: Path, log: Path, *options: str, allow: str = "127.0.0.0/8") -> Iterator[Reapd]:
    """One that lets dispatchers allow loopback, where the servers of tests are."""
    port = free_port()
    command = [sys.executable, "-m", "shepherd.cli", "reapd", "--listen", f"tls:127.0.0.1:{port}", "--keys", str(keys), *options]
    if allow:
        command += ["--allow", allow]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=out, text=True)
    try:
        wait_until(lambda: "listening" in log.read_text() or process.poll() is not None)
        yield Reapd(process, port, log)
    finally:
        process.kill()
        process.wait()


def make_keys(home: Path) -> Path:
    """An authority with a key for each role, and a stranger's."""
    for place in ("ours", "theirs"):
        authority.make_authority(home / place, 10, NOW)
        authority.issue(home / place, Role.DISPATCHER, "main", [], 5, NOW)
        authority.issue(home / place, Role.REAPER, "reaper", ["localhost", "127.0.0.1"], 5, NOW)
    authority.issue(home / "ours", Role.REAPER, "elsewhere", ["192.0.2.1"], 5, NOW)
    return home


def client(path: Path, role: Role = Role.DISPATCHER, *, at: datetime.datetime = NOW) -> ssl.SSLContext:
    return tls.read_keys(path, role, at).client()


def serves(reapd: Reapd, keys: Path) -> bool:
    """Whether a dispatcher with a good key has a page fetched."""
    with serve({"/x": ok(LINKS, HTML)}) as origin:

        async def one() -> bool:
            peer = await tls.connect(reapd.address, client(keys / "ours/main.pem"))
            outcome = await fetch_once(peer, origin)
            return outcome.verdict == (Result.STORED, Reason.GATHERED)

        return run(one())
