"""Which addresses may be contacted: the one judge, consulted when a name is resolved and again when a socket opens.

The address decides, never the string it came from. Invariant: an address is allowed only if it is plain, global unicast and not
this machine's own, or inside a range that the operator allows; and never if the reaper's own operator refuses it. Forms that
carry another address (mapped, 6to4, NAT64, Teredo, ISATAP) are refused whatever they carry, because what they reach depends on
someone else's gateway; to allow one, its own range must be named.

`ipaddress.is_global` is not used: it calls multicast, site-local, 6to4 and NAT64 forms of loopback global.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

from shepherd.errors import ConfigError
from shepherd.reaper.fetch.machine import is_own

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_REFUSED_V4: Final[tuple[tuple[IPv4Network, str], ...]] = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata service"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignment"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)

# In order: the first network that holds the address names the reason.
_REFUSED_V6: Final[tuple[tuple[IPv6Network, str], ...]] = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64"),
        ("100::/64", "discard-only"),
        ("2001::/32", "Teredo"),
        ("2001:2::/48", "benchmarking"),
        ("2001:db8::/32", "documentation"),
        ("2001::/23", "protocol assignment"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)  # upper half of the interface identifier; the lower half is an IPv4 address

MAX_VERDICTS: Final = 10_000  # verdicts that are remembered: each address is judged several times on its way


@dataclass(frozen=True)
class ReaperRules:
    """What the operator of a reaper says of addresses; no message of a dispatcher changes it."""

    refuse: tuple[Network, ...] = ()  # whatever anybody allows
    allow: tuple[Network, ...] | None = None  # that dispatchers may allow; None = all that they like


TRUSTING: Final = ReaperRules()  # for dispatchers of the same user


class Guard:
    """Says which addresses may be contacted; `allow` is the dispatcher's list of ranges that may, although they are not global.

    An anonymous reap, without a contact address, may contact only this machine.
    """

    def __init__(
        self,
        allow: Iterable[str],
        anonymous: bool = False,
        rules: ReaperRules = TRUSTING,
        is_own: Callable[[str], bool] = is_own,
    ) -> None:
        self._allow = networks(allow, "[network] allow")
        self._rules, self._is_own = rules, is_own
        self.is_anonymous = anonymous
        self._verdicts: dict[str, str | None] = {}

    def refuses(self, address: str) -> str | None:
        """Why this address must not be contacted, or None if it may be."""
        try:
            return self._verdicts[address]
        except KeyError:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[address] = self._judge(address)
            return self._verdicts[address]

    def refuses_helper(self, address: str) -> str | None:
        """Why this must not be the address of a proxy or name server of the dispatcher's, or None if it may be.

        Whoever names one of these wants to have it asked, so the dispatcher's `allow` does not matter.
        """
        parsed = ipaddress.ip_address(address)
        reason = self._refused_here(parsed)
        if not reason and self._rules.allow is not None and not _is_in(parsed, self._rules.allow):
            reason = self._not_global(parsed)
        return f"{address} is {reason}" if reason else None

    def not_allowed_here(self) -> list[str]:
        """What the dispatcher allows and the reaper's operator does not."""
        rules = self._rules.allow
        return [] if rules is None else [str(network) for network in self._allow if not any(map(_holder_of(network), rules))]

    def _judge(self, address: str) -> str | None:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return f"{address!r} is not an address"
        reason = self._reason(parsed)
        return f"{address} is {reason}" if reason else None

    def _reason(self, address: Address) -> str:
        """Why not, in words that follow `is`."""
        if reason := self._refused_here(address):
            return reason
        if self.is_anonymous and not address.is_loopback:
            return "somebody else's, and no contact address is set"
        lifting = self._allow if self._rules.allow is None else self._rules.allow
        if not _is_in(address, self._allow) or not _is_in(address, lifting):
            return self._not_global(address)
        # A range as wide as a network is not meant for what runs beside the reaper: such an address is named alone.
        if address.is_loopback or any(address in network for network in lifting if network.num_addresses == 1):
            return ""
        return self._own(address)

    def _refused_here(self, address: Address) -> str:
        inner = _embedded(address) if isinstance(address, IPv6Address) else None
        is_refused = _is_in(address, self._rules.refuse) or (inner is not None and _is_in(inner, self._rules.refuse))
        return "refused by this reaper's operator" if is_refused else ""

    def _not_global(self, address: Address) -> str:
        reason = _refused_v4(address) if isinstance(address, IPv4Address) else _refused_v6(address)
        return reason or self._own(address)

    def _own(self, address: Address) -> str:
        return "this machine's own" if self._is_own(str(address)) else ""


def networks(texts: Iterable[str], where: str) -> tuple[Network, ...]:
    """Address ranges as somebody has written them there."""
    return tuple(_network(text, where) for text in texts)


def _is_in(address: Address, ranges: tuple[Network, ...]) -> bool:
    return any(address in network for network in ranges)


def _holder_of(network: Network) -> Callable[[Network], bool]:
    """Whether a range has all of this one."""
    return lambda other: network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]


def _network(text: str, where: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {text!r} is not an address range: {error}") from error


def _refused_v4(address: IPv4Address) -> str:
    return next((reason for network, reason in _REFUSED_V4 if address in network), "")


def _refused_v6(address: IPv6Address) -> str:
    if address.scope_id is not None:
        return "bound to an interface of this machine"
    for network, reason in _REFUSED_V6:
        if address in network:
            inner = _embedded(address)
            return f"{reason}, for {inner}" if inner else reason
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return f"ISATAP, for {IPv4Address(int(address) & 0xFFFFFFFF)}"
    return "" if address in _GLOBAL_V6 else "reserved"


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a transition form carries, for the reason's text."""
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    value = int(address)
    prefix = value >> 32
    if prefix in (0xFFFF, 0xFFFF0000, 0x0064FF9B << 64) or (prefix == 0 and value > 1):
        return IPv4Address(value & 0xFFFFFFFF)
    return None
