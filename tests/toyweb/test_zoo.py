"""The zoo: each exhibit does what its name says, and a whole reap makes of each what the table promises."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.programs import call
from tests.support.waiting import PATIENCE_S
from toyweb import robots
from toyweb.answer import Desk
from toyweb.http import ToyRequest
from toyweb.log import audit, read_log
from toyweb.model import Model
from toyweb.run import Running, start
from toyweb.zoo.exhibit import WAITS, Exhibit
from toyweb.zoo.table import EXHIBITS

pytestmark = pytest.mark.waits

MODEL = Model(4, 50, "127.1.30.0", zoo=True)
ENDLESS = [exhibit for exhibit in EXHIBITS if exhibit.name.startswith("endless-")]
PHASES = ("shep-merge", "shep-select", "shep-record", "shep-plan", "shep-reap", "shep-cork")
CF = """
[politeness]
delay_s = 0.05
[plan]
reap_s = 120
[fetch]
timeout_s = 6.0
in_flight = 4
decoded_bytes = 33554432
ca_file = "../web/ca.pem"
[network]
allow = ["127.1.0.0/16"]
static = "../web/static"
"""


@dataclass(frozen=True)
class Reaped:
    """What came of a reap of every exhibit."""

    rows: dict[str, dict[str, object]]
    asked: set[tuple[str, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def web(home: Path) -> Iterator[Running]:
    with start(MODEL, home / "web") as running:
        yield running


@pytest.fixture(scope="module")
def reaped(home: Path, web: Running) -> Reaped:
    (home / "cf").mkdir()
    (home / "cf" / "shepherd.toml").write_text(CF)
    (home / "cf" / "filter").write_text("default accept\n")

    def must(program: str, *args: str) -> str:
        done = call(program, *args, SHEPHERD_DB=str(home / "db"), SHEPHERD_CF=str(home / "cf"))
        assert done.returncode == 0, f"{program}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout

    must("shep-init", "--quiet")
    must("shep", "insert", *(exhibit.url for exhibit in EXHIBITS))
    for program in PHASES:
        must(program)
    rows = [json.loads(line) for line in must("shep", "list", "--json", "--limit", "100000").splitlines()]
    return Reaped({row["url"]: row for row in rows}, {(entry.host, entry.path) for entry in read_log(web.log_path)})


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=[exhibit.name for exhibit in EXHIBITS])
def test_outcome_of_each_exhibit_is_that_of_the_table(exhibit: Exhibit, reaped: Reaped) -> None:
    row = reaped.rows[exhibit.url]
    reasons = {reason.name.lower().replace("_", "-") for _, reason in exhibit.verdicts}
    if WAITS in exhibit.verdicts:
        reasons.add("inserted")
    assert row["reason"] in reasons
    flags = row["flags"]
    assert isinstance(flags, list)
    if exhibit.cut and row["reason"] == "gathered":
        assert "truncated" in flags
    waited = row["reason"] in ("inserted", "robots-unreachable", "robots-denied")
    if exhibit.scheme == "http":
        assert ((exhibit.host, robots.PATH) in reaped.asked) and ((exhibit.host, exhibit.path) in reaped.asked) != waited


def test_hostile_servers_are_asked_politely_too(reaped: Reaped, web: Running) -> None:
    assert audit(read_log(web.log_path), MODEL.delays_s(0.05)) == []


def test_no_exhibit_harms_another(reaped: Reaped) -> None:
    assert [url for url, row in reaped.rows.items() if row["reason"] == "reaper-lost"] == []


def test_one_page_links_to_every_exhibit() -> None:
    desk = Desk(MODEL)
    page = desk.answer(ToyRequest("GET", "/zoo.html", {"host": "site0.toy.example"})).body.decode()
    assert [exhibit.name for exhibit in EXHIBITS if f'<a href="{exhibit.url}">' not in page] == []
    root = desk.answer(ToyRequest("GET", "/", {"host": "site0.toy.example"})).body
    assert b'href="/zoo.html"' in root


def test_web_without_the_zoo_does_not_lead_there() -> None:
    model = Model(4, 50)
    desk = Desk(model)
    assert not any("zoo" in host for host, _ in model.hosts())
    assert desk.answer(ToyRequest("GET", "/zoo.html", {"host": "site0.toy.example"})).status == 404
    assert desk.answer(ToyRequest("GET", EXHIBITS[0].path, {"host": EXHIBITS[0].host})).status == 421
    assert not any(b"zoo" in desk.answer(ToyRequest("GET", page.path, {"host": page.host})).body for page in model.pages())


def played(exhibit: Exhibit, most: int = 40_000_000) -> bytes:
    """What an exhibit sends, pauses left out."""
    script = Desk(MODEL).answer(ToyRequest("GET", robots.PATH if exhibit.rules else exhibit.path, {"host": exhibit.host})).script
    assert script is not None
    sent = b""
    for step in script():
        sent += step if isinstance(step, bytes) else b""
        if len(sent) > most:
            break
    return sent


def named(name: str) -> Exhibit:
    return next(exhibit for exhibit in EXHIBITS if exhibit.name == name)


@pytest.mark.parametrize("exhibit", ENDLESS, ids=[exhibit.name for exhibit in ENDLESS])
def test_endless_exhibit_does_not_end(exhibit: Exhibit) -> None:
    assert len(played(exhibit, 3_000_000)) > 3_000_000


def test_bombs_are_small_and_grow() -> None:
    head, _, body = played(named("gzip-bomb")).partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head and len(body) < 250_000
    assert len(gzip.decompress(body)) == 200 * 1024 * 1024
    _, _, body = played(named("br-bomb")).partition(b"\r\n\r\n")
    assert len(body) < 1_000
    _, _, body = played(named("coding-bomb-twice")).partition(b"\r\n\r\n")
    assert len(body) < 3_000 and len(zlib.decompress(body, 47)) > 150_000


def test_a_million_links_are_a_million() -> None:
    assert played(named("links-million")).count(b"<a href=") == 1_000_000


def test_a_client_that_leaves_ends_the_exhibit_and_is_logged(web: Running) -> None:
    exhibit = named("endless-body")
    with socket.create_connection(web.static()[exhibit.host], timeout=PATIENCE_S) as connection:
        connection.sendall(f"GET /left-alone HTTP/1.1\r\nHost: {exhibit.host}\r\n\r\n".encode())
        received = 0
        while received < 1_000_000:
            received += len(connection.recv(65536))
    for _ in range(2_000):
        seen = [entry for entry in read_log(web.log_path) if entry.path == "/left-alone"]
        if seen:
            break
        with socket.create_connection(web.static()["site0.toy.example"], timeout=PATIENCE_S) as other:
            other.sendall(b"GET /none HTTP/1.1\r\nHost: site0.toy.example\r\nConnection: close\r\n\r\n")
            assert b"404" in other.recv(1000)
    assert len(seen) == 1 and seen[0].status == 200 and seen[0].size_bytes >= 1_000_000


def test_every_name_is_a_host_name() -> None:
    for exhibit in EXHIBITS:
        parts = urlsplit(exhibit.url)
        assert parts.hostname == exhibit.host and exhibit.has(exhibit.host) and exhibit.about
        assert exhibit.host.split(".")[0].replace("-", "").isalnum() and exhibit.verdicts
