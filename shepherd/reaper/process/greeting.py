"""What a worker makes of a HELLO: filter, static table and guard. One that is not possible here is a PeerLost that names it."""

from __future__ import annotations

import logging
from typing import Any

from shepherd import urls
from shepherd.config import FetchLimits
from shepherd.errors import ConfigError, FilterError, PeerLost
from shepherd.filters import parse_filter
from shepherd.reaper.fetch.exchange import Context, ExtractOptions
from shepherd.reaper.fetch.guard import Guard, ReaperRules
from shepherd.wire import messages as wire
from shepherd.wire.hosts import is_address
from shepherd.wire.settings import Settings

LOG = logging.getLogger("shepherd.reapd")


def guard_of(hello: wire.Hello, settings: Settings, rules: ReaperRules) -> Guard:
    """The dispatcher's guard, as far as the reaper's own operator lets it have its way."""
    try:
        guard = Guard(tuple(hello.allow), hello.anonymous, rules)
    except ConfigError as error:
        raise PeerLost(f"the dispatcher allows something that is not an address range: {error}") from error
    helpers = [("name server", _nameserver_address(text)) for text in settings.nameservers]
    if settings.proxy is not None:
        helpers.append(("proxy", settings.proxy.address))
    for kind, address in helpers:
        if refusal := guard.refuses_helper(address):
            raise PeerLost(f"the dispatcher's {kind} must not be asked: {refusal}; start this reaper with --allow {address}")
    if ranges := guard.not_allowed_here():
        LOG.warning("the dispatcher allows %s, which this reaper refuses without --allow", ", ".join(ranges))
    return guard


def _nameserver_address(text: str) -> str:
    """The address of `address` or `address:port`."""
    address = text if is_address(text) else text.rpartition(":")[0].strip("[]")
    if not is_address(address):
        raise PeerLost(f"the dispatcher's name server {text[:80]!r} is neither an address nor address:port")
    return address


def context_of(hello: wire.Hello, limits: FetchLimits, compress: str) -> Context:
    try:
        filter_ = parse_filter(hello.filter)
    except FilterError as error:
        raise PeerLost(f"the dispatcher's filter cannot be read: {error}") from error
    if filter_.version != hello.filter_version:
        raise PeerLost("the dispatcher's filter is not the version it says")
    footprints = urls.Footprints(hello.key)
    options = ExtractOptions(limits.links_per_page, hello.robots_agent, limits.requisites)
    return Context(hello.state, footprints, filter_, options, compress)


def static_of(hello: wire.Hello) -> dict[str, tuple[str, int]]:
    """The static table: host -> address and port."""
    table: dict[str, tuple[str, int]] = {}
    places: dict[str, Any] = hello.static
    for host, place in places.items():
        match place:
            case [str(address), int(port)] if 0 < port < 65536:
                table[host] = address, port
            case _:
                raise PeerLost(f"the dispatcher's static table has no address and port for {host!r}")
    return table
