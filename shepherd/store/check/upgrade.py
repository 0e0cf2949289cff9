"""Brings a database of an older format version up to date, by building successors of what is there; nothing is changed in place.

The newest closed state gets a successor, and so does an unfinished directory that is further along, with copies of its harvests:
those are still appended to, so they cannot be linked. Only then do the old directories go, leased ones when their leases end.
Killed anywhere, it is simply run again: what already has its successor is left alone.

A closed state of number 8 becomes 9. With an unfinished 9.reap beside it, that becomes 11.reap first, then 8 becomes 10: numbers
that are taken by the old directories are never used again, and the closed one stays below the unfinished one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.errors import CHECK_LISTS, Corruption, RecoveryNeeded
from shepherd.formats import tables
from shepherd.formats.control import version_of
from shepherd.formats.tables import FORMAT_VERSION, NO_LIMIT
from shepherd.store.disk import names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.state import harvest
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import Builder, State

# What each version added, with the value that says nothing; a column is u64, i16 ... as tables.TABLES has it.
ADDED: Final[dict[int, dict[str, int]]] = {
    2: {
        "sites/group": 0,
        "sites/fresh_limit": NO_LIMIT,
        "sites/slots": 0,
        "sites/select_bonus": 0,
        "sites/queue_bonus": 0,
        "sites/refresh_boost": 0,
        "sites/section": 0,
        "sites/policy": 0,
        "servers/group": 0,
        "servers/documents": 0,
    },
    3: {"index/deferred": 0},
    4: {"sites/pause_s": 0, "sites/pause_end": 0},
}


@dataclass(frozen=True)
class UpgradeStep:
    """A directory that needs a successor."""

    old: StateName
    version: int
    new: StateName

    def __str__(self) -> str:
        return f"{self.old} of format version {self.version} becomes {self.new} of version {FORMAT_VERSION}"


def survey(database: Database) -> list[UpgradeStep]:
    """The steps that are still to be taken, in their order. Reads only."""
    versions = _versions(database)
    if not versions:
        return []
    furthest = max(versions, key=lambda name: name.order)
    closed = max((name for name in versions if name.closed), key=lambda name: name.number, default=None)
    steps, number = [], furthest.number + 1
    if not furthest.closed:
        if versions[furthest] < FORMAT_VERSION:
            steps.append(UpgradeStep(furthest, versions[furthest], StateName(furthest.number + 2, furthest.phase)))
        else:
            number = furthest.number - 1  # an earlier run has come this far
    if closed is not None and versions[closed] < FORMAT_VERSION:
        steps.append(UpgradeStep(closed, versions[closed], StateName(number, closed.phase)))
    return steps


def upgrade(writer: Writer, now: int) -> list[UpgradeStep]:
    """Take all steps, under a lock that has tidied nothing yet; the steps that were taken."""
    versions = _versions(writer.database)
    writer.remove_leftovers()
    if min(versions.values(), default=FORMAT_VERSION) == FORMAT_VERSION:
        return []  # closed states that are not old are snapshots like any other: they go by policy, not by us
    _remove_superseded(writer)
    steps = survey(writer.database)
    for step in steps:
        _succeed(writer, step, now)
    _remove_superseded(writer)
    writer.prune(1, now)
    return steps


def _versions(database: Database) -> dict[StateName, int]:
    """The version of every finished directory. One that is newer than we are is not ours to change."""
    versions = {name: _version(database.states_path / str(name)) for name in database.states()}
    for name, version in versions.items():
        if version > FORMAT_VERSION:
            database.open(name)  # says so
    return versions


def _version(path: Path) -> int:
    try:
        version = version_of(opening.read_file(path / names.CONTROL))
    except FileNotFoundError:
        raise Corruption("the file is missing", path / names.CONTROL, advice=CHECK_LISTS) from None
    if not version:
        raise Corruption("no control file", path / names.CONTROL, advice=CHECK_LISTS)
    return version


def _succeed(writer: Writer, step: UpgradeStep, now: int) -> None:
    old = State(writer.database.states_path / str(step.old), step.version)
    control = dataclasses.replace(old.control, state=step.new.number, parent=str(step.old), now=now, files={})
    builder = Builder(writer.database.states_path, step.new, control, old)
    try:
        builder.keep(path for path in old.control.files if path != names.REPORT)
        for version in range(step.version + 1, FORMAT_VERSION + 1):
            _add_columns(builder, old, ADDED[version])
        for path in old.harvests():
            if not harvest.inspect(path).ended:
                harvest.rollback(path)  # what came after the last checkpoint is lost as in any killed reap
            harvest.copy(path, builder.path / names.HARVESTS / path.name)
        builder.publish({"phase": "upgrade", "from": step.version, "to": FORMAT_VERSION})
    finally:
        builder.close()


def _add_columns(builder: Builder, old: State, added: dict[str, int]) -> None:
    for table, dtypes in tables.TABLES.items():
        first = next(iter(dtypes))
        rows = old.control.files[f"{table}/{first}"].length // np.dtype(dtypes[first]).itemsize
        values = {name: added[f"{table}/{name}"] for name in dtypes if f"{table}/{name}" in added}
        builder.write_table(table, {name: np.full(rows, value, dtypes[name]) for name, value in values.items()})


def _remove_superseded(writer: Writer) -> None:
    """Unfinished directories that another one was made from: by a phase that was killed right after its commit, or by us."""
    states = writer.database.states()
    paths = {name: writer.database.states_path / str(name) for name in states}
    parents = {State(path, _version(path)).control.parent for path in paths.values()}
    for name in states[:-1]:
        if not name.closed:
            if str(name) not in parents:
                raise RecoveryNeeded(f"{paths[name]}: {states[-1]} is further, but was not made from it; move away the wrong one")
            writer.delete(name)
