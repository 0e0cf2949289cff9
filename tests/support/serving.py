"""A `shep-serve` as a process of its own, on loopback, over a database that a test has made."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from shepherd.client import Server
from shepherd.serve import tokens
from shepherd.store.state.database import Database
from tests.support.segment_states import Sheep
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
TOKENS = {"reader": ["read"], "other": ["read"], "weigher": ["feedback"], "mirror": ["mirror"], "boss": ["admin"]}


@dataclass
class Serving:
    home: Path
    url: str
    process: subprocess.Popen[str]
    ca: Path | None = None

    @property
    def database(self) -> Database:
        return Database(self.home / "db")

    def as_client(self, name: str = "reader", url: str = "", tries: int = 4) -> Server:
        return Server(url or self.url, token_of(name), ca=self.ca, tries=tries)

    def ask(self, path: str, method: str = "GET", name: str = "reader", **how: Any) -> requests.Response:
        """One bare request; no name, no token."""
        headers = {"Authorization": f"Bearer {token_of(name)}"} if name else {}
        headers |= how.pop("headers", {})
        return requests.request(method, self.url + path, headers=headers, timeout=PATIENCE_S, **how)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / "log").read_text().splitlines()]

    def errors(self) -> bytes:
        """What it has written to stderr."""
        return (self.home / "stderr").read_bytes()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def token_of(name: str) -> str:
    return f"the-token-of-{name}"


def prepare(home: Path, settings: str = "") -> None:
    """A configuration with a client for each role."""
    (home / "cf").mkdir(exist_ok=True)
    unlimited = "" if "requests_per_s" in settings else "requests_per_s = 0.0"
    (home / "cf" / "shepherd.toml").write_text(f"[serve]\n{unlimited}\n{settings}\n")
    clients = [tokens.make_client(name, roles, token_of(name)) for name, roles in TOKENS.items()]
    tokens.write(home / "cf" / "tokens", clients)


@contextlib.contextmanager
def serving(home: Path, settings: str = "", listen: str = "127.0.0.1:0", ca: Path | None = None) -> Iterator[Serving]:
    """A server over home/db, which does not outlive the block."""
    prepare(home, settings)
    command = [sys.executable, "-m", "shepherd.cli", "shep-serve", "--db", str(home / "db"), "--cf", str(home / "cf")]
    command += ["--listen", listen, "--log", str(home / "log"), "--log-format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (home / "stderr").open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip().rstrip("/")
        assert url, f"it did not start: {(home / 'stderr').read_text()}"
        yield Serving(home, url, process, ca)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def flock(count: int = 300, size: int = 40) -> list[Sheep]:
    """Documents on some sites, a robots file, a redirect, and root pages that are kept for two equivalent sites."""
    from shepherd.formats.tables import Flag

    pages = [
        Sheep(f"http://h{n % 7}.example/{n}", now=b"body %d " % n * size, weight=n + 1, section=1 + n % 2) for n in range(count)
    ]
    return [
        *pages,
        Sheep("http://h0.example/", now=b"the root", weight=5),
        Sheep("https://www.h0.example/", now=b"the root of www", weight=9),
        Sheep("http://h0.example/robots.txt", now=b"User-agent: *", flags=Flag.ROBOTS),
        Sheep("http://h1.example/moved", now=b"elsewhere", flags=Flag.REDIRECT),
    ]
