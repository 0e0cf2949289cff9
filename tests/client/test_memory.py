"""A server that sends too much: whatever kind of answer it is, the programs that read from it keep their memory small."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import numpy as np
import pytest

from shepherd.client import document, pull
from shepherd.client.pull import MOST_BUCKET
from shepherd.client.server import MOST_BYTES, MOST_OF
from shepherd.formats import stream
from shepherd.formats.check import check64
from shepherd.store.mirror.manifest import MOST_CONTROL
from shepherd.store.state.database import Database
from shepherd.wire import api
from tests.support.liar import Answer, lying, send_answer
from tests.support.programs import peak_of
from tests.support.segment_states import fill
from tests.support.serving import flock, serving, token_of

MIB = 1 << 20
FLOOD = 48 * MIB  # of an answer that has no end of its own
BUCKET = 24 * MIB
SMALL, OF_CONTROL, OF_BUCKET = 24 * MIB, 160 * MIB, 24 * MIB + 3 * BUCKET  # what it may cost


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("memory")
    fill(home, flock(3))
    (home / "token").write_text("secret")
    (home / "token").chmod(0o600)
    yield home


def flooding(head: bytes, item: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """The head, and then the item again and again."""
    part = item * (MIB // len(item))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(head)
            for _ in range(FLOOD // len(part)):
                handler.wfile.write(part)

    return answer


def filling(kind: type, head: bytes, item: bytes, tail: bytes) -> Answer:
    """An answer that is as long as it may be, and dear to decode."""
    count = (MOST_OF.get(kind, MOST_BYTES) - len(head) - len(tail)) // len(item)
    return lambda handler: send_answer(handler, head + item * count + tail, 201 if handler.command == "POST" else 200)


def control(db: Path, lines: Callable[[int], str]) -> Answer:
    """A control that checks, has everything that one has, and beside it as many of these lines as it may."""
    body = (Database(db).closed().path / "control").read_bytes().rpartition(b"check ")[0]
    data, room = bytearray(body), MOST_CONTROL - 100
    for number in itertools.count(2):
        line = lines(number).encode()
        if len(data) + len(line) > room:
            break
        data += line
    whole = bytes(data) + b"check %016x\n" % check64(bytes(data))
    return lambda handler: send_answer(handler, whole)


def one_row(length: int) -> bytes:
    row = np.zeros(1, stream.ROW)
    row["length"] = length
    return stream.rows_frame(row)


STREAM = {"Content-Type": stream.MEDIA_TYPE, "Shepherd-Items": "1", "Shepherd-Bytes": "1"}
NUMBERS = (b'{"states": [], "since": [', b"123456789,", b"1]}")
EMPTY_STATES = (
    b'{"since": [], "states": [',
    b'{"state":1000,"made":1000,"urls":1000,"bucket_bytes":1000,"files":1000},',
    b"{}]}",
)
# What is answered to which path, and how much memory it may cost a mirror.
MIRRORED: dict[str, tuple[str, Callable[[Path], Answer], int]] = {
    "lease without end": ("/v1/leases", lambda _db: flooding(b'{"x": [', b"123456789,", 201), SMALL),
    "lease of many fields": ("/v1/leases", lambda _db: filling(api.LeaseAnswer, b'{"x": [', b"[],", b"1]}"), SMALL),
    "refusal without end": ("/v1/leases", lambda _db: flooding(b'{"error": "', b"x" * 64, 403), SMALL),
    "control without end": ("files/control", lambda _db: flooding(b"shepherd-control 3\n", b"applied x\n"), OF_CONTROL),
    "control of unknown keys": ("files/control", lambda db: control(db, lambda n: f"{n:x} \n"), OF_CONTROL),
    "control of items": ("files/control", lambda db: control(db, lambda n: f"applied {n}-x-1-1\n"), OF_CONTROL),
    "control of files": ("files/control", lambda db: control(db, lambda n: f"file objects/{n:08} 9 {n:016x}\n"), OF_CONTROL),
}
HARMLESS = ("control of unknown keys", "control of items")  # it says nothing that could not be so
EXPORTED: dict[str, tuple[str, Callable[[Path], Answer], int]] = {
    "states without end": ("/v1/states", lambda _db: flooding(*NUMBERS[:2]), SMALL),
    "states of many numbers": ("/v1/states", lambda _db: filling(api.ClosedStates, *NUMBERS), SMALL),
    "states of many": ("/v1/states", lambda _db: filling(api.ClosedStates, *EMPTY_STATES), SMALL),
    "count without end": ("/count", lambda _db: flooding(b"{", b'"x": {},'), SMALL),
    "document of its full length": ("/documents", lambda _db: flooding(one_row(BUCKET), bytes(64), headers=STREAM), OF_BUCKET),
    "document that is too long": (
        "/documents", lambda _db: flooding(one_row(MOST_BUCKET + 1), bytes(64), headers=STREAM), SMALL),
}  # fmt: skip


@pytest.mark.parametrize("what", MIRRORED)
def test_mirror_of_a_flooding_source_stays_small(home: Path, tmp_path: Path, what: str) -> None:
    end, make, most = MIRRORED[what]
    with lying(home / "db", {end: make(home / "db")}) as liar:
        words = ("--from", liar.url, "--token-file", str(home / "token"), "--cf", str(home / "cf"))
        done, peak = peak_of("shep-mirror", *words, "--db", str(tmp_path / "mirror"))
    assert done.returncode == (0 if what in HARMLESS else 21 if "/leases" in end else 11), done.stderr
    assert "bug" not in done.stderr and bool(list((tmp_path / "mirror").glob("state/0*"))) == (what in HARMLESS)
    assert peak < most, f"{peak / MIB:.0f} MiB"


@pytest.mark.parametrize("what", EXPORTED)
def test_export_from_a_flooding_source_stays_small(home: Path, tmp_path: Path, what: str) -> None:
    end, make, most = EXPORTED[what]
    count = msgspec.json.encode(api.DocumentCount(Database(home / "db").closed().number, 1, 0, 1))
    lies: dict[str, Answer] = {end: make(home / "db")}
    with lying(home / "db", lies | ({} if "/count" in lies else {"/count": lambda handler: send_answer(handler, count)})) as liar:
        words = ("--from", liar.url, "--token-file", str(home / "token"), "--cf", str(home / "cf"))
        done, peak = peak_of("shep-export", *words, "--format", "jsonl", "--output", str(tmp_path / "out"))
    assert done.returncode in (11, 21), done.stderr
    assert "bug" not in done.stderr and not list(tmp_path.glob("out/*.jsonl*"))
    assert peak < most, f"{peak / MIB:.0f} MiB"


def test_body_that_claims_more_than_any_page_has_is_damage(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """So that nobody undoes it, whatever the few bytes of it may become."""
    monkeypatch.setattr(document, "MOST_PLAIN", 100)
    with serving(home) as served, pull(served.url, token_of("reader"), damaged="give") as documents:
        damages = [one.damage for one in documents]
        assert sum("which no page has" in damage for damage in damages) >= 3
