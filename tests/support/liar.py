"""A server that speaks like shep-serve, over a real socket, and lies in one thing: what it answers to a path is a function."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from shepherd.store.state.database import Database
from shepherd.wire import api

LEASE = "1790000000000-liar-1-1"
Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Liar:
    url: str
    asked: list[str]


def send_answer(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in ({"Content_Length": str(len(body))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Bytes without an end, and without a length that would say so."""
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"x" * 65_536)


def breaking_off(data: bytes, after: list[int]) -> Answer:
    """A file whose answers end, one after the other, so many bytes behind where they begin; the rest of them are whole."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        start = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(data) - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        handler.wfile.write(data[start:][: after.pop(0) if after else None])

    return answer


@contextlib.contextmanager
def lying(db: Path, lies: dict[str, Answer]) -> Iterator[Liar]:
    """`lies` are by the end of the path, with its query or without; all else is answered as it is."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with contextlib.suppress(OSError):
                paths = self.path, self.path.partition("?")[0]  # with its query a lie is meant more closely
                _answer(self, db, next((lies[end] for path in paths for end in lies if path.endswith(end)), None))

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield Liar(f"http://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, db: Path, lie: Answer | None) -> None:
    state = Database(db).closed()
    lease = api.LeaseAnswer(LEASE, state.number, "liar", "a lie", 1_999_996_400, 2_000_000_000)
    if lie is not None:
        lie(handler)
    elif handler.path == "/v1/states":
        send_answer(handler, msgspec.json.encode(api.ClosedStates([api.ClosedState(state.number, 0, 0, 0, 0)], [])))
    elif handler.path.startswith(f"/v1/leases/{LEASE}/files/"):
        start = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        data = (state.path / handler.path.partition("/files/")[2]).read_bytes()
        ranged = {"Content_Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        send_answer(handler, data[start:], 206 if start else 200, **ranged)
    else:
        send_answer(handler, msgspec.json.encode(lease), 201 if handler.command == "POST" else 200)
