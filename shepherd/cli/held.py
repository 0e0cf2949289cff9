"""Leases as `shep lock`, `shep unlock` and `shep states` tell of them: who holds which state, since when, and until when.

A lock is a lease whose holder is a person, not a running program: its purpose begins with LOCK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shepherd.cli import shep_shared as shared

if TYPE_CHECKING:
    from shepherd.store.database import Database
    from shepherd.store.lease import Lease
    from shepherd.store.usage import Usage

LOCK = "shep lock"


def is_lock(lease: Lease) -> bool:
    return lease.purpose == LOCK or lease.purpose.startswith(f"{LOCK}: ")


def valid(database: Database, now: int) -> list[Lease]:
    """Those that still hold their state, the oldest first."""
    return [lease for lease in database.leases.all() if lease.expires > now]


def as_object(lease: Lease, pins: int | None) -> dict[str, Any]:
    return {
        "id": lease.name,
        "state": lease.state,
        "owner": lease.owner,
        "purpose": lease.purpose,
        "since": shared.iso(lease.taken_ms // 1_000),
        "until": shared.iso(lease.expires),
        "pinned_bytes": pins,
    }


def pins(lease: Lease, used: Mapping[str, Usage], newest: int | None) -> int | None:
    """Bytes that could be freed but for such a lease: those of the state that no newer one has. The newest state stays anyway."""
    from shepherd.store.names import StateName

    found = used.get(str(StateName(lease.state, "closed")))
    if found is None:
        return None
    return 0 if lease.state == newest else found.pinned
