"""Every call that changes a file system goes through here: the one seam for syncs, renames and injected faults.

The rules, each learnt from a power cut on a real file system:
- a file is synced before it is renamed or linked into place; a directory is synced after rename, link, create and unlink in it;
- a failed sync is final: it is never retried, because the kernel may then claim success for bytes it has dropped;
- bytes are written only into files with one link and a write bit; a file is sealed (synced, 0444) before its second link.

Failpoints: SHEPHERD_FAIL="op:name:ordinal=fault" makes the ordinal-th call of `op` on a path that ends in `name` fail.
op: write sync rename link unlink truncate mkdir; fault: kill eio enospc short pause.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import Corruption, IoFailed, Locked, NoSpace, UsageError
from shepherd.formats.check import Bytes

# --- failpoints -------------------------------------------------------------------------------------------------


@dataclass
class _Failpoint:
    op: str
    name: str
    ordinal: int
    fault: str
    seen: int = 0


def _read_failpoint(spec: str) -> _Failpoint | None:
    if not spec:
        return None
    try:
        where, fault = spec.split("=")
        op, name, ordinal = where.rsplit(":", 2) if where.count(":") > 1 else (*where.split(":"), "1")
        return _Failpoint(op, name, int(ordinal), fault)
    except ValueError:
        raise UsageError(f"SHEPHERD_FAIL={spec!r}: expected op:name:ordinal=fault") from None


_failpoint = _read_failpoint(os.environ.get("SHEPHERD_FAIL", ""))


def _fail(op: str, path: Path) -> bool:
    """Act out the failpoint if this is its call. True asks the caller for a short write."""
    point = _failpoint
    if point is None or point.op != op or not str(path).endswith(point.name):
        return False
    point.seen += 1
    if point.seen != point.ordinal:
        return False
    if point.fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if point.fault == "pause":
        time.sleep(3600)
    if point.fault in ("eio", "enospc"):
        code = errno.EIO if point.fault == "eio" else errno.ENOSPC
        raise OSError(code, os.strerror(code), str(path))
    return point.fault == "short"


@contextlib.contextmanager
def _typed(path: Path) -> Iterator[None]:
    """OSError becomes the error whose exit status tells the caller what happened."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"{path}: no space left; free some and run the same program again: nothing was lost") from error
        raise IoFailed(f"{path}: {error.strerror}; the last state is intact, look at the disk before going on") from error


# --- files ------------------------------------------------------------------------------------------------------


