"""A server that is told to end, and one that is back soon: nobody loses anything, and nobody gets anything twice."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from shepherd.client import Server, pull
from shepherd.client.server import Busy
from shepherd.errors import PeerLost
from shepherd.formats import stream
from shepherd.readers.choice import Choice
from shepherd.readers.reading import Reading
from shepherd.serve import documents
from shepherd.store.state.database import Database
from tests.store.mirror.received import advance
from tests.support.liar import lying, send_answer
from tests.support.segment_states import fill
from tests.support.serving import ROOT, Serving, flock, serving, token_of
from tests.support.toy_farm import contents
from tests.support.waiting import PATIENCE_S, free_port, wait_until

pytestmark = pytest.mark.waits

LONG = "drain_s = 600.0\n"
SLOW = "bytes_per_s = 20000\n"


class Connection:
    """A keep-alive connection of a client, byte by byte."""

    def __init__(self, served: Serving, name: str = "reader") -> None:
        parts = urlsplit(served.url)
        self.socket = socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S)
        self._token, self._answers = token_of(name), self.socket.makefile("rb")

    def send(self, line: str, body: bytes = b"", **headers: str) -> None:
        fields = {"Host": "localhost", "Authorization": f"Bearer {self._token}"} | headers
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        self.socket.sendall(f"{line} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._answers.readline().split()[1])
        headers = {}
        while line := self._answers.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, self._answers.read(int(headers["content-length"]))

    def has_ended(self) -> bool:
        return self._answers.read() == b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._answers.close()
        self.socket.close()


@contextlib.contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program beside us; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shepherd.cli", *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def words_for(home: Path, url: str, name: str) -> list[str]:
    token = home / f"{name}.token"
    token.write_text(token_of(name))
    token.chmod(0o600)
    return ["--from", url, "--token-file", str(token), "--cf", str(home / "cf")]


def sends(served: Serving, path: str) -> bool:
    """Whether it has answered a request for such a path."""
    return any(path in event.get("path", "") for event in served.events())


def bugs(served: Serving) -> list[dict[str, Any]]:
    return [event for event in served.events() if event["event"] == "bug" or "bug" in event.get("text", "")]


# --- the server -----------------------------------------------------------------------------------------------------


def test_request_under_way_is_answered_and_a_new_one_sent_away(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    body = b"http://h0.example/ 300\n"
    with serving(tmp_path, LONG) as served, Connection(served, "weigher") as upload, Connection(served) as idle:
        idle.send("GET /v1/states")
        assert idle.answer()[0] == 200
        upload.send("POST /v1/feedback", Content_Length=str(len(body)), Expect="100-continue")
        assert upload._answers.readline().startswith(b"HTTP/1.1 100") and upload._answers.readline() == b"\r\n"
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: any(event["event"] == "drain" for event in served.events()))
        place = (urlsplit(served.url).hostname or "", urlsplit(served.url).port or 0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place, PATIENCE_S).close()
        idle.send("GET /v1/states")
        status, headers, _ = idle.answer()
        assert (status, headers["connection"]) == (503, "close") and int(headers["retry-after"]) > 0
        assert idle.has_ended()
        upload.socket.sendall(body)
        status, headers, _ = upload.answer()
        assert (status, headers["connection"]) == (202, "close") and upload.has_ended()
        assert served.process.wait(PATIENCE_S) == 0
        assert [item.path.read_bytes() for item in served.database.inbox.items("feedback")] == [body]
        assert bugs(served) == [] and served.errors() == b""


def test_request_that_does_not_finish_holds_the_server_only_so_long(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path, f"drain_s = 0.2\n{SLOW}") as served, Connection(served, "weigher") as upload:
        upload.send("POST /v1/feedback", Content_Length="100", Expect="100-continue")
        assert upload._answers.readline().startswith(b"HTTP/1.1 100")
        assert served.end() == 0
        assert os.listdir(served.database.inbox.directory) == [] and bugs(served) == [] and served.errors() == b""


def test_stream_ends_before_a_frame_when_the_server_is_to_end(tmp_path: Path) -> None:
    fill(tmp_path, flock(1_100, 1))
    state = Database(tmp_path / "db").closed()
    batches = list(Reading(state, Choice()).batches(0))
    assert len(batches) == 2
    ending = iter((False, True))
    frames = list(documents._stream(state, batches, lambda: next(ending)))
    assert [piece for piece in frames if isinstance(piece, bytes)] == [stream.rows_frame(batch.rows) for batch in batches[:1]]


# --- its clients ------------------------------------------------------------------------------------------------------


def test_pull_continues_when_the_server_is_back(tmp_path: Path) -> None:
    """It is cut in the middle of a frame, because its time is over; the next one ends before a frame."""
    fill(tmp_path, flock(300))
    listen = f"127.0.0.1:{free_port()}"
    settings = f"drain_s = 0.1\n{SLOW}"
    footprints = []
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving(tmp_path, settings, listen))
        for document in pull(served.url, token_of("reader")):
            footprints.append(document.footprint)
            if len(footprints) in (30, 100):
                assert served.end() == 0
                served = stack.enter_context(serving(tmp_path, settings, listen))
        cuts = [event for event in served.events() if "cut" in event]
        assert cuts and bugs(served) == []
        assert served.database.leases.all() == []
    assert len(footprints) == len(set(footprints)) == 301


def test_mirror_continues_when_the_source_is_back(tmp_path: Path) -> None:
    fill(tmp_path / "source", flock(300))
    home, db, listen = tmp_path / "source", tmp_path / "mirror", f"127.0.0.1:{free_port()}"
    settings = f"drain_s = 0.1\n{SLOW}"
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving(home, settings, listen))
        mirror = stack.enter_context(program("shep-mirror", *words_for(home, served.url, "mirror"), "--db", str(db)))
        wait_until(lambda: list(db.glob("state/000002.tmp/objects/*")))
        assert served.end() == 0
        assert mirror.poll() is None
        stack.enter_context(serving(home, settings, listen))
        _out, errors = mirror.communicate(timeout=PATIENCE_S)
        assert mirror.returncode == 0, errors
    assert contents(db / "state" / "000002") == contents(home / "db" / "state" / "000002")


def test_watch_survives_every_way_in_which_its_source_is_away(tmp_path: Path) -> None:
    """Before its first round and after: nobody listens, a server that is about to end, a proxy whose server is away."""
    home, db, port = tmp_path / "source", tmp_path / "mirror", free_port()
    fill(home, flock(3))
    listen, url = f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"
    (home / "cf").mkdir(exist_ok=True)
    with program("shep-mirror", *words_for(home, url, "mirror"), "--db", str(db), "--watch", "1") as watch:
        with serving(home, listen=listen) as served:
            wait_until(lambda: (db / "state/000002").is_dir())
            assert served.end() == 0
        advance(home / "db", 3)
        with answering(port, (502, 503, 504)) as asked:
            wait_until(lambda: len(asked) > 3)
        assert watch.poll() is None
        with serving(home, listen=listen):
            wait_until(lambda: (db / "state/000003").is_dir())
            watch.send_signal(signal.SIGTERM)
            assert watch.wait(PATIENCE_S) == 0


@contextlib.contextmanager
def answering(port: int, statuses: tuple[int, ...]) -> Iterator[list[bytes]]:
    """Somebody on this port who has no other answers."""
    asked: list[bytes] = []
    heads = itertools.cycle(f"HTTP/1.1 {status} Away" for status in statuses)

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as connection:
                    asked.append(connection.recv(1 << 16))
                    connection.sendall(f"{next(heads)}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_server_that_stays_away_is_a_lost_peer_after_as_many_tries_as_allowed(tmp_path: Path, status: int) -> None:
    fill(tmp_path, flock(3))
    pauses: list[float] = []
    with lying(tmp_path / "db", {"/count": lambda handler: send_answer(handler, b"", status, Retry_After="7")}) as liar:
        server = Server(liar.url, "x", tries=1, later_tries=4, pause=pauses.append)
        with server, server.leased("x") as lease, pytest.raises(Busy, match="run the same command again") as caught:
            server.count(lease)
        assert isinstance(caught.value, PeerLost) and pauses == [7.0] * 3
        assert len([path for path in liar.asked if "/count" in path]) == 4


def test_server_that_never_answered_is_given_up_soon_with_what_to_do() -> None:
    pauses: list[float] = []
    url = f"http://127.0.0.1:{free_port()}"
    server = Server(url, "x", tries=3, later_tries=9, pause=pauses.append)
    with server, pytest.raises(PeerLost, match="Run the same command again when it is"):
        server.states()
    assert len(pauses) == 2
