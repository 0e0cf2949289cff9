"""Fetches the files of a state that must travel, some at a time, each checked as it comes; what breaks off is continued.

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
from shepherd.store.mirror.file_transfer import FileTransfer
from shepherd.store.mirror.manifest import RemoteFile, damage_at_source
from shepherd.store.mirror.state_transfer import StateTransfer

TRIES: Final = 3  # at one place of a file; after each but the last a pause that doubles
FIRST_PAUSE_S: Final = 0.25


class Stopped(Exception):
    """Somebody asked us to stop; what has come stays for the next time."""


class FileSource(Protocol):
    """Where files come from. It keeps the state from being deleted there."""

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        """The file from an offset on, in small parts. PeerLost where it breaks off."""


class Downloads:
    def __init__(
        self,
        source: FileSource,
        state_transfer: StateTransfer,
        jobs: int,
        stopping: Callable[[], bool],
        pause: Callable[[float], object],
        pace: Callable[[int], object],
    ) -> None:
        self._source, self._state_transfer, self._jobs = source, state_transfer, jobs
        self._stopping, self._pause, self._pace = stopping, pause, pace
        self._turn = threading.Lock()
        self._halted = False
        self._tick: Callable[[int], object] = lambda more: None
        self.fetched_bytes = 0

    def run(self, tick: Callable[[int], object]) -> None:
        """Fetch all that is wanted, the longest first; the first failure ends all."""
        self._tick = tick
        remote_files = sorted(self._state_transfer.to_fetch, key=lambda remote: (-remote.total, remote.path))
        with ThreadPoolExecutor(self._jobs, "mirror") as pool:
            running = {pool.submit(self._fetch, remote) for remote in remote_files}
            try:
                while running:
                    ended, running = wait(running, return_when=FIRST_EXCEPTION)
                    for download in ended:
                        download.result()
            finally:
                self._halted = True
                for download in running:
                    download.cancel()

    def _fetch(self, remote: RemoteFile) -> None:
        if self._halted or self._stopping():
            raise Stopped
        with self._state_transfer.file_transfer(remote, self._blocks(remote) if remote.is_column else None) as file:
            while not file.is_complete():
                self._read_once_more(remote.path, lambda offset: self._into(file, remote, offset), lambda: file.length)

    def _blocks(self, remote: RemoteFile) -> U64:
        """The block table of a column, from here or from there."""
        blocks = self._state_transfer.table(remote)
        if blocks is None:
            data = bytearray()
            while len(data) < remote.table_bytes:
                self._read_once_more(remote.paths[1], lambda offset: self._table_into(data, remote, offset), lambda: len(data))
            blocks = self._state_transfer.put_table(remote, bytes(data))
        return blocks

    def _into(self, file: FileTransfer, remote: RemoteFile, offset: int) -> None:
        for part in self._parts(remote.path, offset):
            file.write(part)

    def _table_into(self, data: bytearray, remote: RemoteFile, offset: int) -> None:
        for part in self._parts(remote.paths[1], offset):
            data += part
            if len(data) > remote.table_bytes:
                raise damage_at_source(f"more than the {remote.table_bytes} bytes that it can have", remote.paths[1])

    def _parts(self, path: str, offset: int) -> Iterator[bytes]:
        for part in self._source.read(path, offset):
            if self._halted or self._stopping():
                raise Stopped
            with self._turn:
                self.fetched_bytes += len(part)
                self._tick(len(part))
            self._pace(len(part))
            yield part

    def _read_once_more(self, path: str, read: Callable[[int], None], length: Callable[[], int]) -> None:
        """Read once more from where we are. As long as some bytes come each time, a bad line is no reason to give up."""
        wait_s, offset = FIRST_PAUSE_S, length()
        for tries_left in reversed(range(TRIES)):
            try:
                read(offset)
                if length() == offset:
                    raise PeerLost(f"{path}: the source sends nothing after {offset} bytes")
                return
            except PeerLost:
                if length() > offset:
                    return
                if not tries_left:
                    raise
            self._pause(wait_s)
            wait_s *= 2
