"""A state that is received file by file into N.tmp, and becomes one by one rename, as if it had been built here.

Every file is either linked from a state that is here already (same path, length and check: sealed files never change) or comes in
through `Incoming`, which seals it only when it is what control says. So a transfer may be killed anywhere: whatever stands in
N.tmp then, even where it was meant for an older state, is gone on with after it has been checked: nothing is believed for being
there. No link is followed: one in the place of a directory or file of N.tmp is removed, and one in a state that is here has
nothing that could be linked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from shepherd.errors import Corruption, Locked, NoSpace, UsageError
from shepherd.formats import tables
from shepherd.formats.check import check64
from shepherd.formats.control import Control
from shepherd.formats.tables import U64
from shepherd.store.disk import fsio, names
from shepherd.store.disk.names import StateName
from shepherd.store.mirror.file_transfer import Incoming
from shepherd.store.mirror.manifest import Piece, damaged, pieces
from shepherd.store.state import logs
from shepherd.store.state.columns import Column
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import State, commit


class Stock:
    """The sealed files of the states that are here, newest first: what need not travel. With `verify` every byte is read."""

    def __init__(self, database: Database | None, verify: bool = False) -> None:
        self._verify, self._sound = verify, dict[int, bool]()  # by inode
        self._states: list[State] = []
        for name in reversed(database.states() if database is not None else []):
            if name.closed:
                assert database is not None
                try:
                    self._states.append(database.open(name))
                except (Corruption, UsageError):
                    continue  # damaged, or of an older format: all that it has travels again

    def find(self, piece: Piece) -> Path | None:
        """The state that has this file, with the length that it must have."""
        for state in self._states:
            has = state.control.files.get(piece.path) == piece.entry and _are_there(state.path, piece)
            if has and (not self._verify or self._is_sound(state.path, piece)):
                return state.path
        return None

    def _is_sound(self, directory: Path, piece: Piece) -> bool:
        inode = os.lstat(directory / piece.path).st_ino
        if inode not in self._sound:
            self._sound[inode] = _checks(directory, piece)
        return self._sound[inode]


def _checks(directory: Path, piece: Piece) -> bool:
    """Every byte of a file against what control says."""
    if not piece.is_column:
        return logs.entry_of(directory / piece.path) == piece.entry
    try:
        return not any(True for _offset in Column(directory / piece.path, piece.dtype, piece.entry).bad_blocks())
    except Corruption:  # of its block table
        return False


def _are_there(directory: Path, piece: Piece) -> bool:
    lengths = (piece.entry.length, piece.table_bytes)
    if not fsio.is_directory((directory / piece.path).parent):
        return False
    for path, length in zip(piece.paths, lengths, strict=False):
        try:
            found = os.lstat(directory / path)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o222 or found.st_size != length:
            return False
    return True


class Receiving:
    """One state on its way into this database. The lock is held; `publish` is the commit."""

    def __init__(self, writer: Writer, control: Control, data: bytes) -> None:
        """`data` is the control file itself, which `offered.judge` has read as `control`."""
        self._writer, self._data = writer, data
        self._root = writer.database.states_path
        self.name = StateName(control.state, control.phase)
        self.path = self._root / names.tmp(control.state)
        self._pieces = pieces(control)
        self.linked: list[Piece] = []
        self.wanted: list[Piece] = []  # what must travel, or go on travelling

    def begin(self, stock: Stock) -> None:
        """Take over what an earlier try left, drop the rest of it, and link all that is in stock."""
        self._adopt()
        self._writer.remove_leftovers(but=self.path.name)
        for directory in (self.path, *(self.path / name for name in (*tables.TABLES, names.OBJECTS))):
            if not fsio.is_directory(directory):
                _make_way(directory)
                fsio.add_directory(directory)
        self._sweep()
        for piece in self._pieces:
            owner = stock.find(piece)
            if owner is None:
                self._leave_only_ours(piece)
                self.wanted.append(piece)
            else:
                self._link(owner, piece)
                self.linked.append(piece)

    def _adopt(self) -> None:
        """An older state's unfinished transfer serves this one: most files are the same, and each is checked."""
        found = (number for entry in os.listdir(self._root) if (number := names.parse_tmp(entry)) is not None)
        left = [number for number in found if fsio.is_directory(self._root / names.tmp(number))]
        if left and not fsio.is_directory(self.path):
            _make_way(self.path)
            fsio.rename(self._root / names.tmp(max(left)), self.path)

    def _sweep(self) -> None:
        """Remove what this state does not have. Control, too: it is written last."""
        expected = {path for piece in self._pieces for path in piece.paths}
        directories = (*tables.TABLES, names.OBJECTS)
        for entry in sorted(os.listdir(self.path)):
            if entry in directories:
                for below in sorted(os.listdir(self.path / entry)):
                    if f"{entry}/{below}" not in expected:
                        fsio.remove_tree(self.path / entry / below)
            elif entry not in expected:
                fsio.remove_tree(self.path / entry)

    def _link(self, owner: Path, piece: Piece) -> None:
        for path in piece.paths:
            target = self.path / path
            if not os.path.lexists(target) or not os.path.samestat(os.lstat(owner / path), os.lstat(target)):
                _make_way(target)
                fsio.link(owner / path, target)

    def _leave_only_ours(self, piece: Piece) -> None:
        """A file of a state may be a damaged one, which must not be written; what has one link an earlier try has received."""
        for path in piece.paths:
            target = self.path / path
            if os.path.lexists(target) and not _is_ours(target):
                fsio.remove_tree(target)

    # --- what travels

    def missing_bytes(self) -> int:
        """How much is still to come, if all that is there proves good."""
        there = sum(_length(self.path / path) for piece in self.wanted for path in piece.paths)
        return max(sum(piece.total for piece in self.wanted) - there, 0)

    def ask_room(self) -> None:
        """NoSpace unless all that is to come has room. Nothing of it has been asked for yet."""
        disk, missing = os.statvfs(self._root), self.missing_bytes()
        free = disk.f_bavail * disk.f_frsize
        if missing > free:
            raise NoSpace(
                f"{self._root}: state {self.name.number} needs {missing:,} bytes more, and {free:,} are free; "
                "make room and run the same command again"
            )

    def table(self, piece: Piece) -> U64 | None:
        """The block table of a column, if it is here and checks."""
        path = self.path / piece.paths[1]
        if _length(path) == piece.table_bytes and os.path.lexists(path):
            data = fsio.read_file(path)
            if check64(data) == piece.entry.check and not os.lstat(path).st_mode & 0o222:
                fsio.sync_file(path)  # its writer may have been killed before it came to that
                return np.frombuffer(data, "<u8")
        return None

    def put_table(self, piece: Piece, data: bytes) -> U64:
        """The block table of a column, as it came."""
        path = self.path / piece.paths[1]
        if len(data) != piece.table_bytes or check64(data) != piece.entry.check:
            raise damaged(f"{piece.paths[1]}: what came is not the block table that control has the check of")
        fsio.unlink(path)
        fsio.write_file(path, data)
        return np.frombuffer(data, "<u8")

    @contextmanager
    def incoming(self, piece: Piece, blocks: U64 | None) -> Iterator[Incoming]:
        file = Incoming(self.path / piece.path, piece, blocks)
        try:
            yield file
        finally:
            file.close()

    def publish(self, now: int) -> State:
        """All has come: control, then the one rename that makes it a state. A damaged state of its name makes room first."""
        fsio.write_file(self.path / names.CONTROL, self._data)
        final = self._root / str(self.name)
        if not os.path.lexists(final):
            return commit(self.path, final)
        leases = self._writer.database.leases
        with leases.locked():
            holders = [lease for lease in leases.all() if lease.state == self.name.number and lease.holds(now)]
            if holders:
                raise Locked(f"{final}: damaged, but {holders[0].owner} leases it ({holders[0].purpose}); run this again later")
            fsio.rename(final, self._root / names.gone_state(self.name))  # killed here, the next round goes on with N.tmp
            made = commit(self.path, final)
        fsio.remove_tree(self._root / names.gone_state(self.name))
        return made


def _make_way(path: Path) -> None:
    """Whatever has this name goes; of a link, the link."""
    if os.path.lexists(path):
        fsio.remove_tree(path)


def _is_ours(path: Path) -> bool:
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _length(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0
