"""One file that comes from elsewhere: taken in order, checked as it comes, sealed when it is what control says.

A column is checked block by block, and no block is written that does not check. A segment or log has one check for all of it:
it is written as it comes, and judged at the end. What an earlier try left of either is read before anything is put behind it.
"""

from __future__ import annotations

import os
from pathlib import Path

from shepherd.formats.check import BLOCK, Bytes, Checker, check64
from shepherd.formats.tables import U64
from shepherd.store.disk import fsio, opening
from shepherd.store.mirror.manifest import RemoteFile, damage_at_source


class FileTransfer:
    """`write` what comes from `length` on, until `is_complete`."""

    def __init__(self, path: Path, remote: RemoteFile, blocks: U64 | None) -> None:
        """`blocks` is the block table of a column, checked; None for other files."""
        self._path, self._remote, self._blocks = path, remote, blocks
        self._pending = bytearray()  # of a column: the start of a block
        self._checker = Checker()  # of another file: all of it so far
        self._sealed = False
        self._file: fsio.AppendFile | None = None
        length = self._take_over()
        self._resumed = length > 0
        if not self._sealed:
            self._file = fsio.AppendFile(path, length if length or path.exists() else None)

    @property
    def length(self) -> int:
        """How much is here: where the next bytes belong."""
        return self._remote.entry.length if self._file is None else self._file.length + len(self._pending)

    def write(self, data: Bytes) -> None:
        if self.length + len(data) > self._remote.entry.length:
            raise damage_at_source(f"more than the {self._remote.entry.length} bytes that control has", self._remote.path)
        assert self._file is not None
        if self._blocks is None:
            self._checker.update(data)
            self._file.write(data)
            return
        view = memoryview(data)
        while view:
            take = min(BLOCK - len(self._pending), len(view))
            self._pending += view[:take]
            view = view[take:]
            if len(self._pending) == BLOCK or self.length == self._remote.entry.length:
                self._take_block()

    def _take_block(self) -> None:
        assert self._file is not None and self._blocks is not None
        offset = self._file.length
        if check64(self._pending) != int(self._blocks[offset // BLOCK]):
            self._pending.clear()
            raise damage_at_source("the block that came does not check", self._remote.path, offset)
        self._file.write(self._pending)
        self._pending.clear()

    def is_complete(self) -> bool:
        """Whether all is here; then it is checked and sealed. False, too, where what an earlier try left was bad: it is gone."""
        if self._sealed:
            return True
        if self.length < self._remote.entry.length:
            return False
        assert self._file is not None
        if self._blocks is None and self._checker.value() != self._remote.entry.check:
            fsio.unlink(self._path)
            if not self._resumed:
                raise damage_at_source("what came does not have the check that control has", self._remote.path)
            self._start_over()
            return False
        self._file.seal()
        self._sealed = True
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    # --- what an earlier try left

    def _take_over(self) -> int:
        """How much of what is there is good, or may be; the rest is cut off. Sealed, it is good as a whole or not at all."""
        try:
            fd = opening.open_regular(self._path)
        except FileNotFoundError:
            return 0
        try:
            status = os.fstat(fd)
            good = self._good(fd, status.st_size)
        finally:
            os.close(fd)
        sealed = not status.st_mode & 0o200
        whole = good == status.st_size == self._remote.entry.length
        if sealed and whole and (self._blocks is not None or self._checker.value() == self._remote.entry.check):
            fsio.sync_file(self._path)  # its writer may have been killed before it came to that
            self._sealed = True
        elif sealed or status.st_size > self._remote.entry.length:
            fsio.unlink(self._path)
            self._checker = Checker()
            return 0
        elif good < status.st_size:
            fsio.truncate(self._path, good)
        return good

    def _good(self, fd: int, size: int) -> int:
        """Of a column: the blocks from the front that check. Else all of it, which is only read."""
        offset = 0
        while offset < min(size, self._remote.entry.length):
            data = opening.read_at(self._path, fd, min(BLOCK, self._remote.entry.length - offset), offset)
            if not data:
                break
            if self._blocks is None:
                self._checker.update(data)
            elif check64(data) != int(self._blocks[offset // BLOCK]):
                break
            offset += len(data)
        return offset

    def _start_over(self) -> None:
        assert self._file is not None
        self._file.close()
        self._checker, self._resumed = Checker(), False
        self._file = fsio.AppendFile(self._path)
