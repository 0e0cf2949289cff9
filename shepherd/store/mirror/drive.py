"""Drives a mirror: one round brings the newest closed state of a server into a directory that is itself a database.

A round: lease the newest state there, judge its control, link what is here, fetch and check the rest, publish by one rename,
delete what is older than what is kept. What the server says is believed only as far as `store/mirror/manifest.py` and
`store/mirror/file_transfer.py` could check it; a round that fails changes no state, and the next one continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from shepherd.errors import Corruption, OldFormat, PeerRefused, UsageError
from shepherd.formats.control import CLOSED, Control
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.mirror import directory as mirror
from shepherd.store.mirror import manifest
from shepherd.store.mirror.downloads import Downloads, FileSource
from shepherd.store.mirror.state_transfer import LocalFiles, StateTransfer
from shepherd.store.state import mirror_note
from shepherd.store.state.database import Database, Writer


class StateSource(FileSource, Protocol):
    """One state of a server, leased."""

    @property
    def number(self) -> int: ...
    @property
    def lease(self) -> str:
        """The name of our lease there."""


class StateServer(Protocol):
    """Where states come from. PeerLost where it cannot be reached, PeerRefused where it will not have us."""

    @property
    def where(self) -> str:
        """For people."""

    def states(self) -> list[int]:
        """The numbers of its closed states."""

    def leased(self, number: int | None) -> AbstractContextManager[StateSource]:
        """A closed state, the newest by default, for as long as the block runs."""


@dataclass(frozen=True)
class MirrorOptions:
    """How a round works. Clock, sleep and signals are the caller's."""

    keep: int  # closed states
    keep_journals: int
    unexported: Collection[str]  # cursors that hold states here until they have exported them
    jobs: int  # downloads at a time
    verify: bool  # read every byte of what is here, and fetch again what is damaged
    adopt: bool  # what is here is a copy of the source's database
    now: Callable[[], int]
    stopping: Callable[[], bool]
    pause: Callable[[float], object]
    pace: Callable[[int], object]  # gets how many bytes came; waits where they come too fast
    progress: Callable[[StateName, int], AbstractContextManager[Callable[[int], object]]]  # the progress of so many bytes


@dataclass(frozen=True)
class MirrorResult:
    """What a round did, or would do."""

    state: int
    fresh: bool  # else it was here already
    files: int = 0
    linked: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    total_bytes: int = 0
    deleted: list[int] = field(default_factory=list)


def run(writer: Writer, server: StateServer, options: MirrorOptions, same_state: int | None = None) -> MirrorResult:
    """One round. `same_state` was the same on both sides in an earlier round: it is not compared again."""
    database = writer.database
    _refuse_own(database, server, options.adopt, note=True)
    if same_state is not None and same_state == _newest(database) == max(server.states(), default=None):
        return MirrorResult(same_state, fresh=False)
    with _leased(server, None, database) as source:
        data = control_of(source)
        control = _judge_control(data, source.number, server.where, database)
        local_files = LocalFiles(database, options.verify)
        if source.number == _newest(database):
            missing = next((remote for remote in manifest.remote_files(control) if local_files.find(remote) is None), None)
            if missing is None:
                writer.remove_leftovers()  # and what a killed round has renamed becomes durable before anybody counts on it
                # A killed round did not come to this.
                deleted = writer.prune(options.keep, options.now(), options.keep_journals, options.unexported)
                return MirrorResult(control.state, fresh=False, files=len(control.files), deleted=deleted)
            if not options.verify:
                where = database.states_path / str(StateName(control.state, CLOSED)) / missing.path
                raise Corruption("missing, or not as long as control says; shep-mirror --verify fetches it again", where)
        state_transfer = StateTransfer(writer, control, data)
        state_transfer.begin(local_files)
        state_transfer.ask_room()
        downloads = Downloads(source, state_transfer, options.jobs, options.stopping, options.pause, options.pace)
        with options.progress(state_transfer.name, state_transfer.missing_bytes()) as tick:
            downloads.run(tick)
        mirror_note.enter(database.path, control.state, data, {name.number for name in database.states()})
        state_transfer.publish(options.now())
    return MirrorResult(
        state=control.state,
        fresh=True,
        files=len(control.files),
        linked=len(state_transfer.linked),
        fetched=len(state_transfer.to_fetch),
        fetched_bytes=downloads.fetched_bytes,
        total_bytes=sum(remote.total for remote in manifest.remote_files(control)),
        deleted=writer.prune(options.keep, options.now(), options.keep_journals, options.unexported),
    )


