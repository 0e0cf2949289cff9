"""The database directory: find states, lock, lease, build, delete. Start reading the store here.

with Database(path).writing("shep-merge") as writer:       # one writer at a time, leftovers tidied
    parent = writer.furthest()
    builder = writer.build(parent, StateName(parent.number + 1, "merged"), now)
    ...
    writer.publish(builder, report)

with Database(path).reading("shep list", now) as state:    # a leased, closed state
    ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from shepherd import processes
from shepherd.config import OWN_CF
from shepherd.errors import CHECK_LISTS, Corruption, IoFailed, NoSpace, RecoveryNeeded, UsageError
from shepherd.formats import tables
from shepherd.formats.control import CLOSED, Control
from shepherd.store.disk import fsio, locks, names
from shepherd.store.disk.names import StateName
from shepherd.store.disk.probe import PREFIX as PROBES
from shepherd.store.disk.probe import probe
from shepherd.store.state import cursors, damage_note, journals, last_copies, mirror_note, seals
from shepherd.store.state.directory import Builder, Parent, State
from shepherd.store.state.inbox import Inbox, clear
from shepherd.store.state.lease import Lease, Leases, OddLeaseLock
from shepherd.text import many

READ_LEASE_S = 86_400  # of a program that reads; it gives the lease back when it ends
# Where a lease cannot be written a reader reads without one: ENOENT is a copy without its empty directories.
UNLEASABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOSPC, errno.EDQUOT)
_LOG = logging.getLogger(__name__)
_UNLEASED: set[Path] = set()  # databases of which this process has said that it reads them without a lease
_COUNTER = itertools.count(1)  # of this process, whatever number of Database objects it has


class Database:
    """A database directory. To look at it: `reading`. To change it: requests in the `inbox`, or the lock, with `writing`.

    Opening one reads nothing and takes no lock; UsageError if none is there. Times are arguments: seconds (`now`) or milliseconds
    (`now_ms`) since 1970. docs/api.md has worked examples.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / names.STATES).is_dir():
            raise UsageError(_no_database(path))
        self.inbox = Inbox(path / names.INBOX)
        self.leases = Leases(path / names.LEASES)

    @classmethod
    def create(cls, path: Path, key: bytes, now: int, filter_version: int = 0) -> Database:
        """Make a new, empty database. All footprints depend on `key`: 16 secret random bytes, as of `secrets.token_bytes(16)`."""
        create(path, key, now, filter_version)
        return cls(path)

    @property
    def is_open_to_others(self) -> bool:
        """Whether any user of the machine may read it, and so the secret key of the footprints."""
        return bool(self.path.stat().st_mode & 0o005)

    @property
    def states_path(self) -> Path:
        return self.path / names.STATES

    @property
    def log_path(self) -> Path:
        return self.path / names.LOGS

    def states(self) -> list[StateName]:
        """Every finished directory, the furthest last."""
        try:
            entries = list(os.scandir(self.states_path))
        except FileNotFoundError as error:  # it was there when the database was opened
            raise IoFailed(
                f"{self.states_path}: the states are not there any more; put them back, or mount their disk"
            ) from error
        parsed = (names.parse_state(entry.name) for entry in entries if entry.is_dir())
        return sorted((name for name in parsed if name is not None), key=lambda n: n.order)

    def open(self, name: StateName) -> State:
        """One of `states()`. Nothing keeps it from being deleted: for closed states use `reading`."""
        return State(self.states_path / str(name))

    def furthest(self) -> State:
        """The finished directory that is furthest along."""
        states = self.states()
        if not states:
            raise RecoveryNeeded(
                f"{self.states_path}: no state is there, and nothing to make one from; copy it back from a mirror"
            )
        return self.open(states[-1])

    def closed(self, number: int | None = None) -> State:
        """A closed state: the newest, or the one with this number."""
        closed = [n for n in self.states() if n.closed]
        if not closed:
            raise RecoveryNeeded(f"{self.states_path}: no closed state is there; run shep-recover")
        if number is None:
            return self.open(closed[-1])
        if StateName(number, CLOSED) not in closed:
            raise UsageError(f"no closed state {number}; there are {', '.join(str(n.number) for n in closed)}")
        return self.open(StateName(number, CLOSED))

    def key(self) -> bytes:
        """The key of the footprints, the same in every state: the furthest may just be deleted, or damaged."""
        states = self.states()
        for name in reversed(states[1:]):
            with contextlib.suppress(Corruption):
                return self.open(name).control.key
        return (self.open(states[0]) if states else self.furthest()).control.key

    def new_item_name(self, now_ms: int) -> str:
        """A fresh name for an inbox item or lease."""
        return names.item(now_ms, socket.gethostname(), os.getpid(), next(_COUNTER))

    def half_dropped(self) -> list[Path]:
        """What a program was putting into the inbox or among the leases, or a mirror noting, when it died. Those that are alive
        need it; but only whoever holds the lock mirrors."""
        paths = [path] if (path := mirror_note.half_written(self.path)).exists() else []
        for directory in (self.inbox.directory, self.leases.directory):
            for entry in sorted(os.listdir(directory)) if directory.is_dir() else ():
                maker = names.parse_half_item(entry)
                if maker is not None and locks.is_gone(*maker):
                    paths.append(directory / entry)
        return paths

    # --- readers

    def lease(
        self, number: int | None, owner: str, purpose: str, now_ms: int, seconds: int, process: str = processes.UNKNOWN
    ) -> Lease:
        """Claim a closed state, the newest by default, until now + seconds, or until `leases.remove(lease)`; or until a process
        ends, for one that needs it no longer than it runs."""
        with self.leases.locked():
            state = self.closed(number)
            until = now_ms // 1000 + seconds
            lease = Lease(self.new_item_name(now_ms), state.number, owner, purpose, os.getpid(), until, process)
            self.leases.write(lease)
        return lease

    @contextlib.contextmanager
    def reading(self, purpose: str, now_ms: int, number: int | None = None) -> Iterator[State]:
        """A closed state, the newest by default, leased for as long as the block runs; unleased where we may only read.

        `purpose` is what others see of us: the name of the program. No lock is needed, and none is waited for.
        """
        lease = self._lease_if_writable(number, purpose, now_ms)
        try:
            yield self.closed(lease.state if lease else number)
        finally:
            if lease:
                self.leases.remove(lease)

    def _lease_if_writable(self, number: int | None, purpose: str, now_ms: int) -> Lease | None:
        self.closed(number)  # what keeps us from reading the state is no matter of the lease
        try:
            owner = f"{os.getuid()}@{socket.gethostname()}"
            return self.lease(number, owner, purpose, now_ms, READ_LEASE_S, processes.own())
        except OddLeaseLock as error:
            self._tell_unleased(str(error))
            return None
        except (IoFailed, NoSpace) as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in UNLEASABLE:
                raise
            self._tell_unleased(f"{self.leases.directory}: {cause.strerror}")
            return None

    def _tell_unleased(self, why: str) -> None:
        """Once, however many states are read."""
        where = self.leases.directory
        if where not in _UNLEASED:
            _UNLEASED.add(where)
            _LOG.warning("%s, so this reads without a lease; a cycle may delete the state meanwhile", why)

    # --- the writer

    @contextlib.contextmanager
    def writing(self, what: str, inherited: int | None = None, tidy: bool = True) -> Iterator[Writer]:
        """The lock of the one writer of states; Locked says who else has it. `what` is the name that others will see.

        Leftovers of a killed one are tidied first (but shep-recover looks first). `inherited` is a descriptor of the lock that
        our parent took.
        """
        path = self.path / names.LOCK
        lock = locks.lock(path, what) if inherited is None else locks.adopt_lock(inherited, path)
        try:
            writer = Writer(self)
            if tidy:
                writer.tidy()
            yield writer
        finally:
            lock.release()


