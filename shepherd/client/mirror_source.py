"""A server as the source of a mirror (shepherd/store/mirror/drive.py): its states, and their files from any place on.

What it says may be anything. Here only its form is judged: that an answer is one of shep-serve, that a file continues where we
asked it to, and that bytes come at all. Whatever it refuses, whatever the reason, is PeerRefused; what may pass is PeerLost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from shepherd.client import heartbeat
from shepherd.client.server import FileAnswer, LeaseOver, Server, ServerLease
from shepherd.errors import PeerLost, PeerRefused, UsageError

PART: Final = 1 << 18
PROGRAM: Final = "shep-mirror"
LOOK_S: Final = 60.0  # how often the speed of a file is looked at
SLOWEST: Final = 16 << 10  # bytes that must come in that time
_ON: Final = "run the same command again: it continues"


class MirrorSource:
    """The states that a server has."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.where = server.url

    def states(self) -> list[int]:
        """The numbers of its closed states."""
        with _typed_errors(self.where):
            return [state["state"] for state in self._server.states()["states"]]

    @contextlib.contextmanager
    def leased(self, number: int | None) -> Iterator[LeasedState]:
        """A closed state, the newest by default, for as long as the block runs."""
        with contextlib.ExitStack() as stack:
            with _typed_errors(self.where):
                lease = stack.enter_context(heartbeat.hold(self._server, PROGRAM, number))
            yield LeasedState(self._server, lease)


class LeasedState:
    """One state, held for us."""

    def __init__(self, server: Server, lease: ServerLease) -> None:
        self._server, self._lease = server, lease
        self.number, self.lease = lease.state, lease.name

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        """A file from an offset on, as it comes."""
        where = f"{self._server.url}: {path}"
        with _typed_errors(where):
            headers = {"Range": f"bytes={offset}-"} if offset else None
            answer = FileAnswer(self._server.open("GET", f"/v1/leases/{self._lease.name}/files/{quote(path)}", headers=headers))
            if answer.start != offset:
                raise PeerRefused(f"{where}: asked for what comes after {offset} bytes, it sends what comes after {answer.start}")
            yield from _fast_enough(where, answer.chunks(PART))


def _fast_enough(where: str, parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same, as long as enough of them come: a byte a minute is an answer without an end."""
    since_s, received_bytes = time.monotonic(), 0
    for part in parts:
        received_bytes += len(part)
        if time.monotonic() - since_s > LOOK_S:
            if received_bytes < SLOWEST:
                raise PeerLost(f"{where}: only {received_bytes} bytes came in {LOOK_S:.0f} s; {_ON}")
            since_s, received_bytes = time.monotonic(), 0
        yield part


@contextlib.contextmanager
def _typed_errors(where: str) -> Iterator[None]:
    try:
        yield
    except LeaseOver as error:
        raise PeerLost(f"{error}; {_ON}") from error
    except UsageError as error:
        raise PeerRefused(str(error)) from error
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PeerRefused(f"{where}: this is not an answer of shep-serve: {error!r}") from error
