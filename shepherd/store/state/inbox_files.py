"""The one way to what others have dropped into the inbox: regular files, and directories of them, opened without trust.

Whoever may drop chooses the kind, length, owner and mode of an item, and may change all of them while it is read.

Invariant: whatever stands there, no link is followed, nothing is waited for, and no more than a limit of it is held. What cannot
be read is a RefusedItem, of this item alone: its reader reports it, leaves it where it is, and continues with the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from shepherd.errors import Corruption, IoFailed
from shepherd.formats.frame import Frame
from shepherd.store.disk import kinds, names, opening
from shepherd.store.state import logs

MOST_BYTES: Final = 1 << 34  # of a file that is read piece by piece
MOST_HELD_BYTES: Final = 1 << 28  # of what is in memory at once: a frame, or all checkpoints of a harvest
MOST_FILES: Final = 1 << 17  # of a harvest
UNREADABLE: Final = "this user may not read it; it waits until somebody changes its mode or owner, or removes it"


class RefusedItem(Corruption):
    """An item, or a file of one, that cannot be taken as it is. It says nothing of our own disk or database."""


@contextmanager
def item_errors(path: Path) -> Iterator[None]:
    """Whatever keeps us from reading an item is a fault of the item."""
    try:
        yield
    except (OSError, IoFailed) as error:
        cause = error.__cause__ if isinstance(error, IoFailed) else error
        raise RefusedItem(_reason(cause), path) from error


@contextmanager
def open_item(path: Path, most: int = MOST_BYTES) -> Iterator[int]:
    """A descriptor of a file, for `opening.read_at`, while the block runs; what fails in the block is RefusedItem, too."""
    with item_errors(path):
        _must_be("a file", path, os.lstat(path))  # before it is opened: a device may do something then
        fd = opening.open_regular(path)
        try:
            size = os.fstat(fd).st_size
            if size > most:
                raise RefusedItem(f"{size} bytes, where at most {most} are read", path)
            _must_be_written(path, fd, size)
            yield fd
        finally:
            os.close(fd)


def item_frames(path: Path, most: int = MOST_BYTES) -> Iterator[Frame]:
    """Every frame of an item that is a log."""
    return logs.read_frames(path, most=MOST_HELD_BYTES, open_log=partial(open_item, most=most))


def item_pieces(path: Path, most: int) -> Iterator[bytes]:
    """Every line of an item that is a text; one that is longer than `most` bytes comes in pieces."""
    with open_item(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        while piece := file.readline(most):
            yield piece


def item_lines(path: Path, most: int) -> Iterator[bytes]:
    """Every line of an item that is a text; of a line longer than `most` bytes, only these."""
    begins = True
    for piece in item_pieces(path, most):
        if begins:
            yield piece
        begins = piece.endswith(b"\n")


def inspect_harvest(path: Path) -> bool:
    """Look at every name in the directory of a harvest; RefusedItem if it is none. Whether all of it belongs to us alone."""
    with item_errors(path):
        status = os.lstat(path)
        _must_be("a directory", path, status)
        is_own, count = status.st_uid == os.geteuid(), 0
        with os.scandir(path) as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES:
                    raise RefusedItem(f"more than {MOST_FILES} files, which no harvest has", path)
                most = MOST_HELD_BYTES if entry.name == names.CHECKPOINTS else 1 << 63
                with open_item(path / entry.name, most) as fd:
                    is_own = is_own and os.fstat(fd).st_uid == os.geteuid()
        return is_own


def _must_be_written(path: Path, fd: int, length: int) -> None:
    """A file may claim any length with holes in it, which cost whoever made it nothing, and whoever reads it their length."""
    try:
        hole = os.lseek(fd, 0, os.SEEK_HOLE)
    except OSError:
        return  # this file system has no holes
    os.lseek(fd, 0, os.SEEK_SET)
    if hole < length:
        raise RefusedItem("a hole in the file, where its bytes were never written", path, hole)


def _must_be(kind_wanted: str, path: Path, status: os.stat_result) -> None:
    if (kind := kinds.words(status.st_mode)) != kind_wanted:
        raise RefusedItem(f"{kind}, where {kind_wanted} belongs", path)


def _reason(cause: BaseException | None) -> str:
    if isinstance(cause, PermissionError):
        return UNREADABLE
    if isinstance(cause, kinds.NotAFile):  # it was put there since we looked
        return str(cause.strerror)
    if isinstance(cause, FileNotFoundError):
        return "it is not there any more"
    return f"it cannot be read ({cause.strerror if isinstance(cause, OSError) else cause})"