class Writer:
    """What only the holder of the lock may do: build the next directory, publish it, delete old ones.

    `Database.writing` gives one. A phase is `drive.run(writer, config, now, tick, jobs)` in its room of shepherd.cycle.
    """

    is_dry_run = False  # store/state/dry_run.py has the one that writes nothing

    def __init__(self, database: Database) -> None:
        self.database = database

    def furthest(self) -> State:
        """What the next phase begins with."""
        return self.database.furthest()

    def tidy(self) -> list[str]:
        """Remove what killed programs left: directories half built, half deleted, or already superseded."""
        self.restore_seals()
        removed = self.remove_leftovers()
        for name in self.database.states()[:-1]:
            if not name.closed:
                _must_supersede(self.database.furthest(), name)
                self.delete(name)
                removed.append(str(name))
        closed = [name for name in self.database.states() if name.closed]
        if closed:
            self.database.inbox.remove(self.database.open(closed[-1]).control.applied)
        return removed

    def restore_seals(self) -> list[seals.BrokenSeal]:
        """Give files and directories the modes that they lost when the database was copied; which these were."""
        restored = seals.restore(self.database.path)
        if restored:
            others = f" and {many(len(restored) - 1, 'other')}" if len(restored) > 1 else ""
            _LOG.warning("%s%s: modes restored, which a copy may lose", restored[0].path, others)
        return restored

    def remove_leftovers(self, but: str = "") -> list[str]:
        """Remove what is half built or half deleted, whatever its format; `but` is a directory that somebody still needs."""
        root, removed = self.database.states_path, []
        # The rename of a program that was killed right after it counts from here on. First of all, because else a power cut might
        # undo the rename to N.gone, but not what is removed in N.gone now.
        fsio.sync_directory(self.database.path)  # the last rename of an init
        fsio.sync_directory(root)
        for entry in sorted(os.listdir(root)):
            if names.is_leftover(entry) and entry != but:
                fsio.remove_tree(root / entry)
                removed.append(entry)
        for path in self.database.half_dropped():
            clear(path)
            removed.append(f"{path.parent.name}/{path.name}")
        return removed

    def build(self, parent: Parent, name: StateName, now: int) -> Builder:
        """Begin a directory. The names of inbox items that are gone from the inbox need no remembering any more."""
        still = {item.name for item in self.database.inbox.all_items()}
        control = dataclasses.replace(
            parent.control,
            phase=name.phase,
            state=name.number,
            parent=str(parent.name),
            now=now,
            unsure=max(parent.control.unsure, mirror_note.unsure_ms(self.database.path, parent.name.number, now)),
            applied=tuple(a for a in parent.control.applied if a in still),
            files={},
        )
        return self._builder(name, control, parent)

    def _builder(self, name: StateName, control: Control, parent: Parent) -> Builder:
        return Builder(self.database.states_path, name, control, parent)

    def publish(self, builder: Builder, report: dict[str, Any], prove: Callable[[State], None] | None = None) -> State:
        """Commit, then remove what the commit made superfluous. `prove` raises if what was built must not be published."""
        state = builder.publish(report, prove)
        if builder.parent is not None and not builder.parent.name.closed:
            self.delete(builder.parent.name)
        if state.name.closed:  # until then the requests are still needed: an unfinished directory may be lost and made again
            self.database.inbox.remove(state.control.applied)
        return state

    def prune(self, keep: int, now: int, keep_journals: int = 0, unexported: Collection[str] = ()) -> list[int]:
        """Delete closed states beyond the newest `keep`, but for leased ones, those that the cursors of these names have not
        exported, and those with the last copy of what another state has lost; so many of their journals stay for audits."""
        if damage_note.stands(self.database.log_path):
            _LOG.warning("shep-recover could not mend this database, so no state is deleted; see docs/recovery.md")
            return []
        deleted = []
        with self.database.leases.locked():
            self.database.leases.remove_over(now)
            states_in_use = self.database.leases.states_in_use(now) | cursors.behind(self.database, unexported)
            closed = [n for n in self.database.states() if n.closed]
            doomed = [name for name in closed[: -max(keep, 1)] if name.number not in states_in_use]
            for name in doomed:
                if self._is_spare(name, doomed):
                    self._keep_journal(name, keep_journals)
                    fsio.rename(self.database.states_path / str(name), self.database.states_path / names.gone_state(name))
                    deleted.append(name)
        for name in deleted:  # out of sight already: the slow part needs no lock
            fsio.remove_tree(self.database.states_path / names.gone_state(name))
        return [name.number for name in deleted]

    def _is_spare(self, name: StateName, doomed: Collection[StateName]) -> bool:
        """Whether all that a state has is also in those that stay, as far as these want it."""
        staying: list[State] = []
        try:
            for other in self.database.states():
                with contextlib.suppress(UsageError):  # of another format
                    staying += [self.database.open(other)] if other not in doomed else []
            missing_file = last_copies.needed_by(self.database.states_path / str(name), staying)
        except Corruption as error:
            _LOG.warning("%s; no older state is deleted until shep-recover has mended that", error)
            return False
        if missing_file is not None:
            _LOG.warning(
                "%s: lost, but state %s still has it, and stays; run shep-recover, which puts it back", missing_file, name
            )
        return missing_file is None

    def _keep_journal(self, name: StateName, most: int) -> None:
        """A state that cannot be opened has no journal to keep: it is to go all the same."""
        with contextlib.suppress(Corruption, UsageError):
            journals.keep(self.database.log_path, self.database.open(name), most)

    def drop_snapshots(self, closed: list[StateName]) -> None:
        """Delete some closed states with damage, but none that is leased, and not the newest."""
        with self.database.leases.locked():
            leased = {lease.state for lease in self.database.leases.all() if not lease.is_orphaned}
            newest = self.database.closed().name
            unleased = [name for name in closed if name != newest and name.number not in leased]
            for name in unleased:
                fsio.rename(self.database.states_path / str(name), self.database.states_path / names.gone_state(name))
        for name in unleased:
            fsio.remove_tree(self.database.states_path / names.gone_state(name))

    def delete(self, name: StateName) -> None:
        """Delete a finished directory. Readers hold closed states only, so for those use `prune`."""
        root = self.database.states_path
        fsio.rename(root / str(name), root / names.gone_state(name))
        fsio.remove_tree(root / names.gone_state(name))


