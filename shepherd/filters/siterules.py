"""Which `set` and `group` lines speak of a site: by host, by a glob over its name, and by the addresses it is on.

Sites that the same lines speak of have the same settings. So a table of millions of sites becomes one small number a site and a
short list of settings, and most sites, which no line speaks of, cost a few lookups in a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shepherd.filters.addresses import U64, Codes, Ranges, Ranks, merge_ranks
from shepherd.filters.patterns import Pattern, SearchSet
from shepherd.filters.settings import IGNORE_ROBOTS, SetLine, SiteSettings, settings_by
from shepherd.filters.urlrules import host_of


def ignore_robots(policy: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_]:
    """`ignores_robots` of many sites."""
    return np.asarray(policy & np.uint16(IGNORE_ROBOTS) != 0)


@dataclass(frozen=True)
class SiteClasses:
    """The settings of many sites: those of the n-th are `settings[codes[n]]`; code 0 is that no line speaks of it."""

    codes: Codes
    settings: list[SiteSettings]


class SiteRules:
    """The lines, which are ranked in their order, and their patterns."""

    def __init__(self, lines: Sequence[SetLine], patterns: Sequence[Pattern]) -> None:
        self._lines = tuple(lines)
        hosts: dict[str, set[int]] = {}
        for pattern in patterns:
            if pattern.kind == "host":
                hosts.setdefault(pattern.text, set()).add(pattern.rank)
        self._hosts: dict[str, Ranks] = {host: tuple(sorted(ranks)) for host, ranks in hosts.items()}
        globs = [pattern for pattern in patterns if pattern.kind == "glob"]
        self._globs = SearchSet(globs)
        self._rank_of_glob = [pattern.rank for pattern in globs]
        self._ranges = Ranges([pattern for pattern in patterns if pattern.kind == "address"])

    def set_lines(self, name: str, qkey: int = 0) -> list[SetLine]:
        """The lines that decide about `scheme://host[:port]`, at most one for each setting."""
        return self._deciding(merge_ranks(self._by_name(name), self._ranges.of_qkey(qkey)))

    def classify(self, names: Iterable[bytes], qkeys: U64 | None = None) -> SiteClasses:
        """The settings of many sites; with `qkeys`, one for each name, also by the address ranges that hold those servers."""
        if not self._lines:
            count = len(names) if isinstance(names, Sized) else sum(1 for _name in names)
            return SiteClasses(np.zeros(count, np.int64), [SiteSettings()])
        code_of_ranks: dict[Ranks, int] = {(): 0}
        lines = (self._by_name(name.decode("ascii")) for name in names)
        codes = np.fromiter((code_of_ranks.setdefault(ranks, len(code_of_ranks)) for ranks in lines), np.int64)
        by_name = list(code_of_ranks)
        if qkeys is None or not self._ranges:
            return SiteClasses(codes, [settings_by(self._deciding(ranks)) for ranks in by_name])
        servers, by_server = self._ranges.classes(qkeys)
        pairs, codes = np.unique(np.append(0, codes * len(by_server) + servers), return_inverse=True)
        both = [merge_ranks(by_name[pair // len(by_server)], by_server[pair % len(by_server)]) for pair in pairs.tolist()]
        return SiteClasses(codes[1:], [settings_by(self._deciding(ranks)) for ranks in both])

    def _by_name(self, name: str) -> Ranks:
        host = host_of(name)
        ranks = self._ranges.of_host(host)
        while host:
            if host in self._hosts:
                ranks = merge_ranks(ranks, self._hosts[host])
            host = host.partition(".")[2]
        if self._rank_of_glob:
            ranks = merge_ranks(ranks, tuple(sorted(self._rank_of_glob[position] for position in self._globs.positions(name))))
        return ranks

    def _deciding(self, ranks: Ranks) -> list[SetLine]:
        """The first line of each name."""
        first: dict[str, SetLine] = {}
        for rank in ranks:
            first.setdefault(self._lines[rank].name, self._lines[rank])
        return list(first.values())
