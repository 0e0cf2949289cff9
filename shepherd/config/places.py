"""Where the configuration and the database are: the one rule by which every program finds them, and what tells two
configurations apart.

The database's own cf/ comes before the one beside the working directory: what a database was made for must not depend on where
somebody stands when he calls a program.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, NamedTuple

OWN_CF: Final = "cf"  # in a database
FILES: Final = ("shepherd.toml", "filter", "url-equiv")

BY_OPTION: Final = "--cf"
BY_ENVIRONMENT: Final = "SHEPHERD_CF"
BY_DATABASE: Final = "the database's own"
BY_DEFAULT: Final = "the default"


class CfPlace(NamedTuple):
    """A configuration directory, and why it is the one."""

    directory: Path
    origin: str

    @property
    def is_named(self) -> bool:
        """Whether somebody has said that it is to be this one."""
        return self.origin in (BY_OPTION, BY_ENVIRONMENT)

    @property
    def digest(self) -> str:
        """The same for directories that say the same; a file that is missing or cannot be read counts as such."""
        check = hashlib.blake2b(digest_size=16)
        for name in FILES:
            try:
                data = (self.directory / name).read_bytes()
            except OSError:
                check.update(b"-")
            else:
                check.update(b"%d:" % len(data) + data)
        return check.hexdigest()


def find_cf(option: Path | None, db: Path) -> CfPlace:
    """--cf, else SHEPHERD_CF, else cf/ of the database if it is there, else cf/ beside the working directory."""
    if option is not None:
        return CfPlace(option, BY_OPTION)
    if named := os.environ.get("SHEPHERD_CF"):
        return CfPlace(Path(named), BY_ENVIRONMENT)
    own = db / OWN_CF
    return CfPlace(own, BY_DATABASE) if own.is_dir() else CfPlace(Path("cf"), BY_DEFAULT)


def find_db(option: Path | None) -> Path:
    """--db, else SHEPHERD_DB, else db/ beside the working directory."""
    return option or Path(os.environ.get("SHEPHERD_DB") or "db")
