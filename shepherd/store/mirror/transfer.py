"""Fetches the files of a state that must travel, some at a time, each checked as it comes; what breaks off is gone on with.

Invariant: never more bytes are taken of a file than control says it has, and none is sealed that does not check. A source that
stops in the middle is left after a few tries without a byte; one that sends something else, at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, Protocol

from shepherd.errors import PeerLost
from shepherd.formats.tables import U64
from shepherd.store.mirror.file_transfer import Incoming
from shepherd.store.mirror.manifest import Piece, damaged
from shepherd.store.mirror.state_transfer import Receiving

TRIES: Final = 3  # at one place of a file; after each but the last a pause that doubles
FIRST_PAUSE_S: Final = 0.25


class Stopped(Exception):
    """Somebody asked us to stop; what has come stays for the next time."""


class Pull(Protocol):
    """Where files come from."""

    renew_s: float  # how often it is to be renewed

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        """The file from an offset on, in small parts. PeerLost where it breaks off."""

    def renew(self) -> None:
        """Keep the state from being deleted there."""


class Transfer:
    def __init__(
        self,
        source: Pull,
        receiving: Receiving,
        jobs: int,
        stopping: Callable[[], bool],
        pause: Callable[[float], object],
        pace: Callable[[int], object],
    ) -> None:
        self._source, self._receiving, self._jobs = source, receiving, jobs
        self._stopping, self._pause, self._pace = stopping, pause, pace
        self._turn = threading.Lock()
        self._halted = False
        self._tick: Callable[[int], object] = lambda more: None
        self.fetched_bytes = 0

    def run(self, tick: Callable[[int], object]) -> None:
        """Fetch all that is wanted, the longest first; the first failure ends all."""
        self._tick = tick
        wanted = sorted(self._receiving.wanted, key=lambda piece: (-piece.total, piece.path))
        with ThreadPoolExecutor(self._jobs, "mirror") as pool:
            left = {pool.submit(self._fetch, piece) for piece in wanted}
            try:
                while left:
                    done, left = wait(left, self._source.renew_s, FIRST_EXCEPTION)
                    for one in done:
                        one.result()
                    if left:
                        self._source.renew()
            finally:
                self._halted = True
                for one in left:
                    one.cancel()

    def _fetch(self, piece: Piece) -> None:
        if self._halted or self._stopping():
            raise Stopped
        with self._receiving.incoming(piece, self._blocks(piece) if piece.is_column else None) as file:
            while not file.is_complete():
                self._go_on(piece.path, lambda at: self._into(file, piece, at), lambda: file.length)

    def _blocks(self, piece: Piece) -> U64:
        """The block table of a column, from here or from there."""
        found = self._receiving.table(piece)
        if found is None:
            data = bytearray()
            while len(data) < piece.table_bytes:
                self._go_on(piece.paths[1], lambda at: self._table_into(data, piece, at), lambda: len(data))
            found = self._receiving.put_table(piece, bytes(data))
        return found

    def _into(self, file: Incoming, piece: Piece, at: int) -> None:
        for part in self._parts(piece.path, at):
            file.write(part)

    def _table_into(self, data: bytearray, piece: Piece, at: int) -> None:
        for part in self._parts(piece.paths[1], at):
            data += part
            if len(data) > piece.table_bytes:
                raise damaged(f"{piece.paths[1]}: more than the {piece.table_bytes} bytes that it can have")

    def _parts(self, path: str, at: int) -> Iterator[bytes]:
        for part in self._source.read(path, at):
            if self._halted or self._stopping():
                raise Stopped
            with self._turn:
                self.fetched_bytes += len(part)
                self._tick(len(part))
            self._pace(len(part))
            yield part

    def _go_on(self, path: str, read: Callable[[int], None], length: Callable[[], int]) -> None:
        """Read once more from where we are. As long as some bytes come each time, a bad line is no reason to give up."""
        wait_s, at = FIRST_PAUSE_S, length()
        for left in reversed(range(TRIES)):
            try:
                read(at)
                if length() == at:
                    raise PeerLost(f"{path}: the source sends nothing after {at} bytes")
                return
            except PeerLost:
                if length() > at:
                    return
                if not left:
                    raise
            self._pause(wait_s)
            wait_s *= 2
