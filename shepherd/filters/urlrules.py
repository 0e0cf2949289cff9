"""Which line decides about a URL: hosts and extensions from dicts, counts by arithmetic, all else by one RE2 set.

This is the part that every link of every page goes through. What depends on the site alone is remembered, and the set is only
asked where one of its lines could still come before the one already found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from shepherd.filters.addresses import Ranges, is_literal
from shepherd.filters.patterns import MOST_COUNT, SEARCHED, Pattern, SearchSet
from shepherd.filters.scope import Scope, begins_with_one
from shepherd.urls import PAST_SCHEME

SITE_CACHE: Final = 65_536
OUTSIDE: Final = 0  # the rank of what lies outside the scope


class UrlRules:
    """Finds the lowest rank among the patterns that match an href."""

    def __init__(self, patterns: Sequence[Pattern], no_match: int, scope: Scope | None = None) -> None:
        """`patterns` in ascending rank; `no_match` is the rank to return if none matches, higher than all others. Where there is
        a scope, what lies outside has the rank 0, which no pattern may have."""
        self._no_match = no_match
        self._scope = scope
        self._paths_of_site: dict[str, tuple[str, ...]] = {}  # of sites that lie in the scope with a part of their paths
        self._hosts = _first_ranks(patterns, "host")
        self._lengths, self._depths, self._repeats = (_counts(patterns, kind) for kind in ("length", "depth", "repeats"))
        self.ranges: Final = Ranges([pattern for pattern in patterns if pattern.kind == "address"])
        self._rank_of_site: dict[str, int] = {}
        searched = [pattern for pattern in patterns if pattern.kind in SEARCHED]
        self.first: Final = self._finder(_first_ranks(patterns, "ext"), SearchSet(searched), [p.rank for p in searched])

    def _finder(self, exts: dict[str, int], search: SearchSet, ranks: list[int]) -> Callable[[str], int]:
        """The lowest rank by everything that an href says itself.

        A function of its own with what it needs in local names, because a method takes an eighth longer.
        """
        rank_of_site, learn, by_length, by_components = self._rank_of_site, self._learn, self._by_length, self._by_components
        shortest = min(self._lengths, default=MOST_COUNT)  # only longer ones are of interest
        fewest = min([MOST_COUNT, *(n + 1 for n in self._depths), *self._repeats])  # slashes in the path, likewise
        shallowest, spare = min(self._depths, default=MOST_COUNT), min(self._repeats, default=MOST_COUNT) - 1
        has_counts, by_path = fewest < MOST_COUNT, bool(exts) or fewest < MOST_COUNT
        doubled = {ext.rpartition(".")[2] for ext in exts if "." in ext}  # the gz of tar.gz
        ranks = [*ranks, self._no_match]
        first_searched, match = ranks[0], search.match
        paths_of_site = self._paths_of_site

        def first(href: str) -> int:
            slash = href.find("/", PAST_SCHEME)
            site = href[:slash]
            rank = rank_of_site[site] if site in rank_of_site else learn(site)
            if site in paths_of_site and not begins_with_one(href[slash:], paths_of_site[site]):
                return OUTSIDE
            if len(href) > shortest:
                rank = by_length(href, rank)
            if by_path:
                end = href.find("?", slash)
                if end < 0:
                    end = len(href)
                dot = href.rfind(".", slash, end)
                if dot > 0:  # before the last slash it makes an extension with a slash in it, which no pattern has
                    ext = href[dot + 1 : end].lower()
                    other_rank = exts.get(ext, rank)
                    if other_rank < rank:
                        rank = other_rank
                    if ext in doubled:
                        other_rank = exts.get(href[href.rfind(".", slash, dot) + 1 : end].lower(), rank)
                        if other_rank < rank:
                            rank = other_rank
                if has_counts and href.count("/", slash, end) >= fewest:
                    parts = href[slash:end].split("/")  # N equal ones make N - 1 more than there are different ones
                    if len(parts) > shallowest + 1 or len(parts) - len(set(parts)) >= spare:
                        rank = by_components(parts, rank)
            if first_searched < rank:
                other_rank = ranks[min(match(href.encode()))]
                if other_rank < rank:
                    rank = other_rank
            return rank

        return first

    def by_qkey(self, qkey: int) -> int:
        """The lowest rank among the address ranges that hold a server."""
        return min(self.ranges.of_qkey(qkey), default=self._no_match)

    def _by_length(self, href: str, rank: int) -> int:
        return min(rank, _rank_reached(self._lengths, len(href) - 1, rank))

    def _by_components(self, parts: list[str], rank: int) -> int:
        components = [part for part in parts if part]
        rank = min(rank, _rank_reached(self._depths, len(components) - 1, rank))
        most = max(Counter(components).values(), default=0)
        return min(rank, _rank_reached(self._repeats, most, rank))

    def _learn(self, site: str) -> int:
        """The lowest rank by host, remembered."""
        if len(self._rank_of_site) >= SITE_CACHE:
            self._rank_of_site.clear()
            self._paths_of_site.clear()
        paths = self._scope.paths_at(site) if self._scope else None
        if paths == ():
            self._rank_of_site[site] = OUTSIDE
            return OUTSIDE
        if paths is not None:
            self._paths_of_site[site] = paths
        host = host_of(site)
        hosts, rank = self._hosts, min(self.ranges.of_host(host), default=self._no_match) if is_literal(host) else self._no_match
        while host:
            if host in hosts and hosts[host] < rank:
                rank = hosts[host]
            host = host.partition(".")[2]
        self._rank_of_site[site] = rank
        return rank


def host_of(site: str) -> str:
    """The host of `scheme://host[:port]`."""
    start = site.index("/") + 2
    if site[start] == "[":
        return site[start : site.index("]") + 1]
    colon = site.find(":", start)
    host = site[start:colon] if colon > 0 else site[start:]
    return host.removesuffix(".")  # `example.org.` is the same machine, and no way around a rule


def _first_ranks(patterns: Sequence[Pattern], kind: str) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for pattern in patterns:
        if pattern.kind == kind:
            ranks.setdefault(pattern.text, pattern.rank)
    return ranks


def _counts(patterns: Sequence[Pattern], kind: str) -> dict[int, int]:
    """Rank by count, of the lines that an earlier one with a smaller count does not make idle."""
    ranks: dict[int, int] = {}
    for pattern in patterns:
        if pattern.kind == kind and int(pattern.text) < min(ranks, default=MOST_COUNT + 1):
            ranks[int(pattern.text)] = pattern.rank
    return ranks


def _rank_reached(ranks: dict[int, int], count: int, otherwise: int) -> int:
    """The lowest rank of a line whose count is reached."""
    return min((rank for least, rank in ranks.items() if least <= count), default=otherwise)
