"""Leases as `shep lock`, `shep unlock` and `shep states` show them: who holds which state, since when, and until when.

A lock is a lease whose holder is a person, not a running program: its purpose begins with LOCK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.store.state.database import Database
    from shepherd.store.state.lease import Lease

LOCK = "shep lock"


def is_lock(lease: Lease) -> bool:
    return lease.purpose == LOCK or lease.purpose.startswith(f"{LOCK}: ")


def valid(database: Database, now: int) -> list[Lease]:
    """Those that still hold their state, the oldest first."""
    return [lease for lease in database.leases.all() if lease.holds(now)]


def orphaned(database: Database, now: int) -> list[Lease]:
    """Those that would still hold it if their program had not been killed."""
    return [lease for lease in database.leases.all() if lease.expires > now and lease.is_orphaned]


def as_object(lease: Lease, pins: int | None) -> dict[str, Any]:
    return {
        "id": lease.name,
        "state": lease.state,
        "owner": lease.owner,
        "purpose": lease.purpose,
        "since": kinds.TIME_MS.json(lease.taken_ms),
        "until": kinds.TIME_S.json(lease.expires),
        "pinned_bytes": pins,
    }