def _must_supersede(state: State, name: StateName) -> None:
    """Only what a state was made from may go because of it, and only if the state is complete."""
    if state.control.parent != str(name):
        raise RecoveryNeeded(f"{state.path}: {name} is beside it, and neither was made from the other; move away the wrong one")
    for path, entry in state.control.files.items():
        file = state.path / path
        if not file.exists() or file.stat().st_size != entry.length:
            raise Corruption(f"missing or not {entry.length} bytes long", file, advice=CHECK_LISTS)


def _no_database(path: Path) -> str:
    try:
        refuse_foreign(path)
    except UsageError:
        return f"{path}: no database here, but something else; give --db the directory of a database"
    return f"{path}: no database here; make one with `shep-init --db {path}`"


def create(path: Path, key: bytes, now: int, filter_version: int) -> State:
    """A new database with one empty closed state, number 1. The state directory's rename comes last: half made is not made."""
    building = path / f".{names.STATES}.tmp"
    refuse_foreign(path)
    probe(path)
    fsio.close_to_others(path)  # before the key is in it
    if building.exists():
        fsio.remove_tree(building)
    for directory in (names.INBOX, names.LEASES, names.LOGS):
        if not (path / directory).exists():
            fsio.add_directory(path / directory)
    fsio.make_directory(building)  # which makes the names above durable, too: there must never be a state/ without them
    name = StateName(1, CLOSED)
    control = Control(CLOSED, 1, "-", now, key, filter_version, equiv=0, unsure=0, segments=1, contribs=1)
    builder = Builder(building, name, control, None)
    for table, columns in tables.TABLES.items():
        builder.write_table(table, tables.empty(columns))
    builder.write_site_names([])
    builder.publish({"phase": "init"})
    fsio.rename(building, path / names.STATES)
    return State(path / names.STATES / str(name))


def refuse_foreign(path: Path) -> None:
    """A new database needs a place with nothing but a README, its own configuration, or what a killed init left behind."""
    if not path.exists():
        return
    if (path / names.STATES).exists():
        raise UsageError(f"{path}: a database is there already; use it, or give --db another directory")
    for entry in sorted(os.listdir(path)):
        ours = entry in (names.INBOX, names.LEASES, names.LOGS) and (path / entry).is_dir() and not os.listdir(path / entry)
        if not ours and entry not in ("README.md", ".gitignore", OWN_CF, f".{names.STATES}.tmp") and not entry.startswith(PROBES):
            raise UsageError(f"{path}: not empty ({entry} is there); give --db an empty or new directory")
