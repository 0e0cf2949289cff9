"""The toy web over real sockets."""

from __future__ import annotations

import http.client
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.errors import PeerLost
from tests.support.waiting import PATIENCE_S
from toyweb.log import audit, read_log
from toyweb.model import Model
from toyweb.plan import PageKind
from toyweb.run import Running, start

MODEL = Model(seed=4, sites=50, base="127.1.4.0")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with start(MODEL, tmp_path_factory.mktemp("toyweb") / "new") as running:
        yield running


class Client:
    """A connection to one host of the toy web, found by the static table."""

    def __init__(self, web: Running, host: str) -> None:
        self.host = host
        self.connection = http.client.HTTPConnection(*web.static()[host], timeout=PATIENCE_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, headers={"Host": self.host, "User-Agent": "test/1", **given})
        response = self.connection.getresponse()
        return response, response.read()


def page_of(kind: PageKind) -> tuple[str, str]:
    return next((page.host, page.path) for page in MODEL.pages() if page.kind is kind)


def test_static_table_names_every_host_once(web: Running) -> None:
    table = web.static()
    assert set(table) == {host for host, _ in MODEL.hosts()}
    assert {address for address, _ in table.values()} == set(MODEL.addresses)


def test_one_connection_carries_many_requests(web: Running) -> None:
    client = Client(web, "site0.toy.example")
    first, body = client.get("/", accept_encoding="gzip")
    assert (
        first.status == 200 and first.headers["Content-Encoding"] == "gzip" and len(body) == int(first.headers["Content-Length"])
    )
    kept = client.connection.sock
    again, nothing = client.get("/", if_none_match=first.headers["ETag"])
    assert again.status == 304 and nothing == b""
    head, nothing = client.get("/", "HEAD")
    assert head.status == 200 and int(head.headers["Content-Length"]) > len(body) and nothing == b""
    assert client.get("/no-such-page")[0].status == 404
    assert client.connection.sock is kept
    assert client.get("/", connection="close")[0].headers["Connection"] == "close" and client.connection.sock is None


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("site2.toy.example", "/", 301),
        ("site4.toy.example", "/robots.txt", 503),
        ("site5.toy.example", "/robots.txt", 200),
        ("site6.toy.example", "/robots.txt", 302),
        (*page_of(PageKind.REDIRECT_302), 302),
        (*page_of(PageKind.DELETED), 410),
        (*page_of(PageKind.BROKEN), 500),
        (*page_of(PageKind.PDF), 200),
    ],
)
def test_each_answer_has_its_status(web: Running, host: str, path: str, status: int) -> None:
    with Client(web, host) as client:
        response, body = client.get(path)
    assert response.status == status and body


def test_a_dropped_page_is_a_closed_connection_and_a_line_in_the_log(web: Running) -> None:
    host, path = page_of(PageKind.DROPPED)
    with Client(web, host) as client, pytest.raises(http.client.RemoteDisconnected):
        client.get(path)
    assert [entry.status for entry in read_log(web.log_path) if entry.path == path] == [0]


def raw(web: Running, data: list[bytes]) -> bytes:
    with socket.create_connection(web.static()["site0.toy.example"], timeout=PATIENCE_S) as connection:
        for piece in data:
            connection.sendall(piece)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def test_requests_in_pieces_and_in_one_piece_are_answered_in_order(web: Running) -> None:
    ask = b"GET /missing HTTP/1.1\r\nHost: site0.toy.example\r\n\r\n"
    last = b"GET /moved/once HTTP/1.1\r\nHost: site0.toy.example\r\nConnection: close\r\n\r\n"
    answer = raw(web, [ask[:7], ask[7:30], ask[30:] + ask + last])
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"404", b"404", b"301"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: site0.toy.example\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
    ],
)
def test_a_bad_request_ends_its_connection_and_nothing_else(web: Running, request_: bytes, status: bytes) -> None:
    assert raw(web, [request_]).startswith(b"HTTP/1.1 " + status)


def test_log_records_who_asked_for_what_and_when(web: Running) -> None:
    before = len(read_log(web.log_path))
    with Client(web, "www.site12.toy.example") as client:
        client.get("/")
        client.get("/?utm_source=x", if_modified_since="Mon, 01 Jan 2024 00:00:00 GMT")
    entries = read_log(web.log_path)[before:]
    assert [(entry.host, entry.path, entry.status, entry.agent, entry.conditional) for entry in entries] == [
        ("www.site12.toy.example", "/", 200, "test/1", False),
        ("www.site12.toy.example", "/?utm_source=x", 200, "test/1", True),
    ]
    assert (entries[0].address, entries[0].port) == web.static()["www.site12.toy.example"]
    assert entries[0].start_s <= entries[0].end_s <= entries[1].start_s
    assert audit(entries, MODEL.delays_s(0.0)) == []
    assert len(audit(entries, MODEL.delays_s(60.0))) == 2


def test_advance_moves_pages_before_it_returns(tmp_path: Path) -> None:
    model = Model(seed=4, sites=50, base="127.1.5.0")
    host, path = page_of(PageKind.MOVING)
    with start(model, tmp_path) as web, Client(web, host) as client:
        assert client.get(path)[0].status == 200
        web.advance()
        assert client.get(path)[0].status == 301
    with start(model, tmp_path, version=1) as web, Client(web, host) as client:
        assert client.get(path)[0].status == 301
    assert [entry.status for entry in read_log(tmp_path / "access.log")] == [200, 301, 301]


def test_address_in_use_is_an_error_and_leaves_nothing_running(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.1.6.1", 0))
        taken.listen()
        with pytest.raises(PeerLost, match=r"cannot listen on 127\.1\.6\.1"):
            start(Model(sites=50, base="127.1.6.0"), tmp_path, port=taken.getsockname()[1])


PARENT = """
import sys, time
from pathlib import Path
from toyweb.model import Model
from toyweb.run import start
print(start(Model(sites=50, base="127.1.7.0"), Path(sys.argv[1])).pid, flush=True)
time.sleep(900)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd")
def test_kill_9_of_the_parent_leaves_no_server(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.send_signal(signal.SIGKILL)
            ended, _, _ = select.select([server], [], [], PATIENCE_S)
            assert ended
        finally:
            os.close(server)


def test_second_toy_web_in_a_directory_is_locked_out(web: Running) -> None:
    before = (web.static_path).read_bytes()
    command = [sys.executable, "-m", "shepherd.cli", "shep-toyweb", "--dir", str(web.static_path.parent), "--base", "127.1.5.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, "is held by shep-toyweb" in done.stderr) == (3, True), done
    assert (web.static_path).read_bytes() == before
