"""One walk over a database that names every fault: used by shep-check to list them, and by shep-recover to decide.

Full: every byte against its checksum (files.py), then the references between tables, segments and contributions
(references.py), at last the buckets that rows claim (claims.py). Quick: names, lengths and headers only.
States share most of their files: in one walk each is read once, and each segment scanned once.
Places that the disk does not give are listed (bad_sectors.py), and the walk continues.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from shepherd.errors import Corruption, IoFailed, OldFormat, RecoveryNeeded, ShepherdError, UsageError
from shepherd.store.check import files as check_files
from shepherd.store.check import odd_files
from shepherd.store.check.bad_sectors import past_bad_sectors, unread_places
from shepherd.store.check.claims import walk_claims
from shepherd.store.check.faults import MOST_LISTED, Fault, fault_of
from shepherd.store.check.files import Sound, Tick
from shepherd.store.check.references import walk_references
from shepherd.store.check.shelves import walk_shelves
from shepherd.store.disk import names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.state import contact_notes, inbox, inserts, seals
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.inbox_files import RefusedItem, inspect_harvest, open_item

__all__ = ["MOST_LISTED", "Fault", "faults_of", "size", "walk", "walk_built", "walk_tables"]


def walk(
    database: Database,
    quick: bool = False,
    tick: Tick = lambda n: None,
    only: StateName | None = None,
    most: int | None = MOST_LISTED,
) -> Iterator[Fault]:
    """Every fault of the whole database, or of one state; beyond `most` of a kind in a table, one stands for the rest."""
    if only is None:
        yield from _modes(database)
        yield from past_bad_sectors(database.states_path, _refuse_old(database))
        yield from past_bad_sectors(database.path, _strangers(database))
    one_walk = _Walk(quick, tick, most=most)
    for path in _paths(database, only):
        try:
            faults = list(one_walk.state(path))
        except FileNotFoundError:
            if path.exists():
                raise
            continue
        if path.exists():  # else it was superseded and deleted while we looked, and whatever was found was its end
            yield from faults
    yield from past_bad_sectors(database.states_path, (fault for state, fault in one_walk.claims() if state.path.exists()))
    if only is None:
        yield from past_bad_sectors(database.log_path, one_walk.shelves(database.log_path))
        yield from past_bad_sectors(database.inbox.directory, _waiting_items(database, quick))


def _refuse_old(database: Database) -> Iterator[Fault]:
    """Of another format nothing can be said; single old states that readers still lease are only mentioned."""
    try:
        database.furthest()
    except (UsageError, IoFailed):
        raise
    except (ShepherdError, FileNotFoundError):
        pass  # the walk lists it
    yield from ()


def faults_of(paths: Iterable[Path], quick: bool = False, tick: Tick = lambda n: None) -> dict[Path, list[Fault]]:
    """The faults of each of these finished directories, for those who act on them: that the disk does not give something is an
    error, and notes are left out."""
    one_walk, faults = _Walk(quick, tick), dict[Path, list[Fault]]()
    for path in paths:
        try:
            faults[path] = [fault for fault in one_walk.state(path) if not fault.note]
        except FileNotFoundError:
            if path.exists():
                raise
            faults[path] = []  # it was superseded and deleted while we looked
        for fault in faults[path]:
            if fault.unread:
                raise IoFailed(f"{fault.what}; look at the disk before you continue", fault.path, fault.offset)
    for state, fault in one_walk.claims():
        faults[state.path].append(fault)
    return faults


def walk_built(state: State) -> Iterator[Fault]:
    """Every fault of a directory that is whole, but has not got its name yet."""
    one_walk = _Walk(quick=False, tick=lambda n: None)
    yield from one_walk.files(state)
    yield from (fault for _state, fault in one_walk.claims())


def walk_tables(path: Path) -> Iterator[Fault]:
    """Every fault of one finished directory but those of its buckets: for whoever does not read them."""
    return _Walk(quick=False, tick=lambda n: None, buckets=False).state(path)


def size(database: Database, only: StateName | None = None) -> int:
    """How many bytes a full walk will report to its `tick`: every file of every state, and then every segment once."""
    total, segments = 0, dict[tuple[int, int], int]()
    for path in _paths(database, only):
        try:
            files = State(path).control.files
            total += sum(entry.length for entry in files.values())
            with opening.reading(path / names.OBJECTS):
                segments_here = [(path / name).stat() for name in files if name.startswith(f"{names.OBJECTS}/")]
            segments |= {(file.st_dev, file.st_ino): file.st_size for file in segments_here}
        except (Corruption, UsageError, FileNotFoundError):
            continue  # the walk lists it
    return total + sum(segments.values())


def _paths(database: Database, only: StateName | None) -> Iterable[Path]:
    """The directories to look at; a file of such a name is a stranger."""
    paths = [database.states_path / str(name) for name in (database.states() if only is None else [only])]
    return [path for path in paths if not path.is_file()]


def _waiting_item(item: inbox.InboxItem, quick: bool, key: bytes) -> Iterator[Fault]:
    """Contributions and harvests are read whole. What cannot be read at all harms nothing: it is not taken in."""
    try:
        if item.kind == inbox.HARVEST:
            inspect_harvest(item.path)
            yield from check_files.walk_harvest(item.path, quick, ours=False)
        elif item.kind == inbox.CONTRIB and not quick:
            inserts.inspect(item.path, key)
        elif item.kind == inbox.CONTACT:
            contact_notes.read(item)
        else:
            with open_item(item.path):
                pass
    except RefusedItem as error:
        yield Fault(item.path, None, f"{error.what}; it is not taken in", note=True)
    except Corruption as error:
        yield fault_of(item.path, error)


def _waiting_items(database: Database, quick: bool) -> Iterator[Fault]:
    """What waits in the inbox; of a harvest that has been taken, half may be removed already."""
    try:
        furthest = database.furthest()
    except (Corruption, UsageError, RecoveryNeeded):
        return  # the walk has listed it
    applied = furthest.control.applied
    for item in database.inbox.waiting(applied, *inbox.KINDS):
        faults = list(past_bad_sectors(item.path, _waiting_item(item, quick, furthest.control.key)))
        if os.path.lexists(item.path):  # else a merge or a cork has taken it meanwhile
            yield from faults


class _Walk:
    """What one walk has learnt so far: which files are sound, and of which states the claims can be judged."""

    def __init__(self, quick: bool, tick: Tick, buckets: bool = True, most: int | None = MOST_LISTED) -> None:
        self._quick, self._tick, self._buckets, self._most = quick, tick, buckets, most
        self._sound: Sound = set()
        self._whole: list[State] = []

    def state(self, path: Path) -> Iterator[Fault]:
        """All of one state but its claims."""
        if path.is_file():
            yield Fault(path, None, "a file, where a state is a directory; move it away")
            return
        try:
            state = State(path)
        except Corruption as error:
            yield fault_of(path / names.CONTROL, error)
            return
        except IoFailed as error:
            yield from unread_places(path / names.CONTROL, error)
            return
        except OldFormat as error:  # a newer one passes: nothing is wrong with it, but it is not for us to judge
            yield Fault(path, None, f"{error.what}; {error.advice}", note=True)
            return
        yield from self.files(state)
        harvests = (check_files.walk_harvest(harvest_path, self._quick) for harvest_path in state.harvests())
        yield from past_bad_sectors(path, chain.from_iterable(harvests))

    def files(self, state: State) -> Iterator[Fault]:
        """The files that its control names, and what they say of each other."""
        files = check_files.walk_files(state, self._quick, self._tick, self._sound, self._buckets)
        faults = [*check_files.walk_control(state), *files]
        # What references say is worth looking at only where every byte is as written.
        if all(fault.note for fault in faults) and not self._quick:
            faults += past_bad_sectors(state.path, check_files.walk_logs(state))
            faults += past_bad_sectors(state.path, walk_references(state, self._most))
            self._whole.append(state)
        yield from faults

    def shelves(self, logs: Path) -> Iterator[Fault]:
        """What is kept of deleted states."""
        return walk_shelves(logs, self._quick, self._sound)

    def claims(self) -> Iterator[tuple[State, Fault]]:
        return walk_claims(self._whole, self._tick, self._most)


def _modes(database: Database) -> Iterator[Fault]:
    """Wrong modes: after a copy that of every file is, so one stands for all. What its owner cannot read is a fault."""
    wrong = list(seals.broken(database.path))
    for what in (seals.UNSEALED, seals.CLOSED_TO_OWNER):
        paths = [seal.path for seal in wrong if seal.what == what]
        if paths:
            others = f" ({len(paths) - 1:,} more files and directories are like this)" if len(paths) > 1 else ""
            yield Fault(paths[0], None, what + others, note=what == seals.UNSEALED, count=len(paths))


def _strangers(database: Database) -> Iterator[Fault]:
    if not any(name.closed for name in database.states()):
        yield Fault(database.states_path, None, "no closed state is there; copy the database back from a mirror")
    for entry in sorted(os.listdir(database.path)):
        if entry not in names.TOP and entry != ".gitignore":
            yield Fault(database.path / entry, None, "not a name of ours; left alone", note=True)
    for entry in sorted(os.listdir(database.states_path)):
        path = database.states_path / entry
        if names.is_leftover(entry):
            yield Fault(path, None, "left by a killed program; the next one removes it", note=True)
        elif names.parse_state(entry) is None:
            yield Fault(path, None, "not a name of ours; left alone", note=True)
    for odd in odd_files.survey(database.path):
        inside = odd.place.startswith(f"{names.STATES}/") and odd.place.count("/") > 1  # which the walk lists
        if not inside:
            what = f"{odd.what}, where a {odd.proper} belongs; shep-recover moves it aside"
            yield Fault(database.path / odd.place, None, what, note=odd.place.startswith((f"{names.LOGS}/", f"{names.STATES}/")))
    for entry in sorted(os.listdir(database.path / names.ASIDE)) if (database.path / names.ASIDE).is_dir() else ():
        yield Fault(database.path / names.ASIDE / entry, None, "moved here by shep-recover; look at it, and remove it", note=True)
    readable = {f"{lease.name}.lease" for lease in database.leases.all()}
    for directory, suffixes in ((database.inbox.directory, inbox.KINDS), (database.leases.directory, ("lease",))):
        for entry in sorted(os.listdir(directory)) if directory.is_dir() else ():
            item = names.parse_item(entry)
            if entry.startswith(".") or entry == names.LOCK:
                continue
            if item is None or item[1] not in suffixes:
                yield Fault(directory / entry, None, "not a name of ours; left alone", note=True)
            elif item[1] == "lease" and entry not in readable and (directory / entry).exists():
                yield Fault(directory / entry, None, "cannot be read as a lease; it holds nothing", note=True)
