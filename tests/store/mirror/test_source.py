"""shep-mirror and a server that is not what it says: whatever comes over the wire, a typed error, and nothing lost."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from shepherd.store.check import check
from shepherd.store.state.database import Database
from tests.crash import disks
from tests.crash.dying import killed_after
from tests.store.mirror.received import Folder, advance, bring, spoil, way
from tests.support import liar, sampling
from tests.support.liar import Answer, lying, send_answer
from tests.support.programs import call
from tests.support.segment_states import Sheep, faults, fill
from tests.support.toy_farm import contents

FLOCK = [Sheep(f"http://a.example/{n}", now=b"body %d" % n * 30) for n in range(8)]
SEGMENT = "objects/00000001"
LOST, REFUSED, CORRUPT = 20, 21, 11
STEP = 37  # calls between two kills


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with disks.workplace() as path:
        fill(path / "source", FLOCK)
        token = path / "token"
        token.write_text("secret")
        token.chmod(0o600)
        yield path


@pytest.fixture
def mirror(home: Path, request: pytest.FixtureRequest) -> Path:
    """A mirror with a state, whose source gets newer states."""
    db = home / f"mirror-{request.node.name.replace('/', '-')}"
    bring(Folder(home / "source" / "db"), db)
    return db


@pytest.fixture(scope="module")
def newer(home: Path) -> Path:
    """The source, one state later: a segment is new, too."""
    fill(home / "newer", FLOCK)
    for weight in (3, 4):
        advance(home / "newer" / "db", weight)
    return home / "newer" / "db"


def run(home: Path, url: str, db: Path, *more: str) -> int:
    words = ("--from", url, "--token-file", str(home / "token"), "--db", str(db), "--cf", str(home / "source" / "cf"))
    done = call("shep-mirror", *words, "--jobs", "1", *more)
    assert "bug" not in done.stderr and "secret" not in done.stderr, done.stderr
    assert done.stderr.isprintable() or done.stderr.count("\n"), done.stderr
    assert "\x1b" not in done.stderr
    return done.returncode


def squeezed(handler: BaseHTTPRequestHandler) -> None:
    send_answer(handler, gzip.compress(bytes(1 << 20)), Content_Encoding="gzip")


def lease_of(state: str) -> bytes:
    return b'{"lease": "x", "state": %s, "owner": "x", "purpose": "x", "taken": 0, "expires": 0}' % state.encode()


LIES: dict[str, tuple[str, Answer, int]] = {
    "a page": ("/v1/leases", lambda h: send_answer(h, b"<html>", 201), REFUSED),
    "no lease": ("/v1/leases", lambda h: send_answer(h, b"{}", 201), REFUSED),
    "a lease of no state": ("/v1/leases", lambda h: send_answer(h, lease_of("1e999"), 201), REFUSED),
    "a lease of a list": ("/v1/leases", lambda h: send_answer(h, lease_of("[]"), 201), REFUSED),
    "deep JSON": ("/v1/leases", lambda h: send_answer(h, b"[" * 100_000, 201), REFUSED),
    "an older state": ("/v1/leases", lambda h: send_answer(h, lease_of("1"), 201), CORRUPT),
    "elsewhere": ("/v1/leases", lambda h: send_answer(h, b"", 302, Location="http://127.0.0.1:9/"), REFUSED),
    "an error that steers": ("/v1/leases", lambda h: send_answer(h, b'{"error": "\\u001b[2J"}', 403), REFUSED),
    "endless control": ("files/control", liar.endless, CORRUPT),
    "control in another coding": ("files/control", squeezed, CORRUPT),
    "control cut off": ("files/control", lambda h: send_answer(h, b"shepherd-control 4\n"), CORRUPT),
    "control that is not there": ("files/control", lambda h: send_answer(h, b'{"error": "no"}', 404), REFUSED),
    "endless column": ("files/index/weight", liar.endless, CORRUPT),
    "endless block table": ("files/index/weight.check", liar.endless, CORRUPT),
    "a column in another coding": ("files/index/weight", squeezed, CORRUPT),
    "another place": ("files/index/weight", lambda h: send_answer(h, b"x", 206, Content_Range="bytes 5-5/9"), REFUSED),
    "no place": ("files/index/weight", lambda h: send_answer(h, b"x", 206, Content_Range="bytes x-y/z"), REFUSED),
    "a longer length": ("files/index/weight", lambda h: send_answer(h, b"x", Content_Length="99"), REFUSED),
    "no column": ("files/index/weight", lambda h: send_answer(h, b""), LOST),
    "a lease that is over": ("files/index/weight", lambda h: send_answer(h, b'{"error": "over"}', 410), LOST),
}


@pytest.mark.parametrize("what", LIES)
def test_server_that_lies_is_refused(home: Path, newer: Path, mirror: Path, what: str) -> None:
    end, lie, status = LIES[what]
    had = contents(mirror / "state" / "000002")
    with lying(newer, {end: lie}) as server:
        assert run(home, server.url, mirror) == status, server.asked
    assert [str(name) for name in Database(mirror).states()] == ["000002"]
    assert contents(mirror / "state" / "000002") == had
    with lying(newer, {}) as server:
        assert run(home, server.url, mirror) == 0
    assert faults(Database(mirror)) == []


def test_connection_that_breaks_off_is_resumed(home: Path, newer: Path) -> None:
    data = (Database(newer).closed().path / SEGMENT).read_bytes()
    after = [100, 0, 1, 300]
    with lying(newer, {SEGMENT: liar.breaking_off(data, after)}) as server:
        assert run(home, server.url, home / "broken") == 0
        assert len([one for one in server.asked if one.endswith(SEGMENT)]) == 5
    assert faults(Database(home / "broken")) == []


def test_source_where_nobody_listens_is_a_lost_peer(home: Path) -> None:
    assert run(home, "http://127.0.0.1:1", home / "nowhere") == LOST


def test_url_with_a_password_or_of_another_kind_is_refused(home: Path) -> None:
    for url in ("ftp://127.0.0.1/", "http://user:secret@127.0.0.1:1/", "127.0.0.1:1"):
        assert call("shep-mirror", "--from", url, "--token-file", str(home / "token")).returncode == 2


@pytest.mark.parametrize("what", ["empty", "beside", "damaged"])
def test_transfer_killed_at_any_call_is_completed_by_the_next_one(home: Path, newer: Path, what: str) -> None:
    """Into an empty directory, beside a state, and in the place of a damaged one; without a server, and so with more kills."""
    expected, calls = contents(Database(newer).closed().path), 1
    step = sampling.step(STEP)
    for calls in range(1 + sampling.first(step, what), 10_000, step):
        db = home / f"{what}-{calls}"
        if what != "empty":
            bring(Folder(newer if what == "damaged" else home / "source" / "db"), db)
        if what == "damaged":
            spoil(Database(db).closed().path / "index" / "norm")
        died = killed_after(calls, partial(bring, Folder(newer), db, way(verify=True)))
        bring(Folder(newer), db, way(verify=True))
        assert contents(Database(db).closed().path) == expected, calls
        assert [str(fault) for fault in check.walk(Database(db))] == [], calls
        if not died:
            break
    assert calls > STEP
