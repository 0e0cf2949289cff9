"""A server that drips: a byte now and then keeps every timeout of a socket, and yet each part of an exchange comes to its end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from shepherd.client import Server, deadline, server
from shepherd.errors import PeerLost

DROP_S = 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def dripping(begin: bytes) -> Iterator[str]:
    """Sends this at once, and then an endless row of single bytes."""

    def drip() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.sendall(begin)
            while not ended.is_set():
                connection.sendall(b"x")
                time.sleep(DROP_S)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 ", HEAD + b"X: "])
def test_head_that_drips_is_a_lost_peer(monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(deadline, "HEAD_S", 0.3)
    with (
        dripping(begin) as place,
        Server(f"http://{place}", "x", tries=1) as asked,
        pytest.raises(PeerLost, match="does not answer"),
    ):
        asked.states()


def test_body_that_drips_is_a_lost_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_S", 0.3)
    with (
        dripping(HEAD + b"\r\n") as place,
        Server(f"http://{place}", "x", tries=1) as asked,
        pytest.raises(PeerLost, match="whole"),
    ):
        asked.states()
