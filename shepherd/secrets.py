"""Files that hold a secret: only their owner may be able to read them, or they are refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shepherd.errors import UsageError


def read(path: Path, what: str, most: int, advice: str) -> str:
    """The first `most` bytes of such a file, which are ASCII. UsageError says why not; `what` is the secret in it, for people."""
    try:
        return _first(path, what, most, advice).decode("ascii")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def refuse_open(path: Path, what: str, advice: str) -> None:
    """For a file that somebody else reads, as a library does: a UsageError where it cannot be read, or others could."""
    _first(path, what, 0, advice)


def _first(path: Path, what: str, most: int, advice: str) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(f"{path}: not a file")
            if mode & 0o077:
                raise UsageError(f"{path}: others can read this {what} (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}")
            return file.read(most)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; {advice}") from error
