"""Leases: a reader's claim on a state, so that nobody deletes it under the reader's hands.

Taking one, and a deleter's look and rename, happen under a short flock on lease/lock.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from shepherd import processes
from shepherd.errors import RecoveryNeeded
from shepherd.store.disk import fsio, locks, names, opening

SERVED = "shep-serve: "  # so the purpose of a lease begins that a server has taken for one of its clients


@dataclass(frozen=True)
class Lease:
    name: str
    state: int
    owner: str
    purpose: str
    pid: int
    expires: int  # seconds since 1970
    process: str = processes.UNKNOWN  # which one it ends with; what a person or a client of a server holds ends with none

    @property
    def taken_ms(self) -> int:
        """Since when it is held: its name says so."""
        return int(self.name.partition("-")[0])

    @property
    def is_served(self) -> bool:
        """Whether its owner is a client of a server, and not a program or person of this machine."""
        return self.purpose.startswith(SERVED)

    @property
    def host(self) -> str:
        return self.name.partition("-")[2].rsplit("-", 2)[0]

    @property
    def is_orphaned(self) -> bool:
        """Whether the process that it was to end with was killed, for certain; so it is never another machine's."""
        return locks.is_own_host(self.host) and processes.has_ended(self.process, self.pid)

    @property
    def is_abandoned(self) -> bool:
        """Whether, for all that one can see, its process has ended: enough for a person who asks to end just this one.

        Of another machine's nobody knows. A client outlives its server.
        """
        return self.is_orphaned or (not self.is_served and locks.is_gone(self.host, self.pid))

    def holds(self, now: int) -> bool:
        """Whether it keeps its state from being deleted."""
        return self.expires > now and not self.is_orphaned


class OddLeaseLock(RecoveryNeeded):
    """Nobody can take or judge a lease, because something else stands in the place of their lock."""


class Leases:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        try:
            lock = locks.lock(self.directory / names.LOCK, "a reader or deleter", wait=True)
        except locks.OddLock as error:
            raise OddLeaseLock(f"{error}, or run shep-recover, which does so") from error
        try:
            yield
        finally:
            lock.release()

    def all(self) -> list[Lease]:
        """Every lease. What does not read as one is not ours: a lease is put in place whole. A disk that fails is an error."""
        leases = (_read(path) for path in sorted(self.directory.glob("*.lease")))
        return [lease for lease in leases if lease is not None]

    def find(self, name: str) -> Lease | None:
        """One by its name; any text may be given."""
        return _read(self.directory / f"{name}.lease") if names.parse_item(f"{name}.lease") else None

    def states_in_use(self, now: int) -> set[int]:
        """The numbers of the states that may not be deleted."""
        return {lease.state for lease in self.all() if lease.holds(now)}

    def write(self, lease: Lease) -> None:
        fields = asdict(lease)
        name = fields.pop("name")
        if lease.process == processes.UNKNOWN:
            del fields["process"]
        fsio.replace_file(self.directory / f"{name}.lease", json.dumps(fields, sort_keys=True).encode() + b"\n")

    def remove(self, lease: Lease) -> None:
        fsio.unlink(self.directory / f"{lease.name}.lease")

    def remove_over(self, now: int) -> None:
        for lease in self.all():
            if not lease.holds(now):
                self.remove(lease)


def _read(path: Path) -> Lease | None:
    item = names.parse_item(path.name)
    if item is None:
        return None
    try:
        return parse_lease(item[0], opening.read_file(path))
    except FileNotFoundError:
        return None


def parse_lease(name: str, data: bytes) -> Lease | None:
    """The lease that the file NAME.lease holds; None where it holds none."""
    try:
        fields = json.loads(data)
        lease = Lease(name=name, **fields)
    except (ValueError, TypeError, RecursionError):
        return None
    fits = all(type(value) is int for value in (lease.state, lease.pid, lease.expires))
    return lease if fits and all(isinstance(text, str) for text in (lease.owner, lease.purpose, lease.process)) else None