class AppendFile:
    """A file being appended to. Bytes count only after `sync`; after `seal` nobody may write it again."""

    def __init__(self, path: Path, length: int | None = None) -> None:
        """Create the file, or (with `length`, what a rollback left) go on with it."""
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL if length is None else os.O_WRONLY
        with _typed(path):
            self._fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        status = os.fstat(self._fd)
        if status.st_nlink != 1 or not status.st_mode & 0o200 or status.st_size != (length or 0):
            os.close(self._fd)
            raise Corruption(
                f"{path}: not a file to append to (sealed, linked, or of length {status.st_size}, not {length or 0})"
            )
        self.length = length or 0

    def write(self, *parts: Bytes) -> None:
        data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts)).cast("B")
        with _typed(self.path):
            short = _fail("write", self.path)
            done = 0
            while done < len(data):
                end = max(done + 1, len(data) // 2) if short else len(data)
                done += os.pwrite(self._fd, data[done:end], self.length + done)
        self.length += len(data)

    def sync(self) -> None:
        with _typed(self.path):
            _fail("sync", self.path)
            os.fsync(self._fd)

    def seal(self) -> None:
        """Read-only and synced: from now on it may have more links."""
        os.fchmod(self._fd, 0o444)
        self.sync()
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_file(path: Path, data: Bytes) -> None:
    """A whole new file, sealed. Its directory still wants a sync."""
    file = AppendFile(path)
    try:
        file.write(data)
        file.seal()
    finally:
        file.close()


def replace_file(path: Path, data: Bytes) -> None:
    """Put a small file in place at once and durably: write beside it, sync, rename, sync the directory."""
    beside = path.with_name(f".{path.name}.tmp")
    unlink(beside)
    file = AppendFile(beside)
    try:
        file.write(data)
        file.sync()
    finally:
        file.close()
    rename(beside, path)


def seal(path: Path) -> None:
    """Sync a file and make it read-only."""
    with _typed(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(fd, 0o444)
            _fail("sync", path)
            os.fsync(fd)
        finally:
            os.close(fd)


def truncate(path: Path, length: int) -> None:
    """Cut a file and sync it, if it is longer; a file that is shorter cannot be helped."""
    with _typed(path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            if size < length:
                raise Corruption(f"{path}: {size} bytes, but {length} were durable: the file system lost data")
            if size > length:
                _fail("truncate", path)
                os.ftruncate(fd, length)
            _fail("sync", path)
            os.fsync(fd)
        finally:
            os.close(fd)


# --- names ------------------------------------------------------------------------------------------------------


def sync_directory(path: Path) -> None:
    with _typed(path):
        _fail("sync", path)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def make_directory(path: Path) -> None:
    """A new directory, and its name durable."""
    with _typed(path):
        _fail("mkdir", path)
        path.mkdir()
    sync_directory(path.parent)


def rename(source: Path, target: Path) -> None:
    """The commit point of everything: after this returns, the new name is durable."""
    with _typed(target):
        _fail("rename", source)
        os.rename(source, target)
    sync_directory(target.parent)


def link(source: Path, target: Path) -> None:
    """A further name for a sealed file. The directory still wants a sync."""
    with _typed(target):
        _fail("link", target)
        if os.stat(source).st_mode & 0o222:
            raise Corruption(f"{source}: asked to link a file that is not sealed")
        os.link(source, target)


def unlink(path: Path) -> None:
    """Remove a name; one that is gone already is fine. The directory still wants a sync where that matters."""
    with _typed(path), contextlib.suppress(FileNotFoundError):
        _fail("unlink", path)
        os.unlink(path)


def remove_tree(path: Path) -> None:
    """Remove a directory that is already out of sight (`.tmp`, `.gone`), whatever is in it."""
    with _typed(path):
        _fail("unlink", path)
        if path.is_symlink() or not path.is_dir():  # somebody else's doing; its name alone is ours
            os.unlink(path)
            return
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                os.unlink(entry.path)
        os.rmdir(path)


# --- locks ------------------------------------------------------------------------------------------------------


class FileLock:
    """An flock that lasts as long as its descriptor, and a line in the file that says who holds it."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd, self.path = fd, path

    def release(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def lock(path: Path, what: str, wait: bool = False) -> FileLock:
    """Take the lock or raise Locked, naming the holder. Children do not inherit it unless it is passed on."""
    with _typed(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        holder = _holder(os.pread(fd, 200, 0).decode("utf-8", "replace").strip())
        os.close(fd)
        raise Locked(f"{path} is held by {holder}; wait for it to end, or stop it") from None
    text = f"{what}, pid {os.getpid()} on {socket.gethostname()}\n".encode()
    with contextlib.suppress(OSError):  # the text only informs: a full disk must not cost us the lock
        os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)
    return FileLock(fd, path)


def _holder(text: str) -> str:
    """Who holds a lock by what stands in its file: the one who took it, or one that it has passed it on to."""
    found = re.search(r", pid ([0-9]{1,10}) on (.+)", text)
    if found is None or found[2] != socket.gethostname():
        return text or "another program"
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return f"a program that {text} has started (that process itself has ended)"
    except (OSError, OverflowError):
        pass  # somebody else's, or no number that a process could have
    return text


def adopt_lock(fd: int, path: Path) -> FileLock:
    """A lock that our parent took and passed on as a descriptor."""
    try:
        ours, theirs = os.fstat(fd), os.stat(path)
    except OSError as error:
        raise UsageError(f"descriptor {fd} is not the lock {path}: {error.strerror}") from error
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        raise UsageError(f"descriptor {fd} is not the lock {path}")
    os.set_inheritable(fd, False)
    return FileLock(fd, path)
