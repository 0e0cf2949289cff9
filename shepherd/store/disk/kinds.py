"""What stands at a place of the database, by its kind: where a file belongs, everything else is odd, and the file is missing.

Invariant: nothing here opens, follows or waits for anything.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Final

ABOVE: Final = "nothing, because what is above it is no directory"
_KINDS: Final = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


_HIDDEN: Final = re.compile(r"\.nfs[0-9a-f]{16,}|\.fuse_hidden[0-9a-f]+")


class NotAFile(FileNotFoundError):
    """In the place of a file stands something else: whoever knows what it means that the file is missing knows enough."""

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(errno.ENOENT, f"{words(mode) or ABOVE}, where a file belongs", str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def words(mode: int) -> str:
    """For people; nothing for nothing."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a device") if mode else ""


def mode_at(path: Path) -> int:
    """Of what stands there itself, and not of what it may lead to; 0 if nothing does, or can."""
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def is_hidden_file(name: str) -> bool:
    """What NFS or FUSE makes of a file that is deleted while somebody has it open."""
    return bool(_HIDDEN.fullmatch(name))


def odd_file(path: Path) -> str:
    """What stands in the place of a file and is none, in words."""
    mode = mode_at(path)
    return "" if stat.S_ISREG(mode) else words(mode)


def odd_directory(path: Path) -> str:
    """What stands in the place of a directory and is none, in words. A link to one is: disks are put together so."""
    mode = mode_at(path)
    return "" if stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and path.is_dir()) else words(mode)
