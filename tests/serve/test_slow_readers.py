"""Readers that ask and do not take the answer, whatever kind it is: none keeps its seat for longer than a stall may last."""

from __future__ import annotations

import contextlib
import select
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.segment_states import fill
from tests.support.serving import Serving, flock, serving, token_of
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits

MANY = 1_000  # answers, of which no buffer of the system has room for all


def asking_without_end(served: Serving, stack: contextlib.ExitStack, name: str) -> socket.socket:
    """A connection whose client asks again and again, and never reads."""
    place = (urlsplit(served.url).hostname or "", urlsplit(served.url).port or 0)
    connection = stack.enter_context(socket.create_connection(place, PATIENCE_S))
    token = f"Authorization: Bearer {token_of(name)}\r\n" if name else ""
    connection.settimeout(0.5)
    with contextlib.suppress(TimeoutError, ConnectionError):  # the server may read no more, or be gone already
        connection.sendall(f"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n{token}\r\n".encode() * MANY)
    return connection


def was_reset(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _fd, events in poll.poll(0))


@pytest.mark.parametrize("name", ["reader", ""])
def test_reader_that_takes_no_answer_is_dropped(tmp_path: Path, name: str) -> None:
    """Requests under way take all seats: who never lets one end would have it for good."""
    fill(tmp_path, flock(3))
    with serving(tmp_path, "connections = 2\nstall_s = 0.5\n") as served, contextlib.ExitStack() as stack:
        stalled = [asking_without_end(served, stack, name) for _ in range(2)]
        wait_until(lambda: all(was_reset(connection) for connection in stalled), "it may stall as long as it likes")
        assert served.ask("/v1/states", name="other").status_code == 200
        assert served.end() == 0


def test_reader_that_takes_its_answer_slowly_gets_all_of_it(tmp_path: Path) -> None:
    """It takes some of it in every stall, and all of it in many."""
    fill(tmp_path, flock(3))
    with serving(tmp_path, "stall_s = 0.5\n") as served, contextlib.ExitStack() as stack:
        connection = asking_without_end(served, stack, "reader")
        connection.settimeout(PATIENCE_S)
        heard = 0
        with contextlib.suppress(ConnectionError):
            while heard < 1 << 20 and (part := connection.recv(1 << 14)):
                heard += len(part)
        assert heard >= 1 << 20


def test_bytes_for_a_stranger_are_limited_by_address(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path, "bytes_per_s = 100\n") as served:
        assert [served.ask("/openapi.json", name="").status_code for _ in range(2)] == [200, 429]
        assert served.ask("/openapi.json", name="reader").status_code == 200
