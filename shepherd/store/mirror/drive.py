"""Drives a mirror: one round brings the newest closed state of a server into a directory that is itself a database.

A round: lease the newest state there, judge its control, link what is here, fetch and check the rest, publish by one rename,
delete what is older than what is kept. What the server says is believed only as far as `store/mirror/manifest.py` and
`store/mirror/file_transfer.py` could check it; a round that fails changes no state, and the next one goes on where it stopped.
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
from shepherd.store.mirror import manifest as offered
from shepherd.store.mirror.state_transfer import Receiving, Stock
from shepherd.store.mirror.transfer import Pull, Transfer
from shepherd.store.state import mirror_note
from shepherd.store.state.database import Database, Writer


class Source(Pull, Protocol):
    """One state of a server, leased."""

    @property
    def number(self) -> int: ...
    @property
    def lease(self) -> str:
        """The name of our lease there."""


class Server(Protocol):
    """Where states come from. PeerLost where it cannot be reached, PeerRefused where it will not have us."""

    @property
    def where(self) -> str:
        """For people."""

    def states(self) -> list[int]:
        """The numbers of its closed states."""

    def leased(self, number: int | None) -> AbstractContextManager[Source]:
        """A closed state, the newest by default, for as long as the block runs."""


@dataclass(frozen=True)
class Way:
    """How a round is to be done. Clock, sleep and signals are the caller's."""

    keep: int  # closed states
    keep_journals: int
    unexported: Collection[str]  # cursors that hold states here until they have exported them
    jobs: int  # downloads at a time
    verify: bool  # read every byte of what is here, and fetch again what is damaged
    adopt: bool  # what is here is a copy of the source's database
    now: Callable[[], int]
    stopping: Callable[[], bool]
    pause: Callable[[float], object]
    pace: Callable[[int], object]  # told how many bytes came; waits where they come too fast
    shown: Callable[[StateName, int], AbstractContextManager[Callable[[int], object]]]  # the progress of so many bytes


@dataclass(frozen=True)
class Done:
    """What a round did, or would do."""

    state: int
    fresh: bool  # else it was here already
    files: int = 0
    linked: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    total_bytes: int = 0
    deleted: list[int] = field(default_factory=list)


def run(writer: Writer, server: Server, way: Way, seen: int | None = None) -> Done:
    """One round. `seen` is a state that an earlier round found to be the same on both sides: it is not compared again."""
    database = writer.database
    _refuse_own(database, server, way.adopt, note=True)
    if seen is not None and seen == _newest(database) == max(server.states(), default=None):
        return Done(seen, fresh=False)
    with _leased(server, None, database) as source:
        data = control_of(source)
        control = _believed(data, source.number, server.where, database)
        stock = Stock(database, way.verify)
        if source.number == _newest(database):
            lost = next((piece for piece in offered.pieces(control) if stock.find(piece) is None), None)
            if lost is None:
                writer.remove_leftovers()  # and what a killed round has renamed becomes durable before anybody counts on it
                deleted = writer.prune(way.keep, way.now(), way.keep_journals, way.unexported)  # which it did not come to
                return Done(control.state, fresh=False, files=len(control.files), deleted=deleted)
            if not way.verify:
                where = database.states_path / str(StateName(control.state, CLOSED)) / lost.path
                raise Corruption("missing, or not as long as control says; shep-mirror --verify fetches it again", where)
        receiving = Receiving(writer, control, data)
        receiving.begin(stock)
        receiving.ask_room()
        transfer = Transfer(source, receiving, way.jobs, way.stopping, way.pause, way.pace)
        with way.shown(receiving.name, receiving.missing_bytes()) as tick:
            transfer.run(tick)
        mirror_note.enter(database.path, control.state, data, {name.number for name in database.states()})
        receiving.publish(way.now())
    return Done(
        state=control.state,
        fresh=True,
        files=len(control.files),
        linked=len(receiving.linked),
        fetched=len(receiving.wanted),
        fetched_bytes=transfer.fetched_bytes,
        total_bytes=sum(piece.total for piece in offered.pieces(control)),
        deleted=writer.prune(way.keep, way.now(), way.keep_journals, way.unexported),
    )


def rehearse(database: Database | None, server: Server, adopt: bool = False) -> Done:
    """What a round would fetch; nothing is changed. There need not be a database yet."""
    if database is not None:
        _refuse_own(database, server, adopt, note=False)
    with _leased(server, None, database) as source:
        control = _believed(control_of(source), source.number, server.where, database)
    if database is not None and control.state == _newest(database):
        return Done(control.state, fresh=False, files=len(control.files))
    stock = Stock(database)
    wanted = [piece for piece in offered.pieces(control) if stock.find(piece) is None]
    return Done(
        state=control.state,
        fresh=True,
        files=len(control.files),
        linked=len(control.files) - len(wanted),
        fetched=len(wanted),
        fetched_bytes=sum(piece.total for piece in wanted),
        total_bytes=sum(piece.total for piece in offered.pieces(control)),
    )


# --- what is believed -------------------------------------------------------------------------------------------


def control_of(source: Source) -> bytes:
    """The control of the leased state: however much is sent, no more of it is read than one could have."""
    found = bytearray()
    for part in source.read(names.CONTROL, 0):
        found += part
        if len(found) > offered.MOST_CONTROL:
            raise offered.damaged(f"state {source.number}: its control is longer than any: {offered.MOST_CONTROL} bytes")
    return bytes(found)


@contextmanager
def _leased(server: Server, number: int | None, database: Database | None) -> Iterator[Source]:
    """A state of the source, which is not the database itself: else a mirror would delete what it is to be a copy of."""
    with server.leased(number) as source:
        if database is not None and mirror.is_served_by(database, source.lease):
            raise UsageError(f"{server.where}: serves this very database, {database.path}; give --db another directory")
        yield source


def _refuse_own(database: Database, server: Server, adopt: bool, note: bool) -> None:
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
            mirror_note.enter(database.path, name.number, ours, {one.number for one in database.states()})


def _believed(data: bytes, number: int, where: str, database: Database | None) -> Control:
    """The control of the source's newest state, if it is one that may follow ours."""
    control = offered.judge(data, number, f"{where}: control of state {number}")
    newest = _newest(database) if database is not None else None
    if database is None or newest is None:
        return control
    try:
        key = database.closed(newest).control.key
    except OldFormat as error:
        raise UsageError(f"{error.args[0].partition(';')[0]}; mirror into another directory: upgraded it is no mirror") from error
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
