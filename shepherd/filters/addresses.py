"""Address ranges: which of the lines that name ranges hold an address.

An address comes as the host of a URL that is a literal address, or as a queue key. The queue key of an IPv4 address is that
address; that of an IPv6 address is a hash of it (docs/formats.md), so of the IPv6 ranges only single addresses are found by queue
key.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shepherd.filters.patterns import Pattern
from shepherd.urls import qkey_of_address

Ranks: TypeAlias = tuple[int, ...]  # ascending
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
U64: TypeAlias = npt.NDArray[np.uint64]
Codes: TypeAlias = npt.NDArray[np.int64]

_KIND_IPV4: Final = 0x04
_KIND_SHIFT: Final = 56
_LAST: Final = frozenset("0123456789]")


class Ranges:
    """The ranges of many lines, cut into pieces that lie in the same lines throughout."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        networks = [(ipaddress.ip_network(pattern.text), pattern.rank) for pattern in patterns]
        self._bounds, self._pieces = {}, {}
        for version in (4, 6):
            mine = [(network, rank) for network, rank in networks if network.version == version]
            self._bounds[version], self._pieces[version] = _cut(mine)
        single: dict[int, set[int]] = {}
        for network, rank in networks:
            if network.version == 6 and network.num_addresses == 1:
                single.setdefault(qkey_of_address(str(network.network_address)), set()).add(rank)
        self._single: dict[int, Ranks] = {qkey: tuple(sorted(ranks)) for qkey, ranks in single.items()}
        self._any = bool(networks)

    def __bool__(self) -> bool:
        return self._any

    def of_host(self, host: str) -> Ranks:
        """The lines that hold a host, if it is an address: 192.0.2.1 or [2001:db8::1]."""
        if not self._any or not is_literal(host):
            return ()
        address = ipaddress.ip_address(host.strip("[]"))
        ranks = self._ranks_of(address.version, int(address))
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            # The same machine in another spelling, and no way around a rule.
            return merge_ranks(ranks, self._ranks_of(4, int(address.ipv4_mapped)))
        return ranks

    def of_qkey(self, qkey: int) -> Ranks:
        if qkey >> _KIND_SHIFT == _KIND_IPV4:
            return self._ranks_of(4, qkey & 0xFFFFFFFF)
        return self._single.get(qkey, ())

    def classes(self, qkeys: U64) -> tuple[Codes, list[Ranks]]:
        """For each queue key a position in the list of lines; the first, 0, is that of no line."""
        code_of_ranks: dict[Ranks, int] = {(): 0}
        codes = np.zeros(len(qkeys), np.int64)
        if not self._any:
            return codes, [()]
        of_piece = np.array([code_of_ranks.setdefault(ranks, len(code_of_ranks)) for ranks in self._pieces[4]], np.int64)
        bounds = np.array(self._bounds[4], np.uint64)
        v4 = np.flatnonzero(qkeys >> np.uint64(_KIND_SHIFT) == _KIND_IPV4)
        codes[v4] = of_piece[np.searchsorted(bounds, qkeys[v4] & np.uint64(0xFFFFFFFF), side="right")]
        for qkey, ranks in self._single.items():
            codes[qkeys == np.uint64(qkey)] = code_of_ranks.setdefault(ranks, len(code_of_ranks))
        return codes, list(code_of_ranks)

    def _ranks_of(self, version: int, address: int) -> Ranks:
        return self._pieces[version][bisect_right(self._bounds[version], address)]


def is_literal(host: str) -> bool:
    """Whether the host of a normalised URL is an address: by the rules of URLs one that ends in a number is, or is no host."""
    return host[-1:] in _LAST and (host[0] == "[" or host.rpartition(".")[2].isdecimal())


def _cut(networks: list[tuple[Network, int]]) -> tuple[list[int], list[Ranks]]:
    """Where pieces begin, in order, and the lines of each; the piece before the first bound comes first and has none."""
    changes: dict[int, list[tuple[int, int]]] = {}
    for network, rank in networks:
        first = int(network.network_address)
        changes.setdefault(first, []).append((rank, 1))
        changes.setdefault(first + network.num_addresses, []).append((rank, -1))
    bounds = sorted(changes)
    pieces: list[Ranks] = [()]
    holding: dict[int, int] = {}
    for bound in bounds:
        for rank, step in changes[bound]:
            holding[rank] = holding.get(rank, 0) + step
            if not holding[rank]:
                del holding[rank]
        pieces.append(tuple(sorted(holding)))
    return bounds, pieces


def merge_ranks(some: Ranks, others: Ranks) -> Ranks:
    """The lines of both."""
    return tuple(sorted({*some, *others})) if some and others else some or others
