"""Leases of clients: take, list, renew, give back; and what keeps one alive while something is sent from its state.

A client's lease is a file in db/lease like any other, so it outlives the server. Its owner is the client's name, and its purpose
begins with SERVED: so nobody who is called like a user of this machine gets at that user's locks.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Final

from aiohttp import web
from msgspec import UNSET

from shepherd.errors import UsageError
from shepherd.serve.answers import Refused, answer
from shepherd.serve.service import Ask, Service
from shepherd.serve.tokens import Client
from shepherd.store.disk import names
from shepherd.store.state.directory import State
from shepherd.store.state.lease import SERVED, Lease
from shepherd.store.state.usage import pins, usage
from shepherd.wire import api

LOOK_S: Final = 5.0  # how often a transfer looks whether its lease is still there
LEAST_S: Final = 60  # that a transfer renews a lease for
MOST: Final = 64  # leases of one client at a time


# --- handlers ---------------------------------------------------------------------------------------------------


async def take(ask: Ask) -> web.Response:
    request = await ask.body(api.LeaseRequest)
    purpose = " ".join(request.purpose.split())
    if not purpose or not purpose.isprintable():
        raise Refused(
            400, f"say in `purpose`, in 1 to {api.MOST_PURPOSE} printable characters, what it is held for; others see it"
        )
    state = None if request.state is UNSET else request.state
    lease = await ask.work(_take, ask.service, ask.who, state, purpose, _granted(ask, request.seconds))
    ask.notes |= {"lease": lease.name, "state": lease.state}
    return answer(_answer(lease), 201, {"Location": f"/v1/leases/{lease.name}"})


async def list_all(ask: Ask) -> web.Response:
    ask.parameters()
    leases = await ask.work(ask.service.database.leases.all)
    mine = [lease for lease in leases if lease.holds(ask.service.now()) and (ask.who.is_admin or _is_of(lease, ask.who))]
    return answer(api.LeaseList([_answer(lease) for lease in mine]))


async def renew(ask: Ask) -> web.Response:
    seconds = _granted(ask, (await ask.body(api.RenewalRequest)).seconds)
    lease = await ask.work(_renew, ask.service, ask.who, ask.request.match_info["lease"], seconds)
    return answer(_answer(lease))


async def give_back(ask: Ask) -> web.Response:
    lease = await ask.work(_give_back, ask.service, ask.who, ask.request.match_info["lease"])
    ask.notes["state"] = lease.state
    return answer(_answer(lease))


def _granted(ask: Ask, seconds: int) -> int:
    """As many as were asked for, if that is not more than the operator allows: `expires` says what was granted."""
    return min(seconds, ask.service.settings.lease_s)


def _answer(lease: Lease) -> api.LeaseAnswer:
    return api.LeaseAnswer(
        lease=lease.name,
        state=lease.state,
        owner=lease.owner,
        purpose=_purpose(lease),
        taken_s=lease.taken_ms // 1_000,
        expires=lease.expires,
    )


# --- in threads -------------------------------------------------------------------------------------------------


def _take(service: Service, client: Client, number: int | None, purpose: str, seconds: int) -> Lease:
    with service.taking:
        _refuse_if_many(service, client)
        _refuse_if_full(service)
        try:
            lease = service.database.lease(number, client.name, SERVED + purpose, service.now_ms(), seconds)
        except UsageError as error:
            raise Refused(404, str(error)) from None
        service.seconds_of[lease.name] = seconds
        return lease


def _refuse_if_many(service: Service, client: Client) -> None:
    """A client that takes and never gives back must not fill the directory that every other one looks through."""
    alive = [lease for lease in service.database.leases.all() if lease.holds(service.now())]
    for name in set(service.seconds_of).difference(lease.name for lease in alive):
        service.seconds_of.pop(name, None)
    if sum(_is_of(lease, client) for lease in alive) >= MOST:
        raise Refused(
            409, f"{client.name} holds {MOST} leases already; give some back with DELETE /v1/leases/LEASE, or share one"
        )


def _refuse_if_full(service: Service) -> None:
    """Say who keeps how much on the disk, where that is more than the operator wants."""
    limit = service.settings.pinned_bytes
    if not limit:
        return
    database, used = service.database, usage(service.database)
    newest = database.closed().number
    holders = [lease for lease in database.leases.all() if lease.holds(service.now())]
    pinned = {lease.state: pins(lease, used, newest) or 0 for lease in holders}
    total = sum(pinned.values())
    if total > limit:
        most_first = sorted((lease for lease in holders if pinned[lease.state]), key=lambda lease: -pinned[lease.state])
        who = [f"{pinned[lease.state]} by {lease.owner} (state {lease.state}: {_purpose(lease)})" for lease in most_first]
        raise Refused(
            507,
            f"leases keep {total} bytes of older states on the disk, and serve.pinned_bytes allows {limit}: "
            f"{'; '.join(who)}. Try again when they are given back or over",
        )


def _purpose(lease: Lease) -> str:
    return lease.purpose.removeprefix(SERVED)


def find(service: Service, client: Client, name: str) -> Lease:
    """A lease that the client may use; Refused says why there is none."""
    if names.parse_item(f"{name}.lease") is None:
        raise Refused(404, "this is not the name of a lease")
    lease = service.database.leases.find(name)
    if lease is None or not lease.holds(service.now()):
        raise Refused(410, "this lease is over, or there never was one; take a new one with POST /v1/leases")
    if not client.is_admin and not _is_of(lease, client):
        raise Refused(403, "this lease is another client's")
    return lease


def _is_of(lease: Lease, client: Client) -> bool:
    return lease.is_served and lease.owner == client.name


def _renew(service: Service, client: Client, name: str, seconds: int) -> Lease:
    """Under the lock of the deleters: a lease that one of them has just found to be over must not come back."""
    with service.database.leases.locked():
        lease = dataclasses.replace(find(service, client, name), expires=service.now() + seconds)
        service.database.leases.write(lease)
    service.seconds_of[name] = seconds
    return lease


def _give_back(service: Service, client: Client, name: str) -> Lease:
    with service.database.leases.locked():  # a transfer that is just renewing it must not bring it back
        lease = find(service, client, name)
        service.database.leases.remove(lease)
    service.seconds_of.pop(name, None)
    return lease


def opened(service: Service, client: Client, name: str) -> tuple[Lease, State]:
    """A lease that the client may use, and its state."""
    lease = find(service, client, name)
    return lease, service.database.closed(lease.state)


class Keeper:
    """Called again and again while something is sent: keeps the lease alive, and stops the transfer when it is gone."""

    def __init__(self, service: Service, client: Client, lease: Lease) -> None:
        self._service, self._client, self._name = service, client, lease.name
        # Of a lease of an earlier run nobody knows what was asked for: no more than is left, or it would outlive a killed client.
        remaining_s = min(max(lease.expires - service.now(), LEAST_S), api.LEASE_S, service.settings.lease_s)
        self._seconds = service.seconds_of.get(lease.name, remaining_s)
        self._next_s = 0.0

    def __call__(self) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + min(LOOK_S, self._seconds / 4)
        lease = find(self._service, self._client, self._name)
        if lease.expires - self._service.now() <= self._seconds / 2:
            _renew(self._service, self._client, self._name, self._seconds)
