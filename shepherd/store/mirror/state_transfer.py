"""A state that is received file by file into N.tmp, and becomes one by one rename, as if it had been built here.

Every file is either linked from a state that is here already (same path, length and check: sealed files never change) or comes in
through `FileTransfer`, which seals it only when it is what control says. So a transfer may be killed anywhere: whatever stands in
N.tmp then, even where it was meant for an older state, is used further after it has been checked: nothing is believed for being
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
from shepherd.store.disk import fsio, names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.mirror.file_transfer import FileTransfer
from shepherd.store.mirror.manifest import RemoteFile, damage_at_source, remote_files
from shepherd.store.state import logs
from shepherd.store.state.columns import Column
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import State, commit


class LocalFiles:
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

    def find(self, remote: RemoteFile) -> Path | None:
        """The state that has this file, with the length that it must have."""
        for state in self._states:
            has = state.control.files.get(remote.path) == remote.entry and _are_there(state.path, remote)
            if has and (not self._verify or self._is_sound(state.path, remote)):
                return state.path
        return None

    def _is_sound(self, directory: Path, remote: RemoteFile) -> bool:
        inode = os.lstat(directory / remote.path).st_ino
        if inode not in self._sound:
            self._sound[inode] = _checks(directory, remote)
        return self._sound[inode]


def _checks(directory: Path, remote: RemoteFile) -> bool:
    """Every byte of a file against what control says."""
    if not remote.is_column:
        return logs.entry_of(directory / remote.path) == remote.entry
    try:
        return not any(True for _offset in Column(directory / remote.path, remote.dtype, remote.entry).bad_blocks())
    except Corruption:  # of its block table
        return False


def _are_there(directory: Path, remote: RemoteFile) -> bool:
    lengths = (remote.entry.length, remote.table_bytes)
    if not fsio.is_directory((directory / remote.path).parent):
        return False
    for path, length in zip(remote.paths, lengths, strict=False):
        try:
            status = os.lstat(directory / path)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o222 or status.st_size != length:
            return False
    return True


class StateTransfer:
    """One state on its way into this database. The lock is held; `publish` is the commit."""

    def __init__(self, writer: Writer, control: Control, data: bytes) -> None:
        """`data` is the control file itself, which `manifest.judge` has read as `control`."""
        self._writer, self._data = writer, data
        self._root = writer.database.states_path
        self.name = StateName(control.state, control.phase)
        self.path = self._root / names.tmp(control.state)
        self._remote_files = remote_files(control)
        self.linked: list[RemoteFile] = []
        self.to_fetch: list[RemoteFile] = []  # what must travel, or the rest of it

    def begin(self, local_files: LocalFiles) -> None:
        """Take over what an earlier try left, drop the rest of it, and link all that is here already."""
        self._adopt()
        self._writer.remove_leftovers(but=self.path.name)
        for directory in (self.path, *(self.path / name for name in (*tables.TABLES, names.OBJECTS))):
            if not fsio.is_directory(directory):
                _make_way(directory)
                fsio.add_directory(directory)
        self._sweep()
        for remote in self._remote_files:
            owner = local_files.find(remote)
            if owner is None:
                self._leave_only_ours(remote)
                self.to_fetch.append(remote)
            else:
                self._link(owner, remote)
                self.linked.append(remote)

    def _adopt(self) -> None:
        """An older state's unfinished transfer serves this one: most files are the same, and each is checked."""
        numbers = (number for entry in os.listdir(self._root) if (number := names.parse_tmp(entry)) is not None)
        unfinished = [number for number in numbers if fsio.is_directory(self._root / names.tmp(number))]
        if unfinished and not fsio.is_directory(self.path):
            _make_way(self.path)
            fsio.rename(self._root / names.tmp(max(unfinished)), self.path)

    def _sweep(self) -> None:
        """Remove what this state does not have. Control, too: it is written last."""
        expected = {path for remote in self._remote_files for path in remote.paths}
        directories = (*tables.TABLES, names.OBJECTS)
        for entry in sorted(os.listdir(self.path)):
            if entry in directories:
                for below in sorted(os.listdir(self.path / entry)):
                    if f"{entry}/{below}" not in expected:
                        fsio.remove_tree(self.path / entry / below)
            elif entry not in expected:
                fsio.remove_tree(self.path / entry)

    def _link(self, owner: Path, remote: RemoteFile) -> None:
        for path in remote.paths:
            target = self.path / path
            if not os.path.lexists(target) or not os.path.samestat(os.lstat(owner / path), os.lstat(target)):
                _make_way(target)
                fsio.link(owner / path, target)

    def _leave_only_ours(self, remote: RemoteFile) -> None:
        """A file of a state may be a damaged one, which must not be written; what has one link an earlier try has received."""
        for path in remote.paths:
            target = self.path / path
            if os.path.lexists(target) and not _is_ours(target):
                fsio.remove_tree(target)

    # --- what travels

    def missing_bytes(self) -> int:
        """How much is still to come, if all that is there proves good."""
        there = sum(_length(self.path / path) for remote in self.to_fetch for path in remote.paths)
        return max(sum(remote.total for remote in self.to_fetch) - there, 0)

    def ask_room(self) -> None:
        """NoSpace unless all that is to come has room. Nothing of it has been asked for yet."""
        disk, missing = os.statvfs(self._root), self.missing_bytes()
        free = disk.f_bavail * disk.f_frsize
        if missing > free:
            raise NoSpace(
                f"{self._root}: state {self.name.number} needs {missing:,} bytes more, and {free:,} are free; "
                "make room and run the same command again"
            )

    def table(self, remote: RemoteFile) -> U64 | None:
        """The block table of a column, if it is here and checks."""
        path = self.path / remote.paths[1]
        if _length(path) == remote.table_bytes and os.path.lexists(path):
            data = opening.read_file(path)
            if check64(data) == remote.entry.check and not os.lstat(path).st_mode & 0o222:
                fsio.sync_file(path)  # its writer may have been killed before it came to that
                return np.frombuffer(data, "<u8")
        return None

    def put_table(self, remote: RemoteFile, data: bytes) -> U64:
        """The block table of a column, as it came."""
        path = self.path / remote.paths[1]
        if len(data) != remote.table_bytes or check64(data) != remote.entry.check:
            raise damage_at_source("what came is not the block table that control has the check of", remote.paths[1])
        fsio.unlink(path)
        fsio.write_file(path, data)
        return np.frombuffer(data, "<u8")

    @contextmanager
    def file_transfer(self, remote: RemoteFile, blocks: U64 | None) -> Iterator[FileTransfer]:
        file = FileTransfer(self.path / remote.path, remote, blocks)
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
            fsio.rename(final, self._root / names.gone_state(self.name))  # killed here, the next round continues with N.tmp
            state = commit(self.path, final)
        fsio.remove_tree(self._root / names.gone_state(self.name))
        return state


def _make_way(path: Path) -> None:
    """Whatever has this name goes; of a link, the link."""
    if os.path.lexists(path):
        fsio.remove_tree(path)


def _is_ours(path: Path) -> bool:
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _length(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0
