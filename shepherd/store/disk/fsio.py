"""Every call that changes a file system goes through here: the one seam for syncs, renames and injected faults.

The rules, each learnt from a power cut on a real file system:
- a file is synced before it is renamed or linked into place; a directory is synced after rename, link, create and unlink in it;
- a failed sync is final: it is never retried, because the kernel may then claim success for bytes it has dropped;
- bytes are written only into files with one link and a write bit; a file is sealed (synced, 0444) before its second link.

The calls themselves are methods of `Ops` (ops.py). `use` puts another object in their place: one that fails where a failpoint
says so (failpoints.py), or one that records them, so that a test can make every disk that a power cut might have left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shepherd.errors import CHECK_LISTS, Corruption, IoFailed, NoSpace, too_few_descriptors
from shepherd.store.disk import kinds
from shepherd.store.disk.opening import open_file, open_regular, read_at, reading
from shepherd.store.disk.ops import Ops

if TYPE_CHECKING:
    from shepherd.formats.check import Bytes

COPY_BYTES = 1 << 22
_ops = Ops()


def use(ops: Ops) -> Ops:
    """From now on these calls; the ones before."""
    global _ops
    before, _ops = _ops, ops
    return before


@contextlib.contextmanager
def typed_errors(path: Path) -> Iterator[None]:
    """OSError becomes the error whose exit status says what happened."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"{path}: no space left; free some and run the same program again: nothing was lost") from error
        if (too_few := too_few_descriptors(error)) is not None:
            raise too_few from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise IoFailed(f"{error.strerror}; nothing was changed: run as a user who may write there", path) from error
        raise IoFailed(f"{error.strerror}; the last state is intact, look at the disk before you continue", path) from error


# --- files ------------------------------------------------------------------------------------------------------


class AppendFile:
    """A file being appended to. Bytes count only after `sync`; after `seal` nobody may write it again."""

    def __init__(self, path: Path, length: int | None = None) -> None:
        """Create the file, or (with `length`, what a rollback left) continue it."""
        self.path = path
        with typed_errors(path):
            self._fd = _ops.create(path) if length is None else os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        status = os.fstat(self._fd)
        if status.st_nlink != 1 or not status.st_mode & 0o200 or status.st_size != (length or 0):
            os.close(self._fd)
            raise Corruption(f"not a file to append to (sealed, linked, or of length {status.st_size}, not {length or 0})", path)
        self.length = length or 0

    def write(self, *parts: Bytes) -> None:
        data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts)).cast("B")
        written = 0
        with typed_errors(self.path):
            while written < len(data):
                written += _ops.write(self.path, self._fd, data[written:], self.length + written)
        self.length += len(data)

    def sync(self) -> None:
        """After this the bytes are durable. A disk that lost what it took is found out here, before anybody counts on it."""
        with typed_errors(self.path):
            _ops.sync(self.path, self._fd)
            size = os.fstat(self._fd).st_size
        if size != self.length:
            raise Corruption(f"{size} bytes, but {self.length} were written: the file system lost data", self.path)

    def hide(self) -> None:
        """Nobody but its owner may read it from now on."""
        with typed_errors(self.path):
            _ops.chmod(self.path, self._fd, 0o600)

    def seal(self) -> None:
        """Read-only and synced: from now on it may have more links."""
        with typed_errors(self.path):
            _ops.chmod(self.path, self._fd, 0o444)
        self.sync()
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_to_write(path: Path) -> int:
    """A descriptor of what counts in no state and is never synced, made if it is not there: a lock. OSError says why not."""
    return open_file(path, os.O_RDWR | os.O_CREAT)


