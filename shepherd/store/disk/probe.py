"""Whether a file system can carry a database, tried out before one is made: some network and USB file systems cannot."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shepherd.errors import IoFailed, Locked, NoSpace, ShepherdError, UsageError
from shepherd.store.disk import fsio, locks, names

PREFIX = ".probe-"  # of the directory that it is tried in; one that a killed program left goes with the next probe


def probe(path: Path) -> None:
    """Make `path` if it is not there, and try all that the store will ask of it. UsageError says what does not work."""
    unsure = _make(path)
    trial = path / f"{PREFIX}{os.getpid()}"
    try:
        for what, act in _abilities(trial, unsure):
            try:
                act()
            except NoSpace:
                raise
            except (ShepherdError, OSError) as error:
                if _errno(error) == errno.EIO:
                    raise  # a disk that fails says nothing about what its file system can do
                raise UsageError(
                    f"{path}: this file system will not do: it cannot {what} ({_reason(error)}); "
                    "give --db a directory on a local one, such as ext4 or xfs"
                ) from error
    except BaseException:
        with contextlib.suppress(ShepherdError, OSError):
            fsio.remove_tree(trial)
        raise
    fsio.remove_tree(trial)


def _make(path: Path) -> list[Path]:
    """The directory and all above it, without what an earlier probe left in it; the directories in which names may be new."""
    try:
        above = [path.absolute(), *path.absolute().parents]
        missing = [directory for directory in above if not directory.exists()]
        deepest = above[len(missing)]
        for directory in reversed(missing):
            (fsio.add_private_directory if directory == above[0] else fsio.add_directory)(directory)
        for old in path.glob(f"{PREFIX}*"):
            fsio.remove_tree(old)
        # Perhaps a killed init made the deepest, and its name is not durable yet.
        above_it = [deepest.parent] if not deepest.is_mount() and os.access(deepest.parent, os.W_OK) else []
        return [*above_it, *(directory.parent for directory in reversed(missing))]
    except (IoFailed, OSError) as error:
        if _errno(error) == errno.EIO:
            raise
        raise UsageError(f"{path}: cannot be made or written ({_reason(error)}); give --db a directory of your own") from error


def _abilities(trial: Path, unsure: list[Path]) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "make and sync directories", lambda: _settle(trial, unsure)
    yield "write and sync files", lambda: fsio.write_file(trial / "a", b"a")
    yield "make hard links", lambda: fsio.link(trial / "a", trial / "b")
    yield "rename directories", lambda: _rename(trial)
    yield "lock files", lambda: _lock(trial)


def _settle(trial: Path, unsure: list[Path]) -> None:
    for directory in unsure:
        fsio.sync_directory(directory)
    fsio.make_directory(trial)


def _rename(trial: Path) -> None:
    fsio.make_directory(trial / "d.tmp")
    fsio.write_file(trial / "d.tmp" / "a", b"a")
    fsio.rename(trial / "d.tmp", trial / "d")
    if not (trial / "d" / "a").exists():
        raise IoFailed("its files did not come along")


def _lock(trial: Path) -> None:
    first_lock = locks.lock(trial / names.LOCK, "probe")
    try:
        locks.lock(trial / names.LOCK, "probe").release()
    except Locked:
        return
    finally:
        first_lock.release()
    raise IoFailed("two programs got the same lock")


def _errno(error: BaseException) -> int | None:
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause.errno if isinstance(cause, OSError) else None


def _reason(error: BaseException) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__
    return (cause.strerror if isinstance(cause, OSError) else None) or str(error)
