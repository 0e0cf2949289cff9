"""`bin/gather URL...` against the toy web: it stays on its sites, stops at its limits, and continues when run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_until
from toyweb import log, run
from toyweb.model import Model

pytestmark = pytest.mark.waits

ROOT = Path(__file__).resolve().parents[3]
DELAY_S = 0.02
CF = f"""
[politeness]
delay_s = {DELAY_S}
[network]
allow = ["127.0.0.0/8"]
static = "../web/static"
"""
# Links name a site with and without `www.`, and which pages a small run meets hangs on the key of the database: reject both.
FILTER = "reject prefix http://site0.toy.example/wool/ http://www.site0.toy.example/wool/\n"


@dataclass(frozen=True)
class Field:
    """A served toy web, a user's cf/, and a place for a database."""

    home: Path
    model: Model

    def command(self, program: str, *args: str) -> tuple[list[str], dict[str, str]]:
        environment = {**os.environ, "SHEPHERD_CF": str(self.home / "cf"), "SHEPHERD_DB": str(self.home / "db")}
        return [str(ROOT / "bin" / program), *args], environment

    def must(self, program: str, *args: str) -> str:
        command, environment = self.command(program, *args)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{command}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout

    def requests(self) -> list[log.AccessEntry]:
        return log.read_log(self.home / "web" / "access.log")

    def pages(self) -> list[log.AccessEntry]:
        return [entry for entry in self.requests() if entry.path != "/robots.txt"]

    def known(self) -> set[str]:
        return {json.loads(line)["url"] for line in self.must("shep", "list", "--json", "--limit", "100000").splitlines()}


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "shepherd.toml").write_text(CF)
    (tmp_path / "cf" / "filter").write_text(FILTER)
    with run.start(Model(1, 50), tmp_path / "web"):
        yield Field(tmp_path, Model(1, 50))


def test_gather_stays_on_its_sites_and_stops_at_its_page_limit(field: Field) -> None:
    first = field.must("gather", "--pages", "6", "http://site0.toy.example/")
    assert "the page limit is reached" in first
    assert 1 < len(field.pages()) <= 6
    assert f": {len(field.requests())} requests in " in first  # what was really asked, and not what was settled
    assert {entry.host.removeprefix("www.") for entry in field.requests()} == {"site0.toy.example"}
    assert not any("/wool/" in url for url in field.known())  # the user's own filter holds, too

    before = len(field.pages())
    field.must("gather", "--pages", "4", "http://site20.toy.example/")
    assert before < len(field.pages()) <= before + 4
    hosts = {entry.host.removeprefix("www.") for entry in field.requests()}
    assert hosts == {"site0.toy.example", "site20.toy.example"}  # the first site is still in scope, and no other is
    assert (field.home / "cf" / "shepherd.toml").read_text() == CF
    assert log.audit(field.requests(), field.model.delays_s(DELAY_S)) == []
    field.must("shep-check")


def test_gather_visits_subdomains_if_it_may(field: Field) -> None:
    places = ["http://toy.example/", "http://site0.toy.example/"]  # the first has no address
    field.must("gather", "--pages", "12", "--scope", "subdomains", "--contact", "me@example.org", *places)
    hosts = {entry.host for entry in field.requests()}
    assert len({host.removeprefix("www.") for host in hosts}) > 1
    assert all(host.endswith(".toy.example") for host in hosts)


def test_interrupted_gather_shows_its_summary_and_continues_next_time(field: Field) -> None:
    command, environment = field.command("gather", "--pages", "1000", "http://site0.toy.example/")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(field.pages()) >= 3, "no page was asked for")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert "stopped as asked" in output
    before = len(field.pages())
    assert "nothing more is due" in field.must("gather", "--pages", "1000", "http://site0.toy.example/")
    assert len(field.pages()) > before
    assert log.audit(field.requests(), field.model.delays_s(DELAY_S)) == []
    field.must("shep-check")
