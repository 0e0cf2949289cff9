"""The file last-cf of a database: which configuration it was last run with, its place and what tells it from others.

docs/formats.md has its layout. It is no part of a state: without it nobody is warned of another configuration, and what the guard
has refused waits its usual time after `network.allow` has changed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from shepherd.config.places import CfPlace

FILE: Final = "last-cf"
MOST_BYTES: Final = 1 << 16


class LastCf(NamedTuple):
    """A configuration as it was when it was run with."""

    place: Path  # absolute
    digest: str
    allow: tuple[str, ...] = ()  # network.allow of it, sorted
    allowed_since: int = 0  # when that was first noted; 0 = it was never another one

    def is_other(self, place: CfPlace) -> bool:
        """Whether that is another configuration: in another place, and not the same to the byte."""
        return self.place != place.directory.resolve() and self.digest != place.digest


def of_place(place: CfPlace, allow: Iterable[str] = (), since: int = 0) -> LastCf:
    return LastCf(place.directory.resolve(), place.digest, tuple(sorted(allow)), since)


def allowed_since(db: Path, allow: Iterable[str], now_s: int) -> int:
    """Since when `network.allow` says what it says: what the guard refused before that may be let through. 0 = always."""
    last = read(db)
    if last is None:
        return 0
    return last.allowed_since if last.allow == tuple(sorted(allow)) else now_s


def read(db: Path) -> LastCf | None:
    """None where nobody has run the database yet, or where the file is not one that we wrote."""
    try:
        entry = json.loads(_text(db / FILE))
        allow = tuple(sorted(map(str, entry["allow"])))
        return LastCf((db / entry["cf"]).resolve(), str(entry["digest"]), allow, int(entry["allowed_since"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _text(path: Path) -> bytes:
    """Of a regular file, and no more of it than we would write: whoever may write into the database must not make us hang."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(MOST_BYTES) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def to_text(last: LastCf, db: Path) -> str:
    """A place within the database is written as such, because it is moved with it."""
    home = db.resolve()
    place = last.place.relative_to(home) if last.place.is_relative_to(home) else last.place
    entry = {"cf": str(place), "digest": last.digest, "allow": last.allow, "allowed_since": last.allowed_since}
    return json.dumps(entry) + "\n"
