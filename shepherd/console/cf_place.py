"""Which configuration directory a program takes, and whether it is the one that its database was last run with.

Every --cf of every program is found here. A program that reads only is warned where it finds another one than the last; one that
may contact servers calls `require` before it does, which refuses what nobody has named, and then `note_taken`.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

import click

from shepherd import config as configuration
from shepherd.config import CfPlace, Config, last_cf
from shepherd.errors import ShepherdError, UsageError

LOG: Final = logging.getLogger("shepherd")
LOCK_FD: Final = "SHEPHERD_LOCK_FD"
_PLACE: Final = "shepherd.cf"  # what the contexts of a command and of its groups have in common
_DATABASE: Final = "shepherd.db"


UNBOUNDED: Final = (
    "does not say where to stop, so links would lead through the whole web: name what is in scope with "
    "`shep scope add HOST|URL|SURT`, or write `default accept` into it if the whole web is meant"
)


def find_db(context: click.Context, option: Path | None) -> Path:
    """The database that a command is called for; what was given to its group counts for it, too."""
    db: Path = (option is None and context.meta.get(_DATABASE)) or configuration.find_db(option)
    context.meta[_DATABASE] = db
    return db


def find(context: click.Context, option: Path | None, must_exist: bool) -> CfPlace:
    """The place for the command of a context, which is remembered there; one that somebody has named must be there."""
    place = configuration.find_cf(option, find_db(context, None))
    if must_exist and place.is_named and not place.directory.is_dir():
        raise click.BadParameter(f"{place.directory} is not a directory", context)
    context.meta[_PLACE] = place
    return place


def report() -> None:
    """With -v say which place was taken; and warn of one that the database was not last run with."""
    context = click.get_current_context()
    place = context.meta.get(_PLACE)
    if place is None:
        return
    absent = "" if place.directory.is_dir() else "; it is not there, so all is as by default"
    LOG.debug("configuration: %s (%s)%s", place.directory, place.origin, absent)
    if not _is_child() and (other := _other(context.meta[_DATABASE], place)):
        LOG.warning("%s", other)


def in_words(db: Path) -> str:
    """The place that was taken for a database, and the last one where that is another."""
    place = click.get_current_context().meta[_PLACE]
    last = last_cf.read(db)
    other = f"; last run with {last.place}" if last is not None and last.is_other(place) else ""
    return f"{place.directory} ({place.origin}){other}"


def require(db: Path, config: Config) -> None:
    """Before servers are asked: refuse a filter that says nowhere to stop, and a configuration that the database was not last run
    with, unless somebody has named it. A program that a master has started goes by what that has required."""
    if _is_child():
        return
    from shepherd.filters import load_filter

    if not load_filter(config.filter_path).is_bounded:
        raise UsageError(f"{config.filter_path} {UNBOUNDED}")
    place = click.get_current_context().meta[_PLACE]
    if not place.is_named and (other := _other(db, place)):
        raise UsageError(f"{other}; say which one is meant: --cf DIR")


def note_taken(db: Path, config: Config) -> None:
    """The one that this program has taken is the one that the database is run with from now on."""
    if not _is_child():
        note(db, click.get_current_context().meta[_PLACE], config)


def note(db: Path, place: CfPlace, config: Config) -> None:
    """Enter the configuration that the database is run with from now on."""
    from shepherd.store.disk import fsio

    allow = config.network.allow
    last = last_cf.of_place(place, allow, last_cf.allowed_since(db, allow, int(time.time())))
    if last == last_cf.read(db):
        return
    try:
        fsio.replace_file(db / last_cf.FILE, last_cf.to_text(last, db).encode())
    except ShepherdError as error:  # it only warns: a full disk must not keep a master from making room
        LOG.warning("%s; so it is not noted which configuration this run has", error)


def _other(db: Path, place: CfPlace) -> str:
    """In words, where a database was last run with another configuration."""
    last = last_cf.read(db)
    if last is None or not last.is_other(place):
        return ""
    return f"{db} was last run with the configuration in {last.place}, and this is {place.directory} ({place.origin})"


def _is_child() -> bool:
    return bool(os.environ.get(LOCK_FD))
