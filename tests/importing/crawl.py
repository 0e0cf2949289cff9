"""A database to import into, and a small crawl to take over, for the tests of shep-import."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.store.state import lookup
from shepherd.store.state.database import Database
from shepherd.store.state.documents import StoredDocument
from shepherd.urls import parse
from tests.support.programs import ROOT, call_bytes
from tests.support.warcs import HTML, PAGE, Warc

NOW = 1_790_000_000
KEY = bytes(range(16))
FILTER = "strip utm_*\nreject ext zip\nreject prefix http://a.example/private/\n"
ONE, ROBOTS = "http://a.example/one", "http://a.example/robots.txt"
RULES = b"User-agent: *\nDisallow: /x\nCrawl-delay: 3\nSitemap: http://a.example/map.xml\n"
GATHERED_S = 1_580_702_706  # 2020-02-03T04:05:06Z
PLAIN = (("Content-Type", "text/plain"),)


@dataclass(frozen=True)
class Home:
    """A database, its configuration, and files to import."""

    path: Path

    @property
    def db(self) -> Database:
        return Database(self.path / "db")

    def run(self, *arguments: str, status: int = 0, program: str = "shep-import", stdin: bytes = b"", fail: str = "") -> str:
        """What it said, on both streams."""
        options = ["--db", "db", "--cf", "cf", "--now", str(NOW)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SHEPHERD_FAIL": fail}
        done = call_bytes([program, *options, *arguments], self.path, environment, stdin)
        assert done.returncode == status, done
        return (done.stdout + done.stderr).decode()

    def shep(self, *arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SHEPHERD_DB": "db", "SHEPHERD_CF": "cf"}
        done = call_bytes(["shep", *arguments], self.path, environment)
        assert done.returncode == 0, done
        return done.stdout.decode()

    def merge(self) -> None:
        for program in ("shep-merge", "shep-select", "shep-record"):
            self.run(program=program)

    def json_lines(self, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
        """The lines of --json; the last is the summary."""
        said = self.run("--json", *arguments, status=status)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def write(self, data: bytes, name: str = "x.warc.gz") -> str:
        (self.path / name).write_bytes(data)
        return name

    def row(self, url: str) -> dict[str, int]:
        state = self.db.furthest()
        found = lookup.row_of(state, *state.prints.of(parse(url)))
        assert found is not None, url
        return {name: state.index[name].value(found) for name in state.index.slice(0, 0)}

    def document(self, url: str) -> StoredDocument:
        (found,) = [one for one in self.db.furthest().documents() if one.url == url]
        return found

    def facts(self) -> list[tuple[object, ...]]:
        """What readers see of every row, wherever its bucket stands."""
        state = self.db.furthest()
        names = (
            "norm",
            "path",
            "site",
            "digest",
            "type",
            "reason",
            "flags",
            "status",
            "weight",
            "gathered",
            "checked",
            "changed",
        )
        columns = state.index.slice(0, state.index.rows, names)
        return sorted(zip(*(columns[name].tolist() for name in names), strict=True))


def made(path: Path) -> Home:
    (path / "cf").mkdir(parents=True)
    (path / "cf" / "filter").write_text(FILTER)
    Database.create(path / "db", KEY, NOW - 86_400)
    return Home(path)


def crawl(packed: bool = True, version: str = "1.0") -> Warc:
    warc = Warc(packed, version)
    warc.other("warcinfo")
    warc.other("request")
    headers = (("Content-Type", HTML), ("X-Odd", "a  b"))
    warc.response(ONE + "?utm_source=x", headers=headers, date="2020-02-03T04:05:06Z")
    warc.response(ROBOTS, RULES, headers=PLAIN)
    warc.response("http://a.example/gone", b"no", status="404 Not Found")
    warc.response("http://a.example/moved", b"", status="301 Moved", headers=(("Location", "http://b.example/new"),))
    warc.response("http://b.example/packed", gzip.compress(PAGE), headers=(("Content-Type", HTML), ("Content-Encoding", "gzip")))
    warc.response("http://b.example/cut", PAGE, WARC_Truncated="time")
    warc.other("metadata")
    return warc
