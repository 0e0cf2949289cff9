"""The leases of programs: short, and renewed by the clock for as long as the program lives, whatever it is doing.

Invariant: a program that is killed, or whose machine is gone, lets go of its state within LEASE_S. The purpose of its lease says
which process of which machine it is: `shep states` at the server shows that.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Final

from shepherd.client.server import LeaseOver, Server, ServerLease
from shepherd.errors import PeerLost, PeerRefused, ShepherdError
from shepherd.wire import api

LEASE_S: Final = 180  # long enough for a server to be restarted, and for a machine that is busy
PARTS: Final = 3  # of a lease; one is renewed after the first of them, and may fail once


@contextlib.contextmanager
def hold(server: Server, program: str, state: int | None = None) -> Iterator[ServerLease]:
    """A lease on a closed state, the newest by default, until the block ends or this process does."""
    purpose = f"{program} on {socket.gethostname()}, pid {os.getpid()}"[: api.MOST_PURPOSE]
    lease = server.lease(purpose, state, LEASE_S)
    ended = threading.Event()
    # A daemon, and not waited for: it may be in the middle of a request to a server that says nothing.
    threading.Thread(target=_renew, args=(server, lease, ended), name="heartbeat", daemon=True).start()
    try:
        yield lease
    finally:
        ended.set()
        with contextlib.suppress(PeerLost, PeerRefused):  # then it ends by itself
            server.give_back(lease)


def _renew(server: Server, lease: ServerLease, ended: threading.Event) -> None:
    while not ended.wait(lease.seconds / PARTS):
        try:
            server.renew_once(lease)
        except LeaseOver:
            return  # whoever reads of the state hears it, too
        except ShepherdError:
            continue  # it may be back the next time
