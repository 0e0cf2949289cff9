"""Locks: one writer of states, one dispatcher of a harvest, one reader or deleter at the leases.

An flock lasts as long as its descriptor, so it can be passed on, and a killed program leaves none behind. A stopped one keeps it:
so nobody waits in silence, nor for ever. A lock may lie in a directory that others write, too: only what is empty or has the text
of a lock is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shepherd import clock, processes
from shepherd.errors import IoFailed, Locked, UsageError
from shepherd.store.disk import fsio, kinds, names, opening
from shepherd.store.disk.fsio import typed_errors
from shepherd.text import escape, iso_ms

_LOG: Final = logging.getLogger(__name__)
REPORT_S: Final = 2.0  # who waits for longer says for whom
WAIT_S: Final = 60.0  # who waits for longer gives up, unless `wait_at_most` has said otherwise
TEXT_BYTES = 200  # of the line in a lock file that says who holds it; always as many, so that nothing of an older one is left


class OddLock(UsageError):
    """What stands in the place of a lock is no file; of what a database has, shep-recover moves it aside."""


class FileLock:
    """An flock that lasts as long as its descriptor, and a line in the file that says who holds it."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd, self.path = fd, path

    def release(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


_wait_limits_s = [WAIT_S]


def wait_at_most(seconds: float) -> None:
    """From now on, in this process: who waits for a lock gives up after so long."""
    _wait_limits_s[:] = [seconds]


def lock(path: Path, what: str, wait: bool = False) -> FileLock:
    """Take the lock or raise Locked, naming the holder. Children do not inherit it unless it is passed on."""
    fd = _open(path)
    try:
        _take(fd, path, _wait_limits_s[0] if wait else 0.0)
        content = os.pread(fd, TEXT_BYTES + 1, 0)
    except Locked:
        os.close(fd)
        raise
    except OSError:
        os.close(fd)
        with typed_errors(path):
            raise
    if not _is_text(content):
        os.close(fd)
        raise UsageError(f"{path}: not a lock, but a file of somebody else; move it away and run this again")
    text = f"{what}, pid {os.getpid()} on {socket.gethostname()}"
    with contextlib.suppress(OSError):  # the text only informs: a full disk must not cost us the lock
        os.pwrite(fd, text.encode()[:TEXT_BYTES].ljust(TEXT_BYTES), 0)
    return FileLock(fd, path)


@contextlib.contextmanager
def turn(directory: Path) -> Iterator[None]:
    """Alone with a directory for a moment, without any file in it; in good faith on file systems that do not lock one."""
    fd = fsio.open_directory(directory)
    try:
        with contextlib.suppress(OSError):
            _take(fd, directory, _wait_limits_s[0])
        yield
    finally:
        os.close(fd)


def _take(fd: int, path: Path, limit_s: float) -> None:
    is_reported = False
    for waited_s in clock.tries(limit_s):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if waited_s >= REPORT_S and not is_reported:
                _LOG.warning("%s is held by %s; waiting for it, at most %.0f s", path, _holder(fd), limit_s)
                is_reported = True
    in_vain = f", and did not come free in {limit_s:.0f} s" if limit_s else ""
    raise Locked(f"{path} is held by {_holder(fd)}{in_vain}; wait for it to end, or stop it")


def _open(path: Path) -> int:
    """The file of a lock, made if it is not there. What a link leads to is not ours to write."""
    try:
        with typed_errors(path):
            return fsio.open_to_write(path)
    except IoFailed as error:
        if isinstance(error.__cause__, kinds.NotAFile):
            what = kinds.odd_file(path) or "something else"
            raise OddLock(f"{path}: {what}, where the file of a lock belongs; move it away and run this again") from error
        raise


def _is_text(data: bytes) -> bool:
    """Whether this is what `lock` leaves in a file; after a power cut that may be zeros."""
    return not data.strip(b"\0 ") or (len(data) <= TEXT_BYTES and re.search(rb", pid [0-9]+ on ", data) is not None)


def text_of(path: Path) -> str:
    """What the last one who took a lock has written into its file."""
    try:
        with opening.open_stream(path) as file:
            return file.read(TEXT_BYTES).decode("utf-8", "replace").strip()
    except (OSError, IoFailed):
        return ""


def _holder(fd: int) -> str:
    """Who holds a lock by what stands in its file: the one who took it, or one that it has passed it on to; and since when."""
    try:
        text = escape(os.pread(fd, TEXT_BYTES, 0).decode("utf-8", "replace").strip("\0 \n"))
    except IsADirectoryError:  # which has no text
        text = ""
    if is_taker_gone(text):
        return f"a program that {text} has started (that process itself has ended)"
    since = iso_ms(os.fstat(fd).st_mtime_ns // 1_000_000)  # it was written when the lock was taken
    return f"{text}{processes.facts(_pid_here(text))}, since {since}" if text else "another program"


def _pid_here(text: str) -> int | None:
    """The process that a text of a lock file names, if it is of this host."""
    match = re.search(r", pid ([0-9]{1,10}) on (.+)", text)
    return int(match[1]) if match and match[2] == socket.gethostname() else None


def is_taker_gone(text: str) -> bool:
    """Whether the process that this text of a lock file names ran on this host and has ended."""
    pid = _pid_here(text)
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # somebody else's, or no number that a process could have
    return False


def is_held(path: Path) -> bool | None:
    """Whether anybody holds a lock, found out without touching it; None where the system does not say."""
    try:
        status, table = os.lstat(path), opening.read_file(Path("/proc/locks")).decode()
    except FileNotFoundError:
        return None if path.exists() else False
    except (OSError, IoFailed):
        return None
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any("FLOCK" in line.split() and place in line.split() for line in table.splitlines())


def is_own_host(host: str) -> bool:
    """Whether this is the host, as it stands in names of ours, that we run on."""
    return host == names.host_part(socket.gethostname())


def is_gone(host: str, pid: int) -> bool:
    """Whether a process that ran on this host (as it stands in names of ours) has ended; of another host's nobody knows."""
    if not is_own_host(host):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # somebody else's, but there
    return False


def adopt_lock(fd: int, path: Path) -> FileLock:
    """A lock that our parent took and passed on as a descriptor."""
    try:
        ours, theirs = os.fstat(fd), os.lstat(path)
    except OSError as error:
        raise UsageError(f"descriptor {fd} is not the lock {path}: {error.strerror}") from error
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        raise UsageError(f"descriptor {fd} is not the lock {path}")
    os.set_inheritable(fd, False)
    return FileLock(fd, path)
