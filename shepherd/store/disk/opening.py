"""How files of a database are opened: nothing is waited for, no link is followed, and what is no file counts as missing.

Reading changes nothing, so it needs no seam for tests; what changes a file system is fsio.py's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from shepherd.errors import IoFailed, ShepherdError, too_few_descriptors
from shepherd.store.disk import kinds


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """OSError becomes IoFailed that names the file. A missing file is no failure of the disk: the caller knows what it means.

    So is one below something that is no directory.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise kinds.NotAFile(path, 0) from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ShepherdError:
    if (too_few := too_few_descriptors(error)) is not None:
        return too_few
    if error.errno in (errno.EACCES, errno.EPERM):
        return IoFailed(
            f"it cannot be read ({error.strerror}): run as its owner; a mode that was lost shep-recover restores", path
        )
    return IoFailed(f"it cannot be read ({error.strerror}); look at the disk before you continue", path)


def open_regular(path: Path) -> int:
    """A descriptor for `read_at`: the only way in which files of a database are opened to be read.

    Nothing is waited for, and no link is followed: a pipe, a socket, a device, a directory or a link is NotAFile, and so is a
    file below something that is no directory.
    """
    with reading(path):
        return open_file(path, os.O_RDONLY)


def open_stream(path: Path) -> BufferedReader:
    """The same for who reads a file line by line, or piece by piece."""
    return open(open_regular(path), "rb")


def open_file(path: Path, flags: int) -> int:
    """Whatever stands there is not waited for: a pipe would be, for ever."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    except FileNotFoundError:
        raise
    except OSError as error:
        mode = kinds.mode_at(path)
        if error.errno == errno.ENOTDIR or (mode and not stat.S_ISREG(mode)):
            raise kinds.NotAFile(path, mode) from None
        raise
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise kinds.NotAFile(path, mode)
    return fd


def read_at(path: Path, fd: int, length: int, offset: int) -> bytes:
    """Some bytes of an open file; fewer at its end. A sector that fails is an error; in a mapping it kills the process."""
    try:  # written out: a context manager costs as much as the read
        return os.pread(fd, length, offset)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_file(path: Path) -> bytes:
    """A whole small file."""
    with open_stream(path) as file, reading(path):
        return file.read()


def files_below(root: Path) -> Iterator[Path]:
    """Every file below a directory, by name; links are not followed. What is closed to us has none; what a failing disk does not
    show is IoFailed, and not taken for empty.
    """

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            raise _unreadable(Path(error.filename or root), error) from error

    for directory, below, files in os.walk(root, onerror=fail):
        below.sort()
        yield from (Path(directory, name) for name in sorted(files))