def open_to_append(path: Path) -> BinaryIO:
    """The same for a log of lines."""
    return open(open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+b", buffering=0)


def write_file(path: Path, data: Bytes) -> None:
    """A whole new file, sealed. Its directory still wants a sync."""
    file = AppendFile(path)
    try:
        file.write(data)
        file.seal()
    finally:
        file.close()


def copy_file(source: Path, target: Path, appendable: bool = False) -> None:
    """A new file with the bytes of another one, sealed, or to be appended to. Its directory still wants a sync."""
    file = AppendFile(target)
    fd = -1
    try:
        fd = open_regular(source)
        while data := read_at(source, fd, COPY_BYTES, file.length):
            file.write(data)
        file.sync() if appendable else file.seal()
    finally:
        file.close()
        if fd >= 0:
            os.close(fd)


def replace_file(path: Path, data: Bytes, private: bool = False) -> None:
    """Put a small file in place at once and durably: write beside it, sync, rename, sync the directory.

    A private one is for its owner alone, before the first byte is in it.
    """
    beside = path.with_name(f".{path.name}.tmp")
    unlink(beside)
    try:
        _write_synced(beside, data, private)
        rename(beside, path)
    except BaseException:
        with contextlib.suppress(IoFailed, NoSpace):  # the error that is raised already counts
            unlink(beside)
        raise


def swap_file(path: Path, data: Bytes) -> None:
    """Put a small file in place at once, but not durably: for what informs about the moment, and need not outlive a crash."""
    beside = path.with_name(f".{path.name}.tmp")
    unlink(beside)
    file = AppendFile(beside)
    try:
        file.write(data)
    finally:
        file.close()
    with typed_errors(path):
        _ops.rename(beside, path)


def _write_synced(path: Path, data: Bytes, private: bool) -> None:
    file = AppendFile(path)
    try:
        if private:
            file.hide()
        file.write(data)
        file.sync()
    finally:
        file.close()


def seal(path: Path) -> None:
    """Sync a file and make it read-only; what a link leads to may be anybody's, and is left alone."""
    with typed_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Corruption("asked to seal what is not a file", path)
            _ops.chmod(path, fd, 0o444)
            _ops.sync(path, fd)
        finally:
            os.close(fd)


def restore_mode(path: Path, mode: int) -> None:
    """Give a file or directory the mode that it must have. One that is closed even to its owner is opened first."""
    with typed_errors(path):
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(path, flags)
        except PermissionError:
            os.chmod(path, mode)
            fd = os.open(path, flags)
        try:
            _ops.chmod(path, fd, mode)
            _ops.sync(path, fd)
        finally:
            os.close(fd)


def sync_file(path: Path) -> None:
    """Make durable what somebody else has written."""
    _sync(path, os.O_NOFOLLOW)


def _sync(path: Path, flags: int) -> None:
    with typed_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            _ops.sync(path, fd)
        finally:
            os.close(fd)


def truncate(path: Path, length: int) -> None:
    """Cut a file and sync it, if it is longer; a file that is shorter cannot be helped."""
    with typed_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            if size < length:
                raise Corruption(f"{size} bytes, but {length} were durable: the file system lost data", path)
            if size > length:
                _ops.truncate(path, fd, length)
            _ops.sync(path, fd)
        finally:
            os.close(fd)


# --- names ------------------------------------------------------------------------------------------------------


def is_directory(path: Path) -> bool:
    """A directory, and no link to one: what a link leads to may be anybody's."""
    with reading(path), contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.lstat(path).st_mode)
    return False


def open_directory(path: Path) -> int:
    """A descriptor of a directory."""
    with typed_errors(path):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def sync_directory(path: Path) -> None:
    _sync(path, os.O_DIRECTORY)


def add_directory(path: Path) -> None:
    """A new directory. Its parent still wants a sync."""
    with typed_errors(path):
        _ops.mkdir(path)


def add_private_directory(path: Path) -> None:
    """The same, for its owner alone: whoever opens it before the mode is set finds nothing in it."""
    add_directory(path)
    with typed_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _ops.chmod(path, fd, 0o700)
        finally:
            os.close(fd)


def close_to_others(path: Path) -> None:
    """Nobody may look into a directory but its owner and its group; who does not own it can only leave it as it is."""
    with typed_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            if mode & 0o007:
                with contextlib.suppress(PermissionError):
                    _ops.chmod(path, fd, mode & ~0o007)
        finally:
            os.close(fd)


def make_directory(path: Path) -> None:
    """A directory, and its name durable; also one that is there already: who made it may have been killed before the sync."""
    if not path.is_dir():
        add_directory(path)
    sync_directory(path.parent)


def rename(source: Path, target: Path) -> None:
    """The commit point of everything: after this returns, the new name is durable."""
    with typed_errors(target):
        _ops.rename(source, target)
    sync_directory(target.parent)


def link(source: Path, target: Path) -> None:
    """A further name for a sealed file. The directory still wants a sync."""
    with typed_errors(target):
        mode = kinds.mode_at(source)
        if not stat.S_ISREG(mode):
            raise Corruption("the file is missing", source, advice=CHECK_LISTS)
        if mode & 0o222:
            raise Corruption("asked to link a file that is not sealed", source)
        _ops.link(source, target)


def unlink(path: Path) -> None:
    """Remove a name; one that is gone already is fine. The directory still wants a sync where that matters."""
    with typed_errors(path), contextlib.suppress(FileNotFoundError):
        _ops.unlink(path)


def remove_tree(path: Path) -> bool:
    """Remove a directory that is already out of sight (`.tmp`, `.gone`), whatever is in it; whether it is gone.

    NFS and FUSE hide a file that somebody has open or mapped instead of deleting it, and keep its directory for as long. That
    is then left to whoever next removes what killed programs left.
    """
    with typed_errors(path):
        if path.is_symlink() or not path.is_dir():  # somebody else's doing; its name alone is ours
            _ops.unlink(path)
            return True
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):  # in an order that a test can repeat
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                with contextlib.suppress(*([OSError] if kinds.is_hidden_file(entry.name) else [])):  # NFS: it is busy
                    _ops.unlink(Path(entry.path))
        try:
            _ops.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY) or not _is_held(path):
                raise
            return False
    return True


def _is_held(directory: Path) -> bool:
    """Whether all that is left in it are files that are deleted and still open, and directories of such files."""
    entries = list(os.scandir(directory))
    return bool(entries) and all(
        _is_held(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else kinds.is_hidden_file(entry.name)
        for entry in entries
    )