def rehearse(database: Database | None, server: StateServer, adopt: bool = False) -> MirrorResult:
    """What a round would fetch; nothing is changed. There need not be a database yet."""
    if database is not None:
        _refuse_own(database, server, adopt, note=False)
    with _leased(server, None, database) as source:
        control = _judge_control(control_of(source), source.number, server.where, database)
    if database is not None and control.state == _newest(database):
        return MirrorResult(control.state, fresh=False, files=len(control.files))
    local_files = LocalFiles(database)
    to_fetch = [remote for remote in manifest.remote_files(control) if local_files.find(remote) is None]
    return MirrorResult(
        state=control.state,
        fresh=True,
        files=len(control.files),
        linked=len(control.files) - len(to_fetch),
        fetched=len(to_fetch),
        fetched_bytes=sum(remote.total for remote in to_fetch),
        total_bytes=sum(remote.total for remote in manifest.remote_files(control)),
    )


# --- what is believed -------------------------------------------------------------------------------------------


def control_of(source: StateSource) -> bytes:
    """The control of the leased state: however much is sent, no more of it is read than one could have."""
    data = bytearray()
    for part in source.read(names.CONTROL, 0):
        data += part
        if len(data) > manifest.MOST_CONTROL:
            raise manifest.damage_at_source(
                f"its control is longer than any: {manifest.MOST_CONTROL} bytes", f"state {source.number}"
            )
    return bytes(data)


@contextmanager
def _leased(server: StateServer, number: int | None, database: Database | None) -> Iterator[StateSource]:
    """A state of the source, which is not the database itself: else a mirror would delete what it is to be a copy of."""
    with server.leased(number) as source:
        if database is not None and mirror.is_served_by(database, source.lease):
            raise UsageError(f"{server.where}: serves this very database, {database.path}; give --db another directory")
        yield source


def _refuse_own(database: Database, server: StateServer, adopt: bool, note: bool) -> None:
    """UsageError if a state here was not received by a mirror. One that is to be adopted the source must have: then it is noted.

    That the source has it is not enough: so it is with its own database, and with one that was copied to gather by itself.
    """
    unknown = mirror.unknown(database)
    if unknown and not adopt:
        raise mirror.not_received(database, unknown[0])
    theirs = server.states() if unknown else []
    for name in unknown:
        if name.number not in theirs:
            raise mirror.made_here(database, name)
        ours = mirror.control_of(database, name)
        with _leased(server, name.number, database) as source:
            if control_of(source) != ours:
                raise mirror.made_here(database, name)
        if note:
            mirror_note.enter(database.path, name.number, ours, {state.number for state in database.states()})


def _judge_control(data: bytes, number: int, where: str, database: Database | None) -> Control:
    """The control of the source's newest state, if it is one that may follow ours."""
    control = manifest.judge(data, number, f"{where}: control of state {number}")
    newest = _newest(database) if database is not None else None
    if database is None or newest is None:
        return control
    try:
        key = database.closed(newest).control.key
    except OldFormat as error:
        raise UsageError(f"{error.what}; mirror into another directory: upgraded it is no mirror") from error
    if control.key != key:
        raise PeerRefused(f"{where}: its key is not that of {database.path}, which mirrors another database; give another --db")
    if control.state < newest:
        raise PeerRefused(
            f"{where}: has state {control.state}, but {database.path} has {newest} already; "
            "if it was restored from a backup, mirror it into another directory"
        )
    if control.state == newest and data != mirror.control_of(database, StateName(newest, CLOSED)):
        raise PeerRefused(f"{where}: its state {newest} is not the one in {database.path}; mirror it into another directory")
    return control


def _newest(database: Database) -> int | None:
    closed = [name.number for name in database.states() if name.closed]
    return closed[-1] if closed else None
