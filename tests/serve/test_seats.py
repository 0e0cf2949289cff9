"""Connections that keep nobody out: however many strangers are connected, whoever has a token is served."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from shepherd.serve.seats import Seat, Seats
from tests.serve.test_tls import FILES, certify
from tests.support.segment_states import fill
from tests.support.serving import Serving, flock, serving, token_of
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits

STRANGERS = tuple(f"127.0.0.{n}" for n in range(2, 6))
OPEN = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Room:
    """Seats whose connections are only names."""

    def __init__(self, most: int, most_of_one: int = 0, spare: int = 1) -> None:
        self.numbers, self.ended = itertools.count(), list[int]()
        self.turned_away = self.displaced = 0
        self.seats = Seats(most, most_of_one, spare, self._on_turned_away, self._on_displaced)

    def _on_turned_away(self) -> None:
        self.turned_away += 1

    def _on_displaced(self) -> None:
        self.displaced += 1

    def take(self, network: str, client: str = "", busy: bool = False) -> Seat | None:
        number = next(self.numbers)
        seat = self.seats.take(number, network, lambda: self.ended.append(number))
        if seat and client:
            self.seats.on_request(seat, client)
            if not busy:
                self.seats.on_answer(seat)
        return seat


def test_longest_silent_stranger_of_the_largest_crowd_leaves() -> None:
    room = Room(5)
    for network in ("a", "b", "b", "c", "b"):
        room.take(network)
    talking = room.seats.find(1)
    assert talking is not None
    room.seats.on_request(talking, None)
    room.take("d")
    assert room.ended == [2]  # of b, which has three, and not the one that has just asked for something
    for _ in range(3):
        room.take("e")
    assert room.ended == [2, 4, 0, 6]  # as soon as e has most, e pays for e
    assert len(room.seats) == 5 and room.turned_away == 0 and room.displaced == 4


def test_client_keeps_its_seat_as_long_as_a_stranger_has_one() -> None:
    room = Room(4)
    for _ in range(3):
        room.take("a", "reader")
    for _ in range(20):
        room.take("b")
    assert not {0, 1, 2} & set(room.ended) and len(room.ended) == 19
    room.take("c", "other")
    assert room.ended[-1] == 22 and len(room.seats) == 4  # the last of b
    room.take("d")  # only clients are left: one of whoever has most
    assert room.ended[-1] == 0


def test_request_under_way_is_never_cut_for_a_newcomer() -> None:
    room = Room(2, spare=1)
    assert room.take("a", "reader", busy=True) and room.take("b", "other", busy=True)
    spare = room.take("c")
    assert spare is not None and room.seats.is_overfull  # it is let in to hear that there is no seat
    assert room.take("d") is not None and room.ended == [2]
    room.take("d", "third", busy=True)
    assert room.take("e") is None and room.turned_away == 1


def test_address_at_its_limit_displaces_only_its_own() -> None:
    room = Room(10, most_of_one=2)
    for network in ("a", "b", "a", "a", "b", "b"):
        room.take(network)
    assert room.ended == [0, 1]
    room = Room(10, most_of_one=1)
    room.take("a", "reader", busy=True)
    room.take("b")
    assert room.take("a") is None and room.turned_away == 1 and room.ended == []


def connected(served: Serving, stack: contextlib.ExitStack, source: str, count: int) -> list[socket.socket]:
    place = ("127.0.0.1", urlsplit(served.url).port or 0)
    return [stack.enter_context(socket.create_connection(place, PATIENCE_S, (source, 0))) for _ in range(count)]


@pytest.mark.parametrize("tls", [False, True])
def test_idle_strangers_do_not_lock_a_client_out(tmp_path: Path, tls: bool) -> None:
    """As many as there are seats, and more, from four addresses: some silent, some after a request."""
    fill(tmp_path, flock(3))
    ca = certify(tmp_path / "cf")
    settings = f"connections = 64\nconnections_per_address = 16\n{FILES if tls else ''}"
    with serving(tmp_path, settings, ca=ca) as served, contextlib.ExitStack() as stack:
        client = stack.enter_context(requests.Session())
        client.trust_env, client.verify = False, str(ca)
        client.headers["Authorization"] = f"Bearer {token_of('reader')}"
        places = set()  # our ends of the connection of the session
        for round_ in range(3):
            for source in STRANGERS:
                strangers = connected(served, stack, source, 20)
                for one in [] if tls else strangers[::3]:
                    with contextlib.suppress(ConnectionError):
                        one.sendall(OPEN)
            with client.get(f"{served.url}/v1/states", timeout=PATIENCE_S, stream=True) as answer:
                assert answer.status_code == 200, round_
                connection = answer.raw.connection
                assert connection is not None
                places.add(connection.sock.getsockname())
                answer.raw.read()
            assert served.ask("/v1/states", name="other", verify=ca).status_code == 200  # by a connection of its own
        assert len(places) == 1  # what is served once keeps its connection
        metrics = served.ask("/metrics", name="boss", verify=ca).text
        assert "shepherd_serve_turned_away_total 0.0" in metrics
        assert float(metrics.partition("\nshepherd_serve_displaced_total ")[2].split()[0]) > 0


def test_default_number_of_idle_strangers_does_not_lock_a_client_out(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served, contextlib.ExitStack() as stack:
        for source in STRANGERS:
            connected(served, stack, source, 70)
        for name in ("reader", "other"):
            for _ in range(3):
                assert served.ask("/v1/states", name=name).status_code == 200


def test_stranger_is_given_little_time_after_its_request_too(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path, "stall_s = 0.5\n") as served, contextlib.ExitStack() as stack:
        (stranger,) = connected(served, stack, "127.0.0.1", 1)
        stranger.sendall(OPEN)
        client = http_client(served, stack)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(1 << 16):  # ends because the server closes
                pass
        client.sendall(b"GET /v1/states HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + authorization() + b"\r\n")
        wait_until(lambda: client.recv(1 << 16).startswith(b"HTTP/1.1 200"))  # a client has longer


def http_client(served: Serving, stack: contextlib.ExitStack) -> socket.socket:
    """A connection over which a client has had an answer."""
    (client,) = connected(served, stack, "127.0.0.1", 1)
    client.sendall(b"HEAD /v1/states HTTP/1.1\r\nHost: localhost\r\n" + authorization() + b"\r\n")
    heard = b""
    while not heard.endswith(b"\r\n\r\n"):
        heard += client.recv(1 << 16)
    assert heard.startswith(b"HTTP/1.1 200")
    return client


def authorization() -> bytes:
    return f"Authorization: Bearer {token_of('reader')}\r\n".encode()


@pytest.mark.parametrize("tls", [False, True])
def test_transfers_that_take_all_seats_are_not_cut(tmp_path: Path, tls: bool) -> None:
    """Who comes then is told so, and served as soon as one of them is over."""
    fill(tmp_path, flock(3))
    ca = certify(tmp_path / "cf")
    with (
        serving(tmp_path, f"connections = 2\nbytes_per_s = 50\n{FILES if tls else ''}", ca=ca) as served,
        served.as_client("boss") as server,
        server.leased("test") as lease,
    ):
        server.close()  # the connection by which the lease was taken
        path = f"/v1/leases/{lease.name}/files/control"
        slow = [served.ask(path, name="boss", stream=True, verify=ca) for _ in range(2)]
        refused = served.ask("/v1/states", verify=ca)
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "1"
        assert [one.raw.read(1) != b"" for one in slow] == [True, True]
        slow[0].close()
        wait_until(lambda: served.ask("/v1/states", verify=ca).status_code == 200)
        slow[1].close()


def test_handshakes_that_do_not_end_are_bounded_by_address(tmp_path: Path) -> None:
    """Those of one address displace each other, and no others."""
    fill(tmp_path, flock(3))
    ca = certify(tmp_path / "cf")
    with serving(tmp_path, f"connections_per_address = 3\n{FILES}", ca=ca) as served, contextlib.ExitStack() as stack:
        silent = connected(served, stack, "127.0.0.2", 8)
        for gone in silent[:5]:
            with contextlib.suppress(ConnectionError):
                assert gone.recv(1) == b""
        context = ssl.create_default_context(cafile=str(ca))
        with context.wrap_socket(silent[-1], server_hostname="127.0.0.1") as stranger:
            stranger.sendall(OPEN)
            assert stranger.recv(12) == b"HTTP/1.1 200"
        told = [event for event in served.events() if event["event"] == "displaced"]
        assert {event["peer"] for event in told} == {"127.0.0.2"}
