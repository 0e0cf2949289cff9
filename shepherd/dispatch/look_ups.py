"""The look-ups of a reap: which sites wait for their address, which are being looked up, and how often names may be asked for.

One page can name thousands of sites below a domain of somebody who has nothing to do with it. Each look-up ends at the name
servers of that registrable domain, so they are paced and counted by it: a rate, a number in a reap, and a row of names without an
address ends them. Sites that had an address before are looked up all the same: whoever makes up names beside theirs must not cut
them off. Names that the operator's tables have, and addresses, cost nobody anything, and wait for nothing.

Invariant: of names below one domain, new ones, at most `ROW` are looked up after the last that had an address.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from shepherd.dispatch.sites import Site
from shepherd.domains import registrable
from shepherd.formats.tables import Reason, is_resolved
from shepherd.rate import TokenBucket
from shepherd.wire import messages as wire
from shepherd.wire.hosts import host_of

ROW: Final = 20  # names without an address, one after the other, and names of this domain that may be looked up at once
SPACING_MS: Final = 100  # between two names below one domain, after so many at once as a row has
MOST_MS: Final = 60_000  # for the answer of a reaper
LOOK_UP_BIT: Final = 1 << 62  # of tokens that are not leases


@dataclass(frozen=True, slots=True)
class LookUp:
    """A look-up under way; nobody is contacted for it, so it has no lease."""

    site: Site
    domain: str  # whose name servers answer; "" = nobody is asked
    deadline_ms: int


@dataclass(slots=True)
class _Domain:
    waiting: deque[Site] | None = None
    next_ms: int = 0  # when the last of the names would have been asked for, with the spacing between any two
    names: int = 0  # asked for that were new
    misses: int = 0  # in a row, without an address
    under_way: int = 0
    in_turn: bool = False  # it is in the row of those that may have their turn, or waits for its time


class LookUps:
    """`per_s` names a second over all domains, `per_domain` new names of one in a reap; 0 = no limit."""

    def __init__(self, per_s: float, per_domain: int, needs_dns: Callable[[str], bool], now_ms: int) -> None:
        self._rate, self._per_domain, self._needs_dns = TokenBucket(per_s, now_ms), per_domain, needs_dns
        self._free: deque[Site] = deque()  # that need no name server
        self._domains: dict[str, _Domain] = {}
        self._turns: deque[str] = deque()
        self._later: list[tuple[int, str]] = []  # when it is their turn again
        self._under_way: dict[int, LookUp] = {}
        self._answers: list[tuple[wire.Resolved, int]] = []  # that came since the last turn, and from which reaper
        self._last_token = LOOK_UP_BIT
        self.waiting = 0
        self._refused: list[Site] = []

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def add(self, sites: Iterable[Site]) -> None:
        """They wait to be looked up."""
        for site in sites:
            self.waiting += 1
            host = host_of(site.name)
            if not self._needs_dns(host):
                self._free.append(site)
                continue
            name = registrable(host)
            domain = self._domains.setdefault(name, _Domain())
            domain.waiting = domain.waiting or deque()
            domain.waiting.append(site)
            self._give_turn(name, domain)

    def take(self, most: int, now_ms: int) -> list[tuple[int, Site]]:
        """At most so many that may be looked up now, each with its token."""
        while self._later and self._later[0][0] <= now_ms:
            self._turns.append(heapq.heappop(self._later)[1])
        begun: list[tuple[int, Site]] = []
        while self._free and len(begun) < most:
            begun.append(self._begin(self._free.popleft(), "", now_ms))
        affordable = self._rate.affordable(now_ms)
        while self._turns and len(begun) < most and affordable > 0:
            name = self._turns.popleft()
            site = self._next_of(name, now_ms)
            if site is not None:
                affordable -= 1
                self._rate.take(now_ms)
                begun.append(self._begin(site, name, now_ms))
        return begun

    def take_refused(self) -> list[Site]:
        """Those that will not be looked up in this reap."""
        refused, self._refused = self._refused, []
        return refused

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until one more may be looked up; None = not before one is answered or added."""
        if self._free:
            return 0
        if self._turns:
            return self._rate.wait_ms(now_ms)
        return max(self._later[0][0] - now_ms, self._rate.wait_ms(now_ms)) if self._later else None

    # --- how it ends ------------------------------------------------------------------------------------------------

    def on_answer(self, message: wire.Resolved, reaper: int) -> None:
        """A reaper has answered: this waits for the next turn."""
        self._answers.append((message, reaper))

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    def take_answers(self) -> Iterator[tuple[Site, wire.Resolved, int]]:
        """The sites of look-ups that are over, each with its answer and the reaper; one that was over before is left out."""
        answers, self._answers = self._answers, []
        for message, reaper in answers:
            site = self.answered(message.token, has_address=message.reason in (Reason.NONE, Reason.GUARD))
            if site is not None:
                yield site, message, reaper

    def answered(self, token: int, has_address: bool) -> Site | None:
        """The site of a look-up that is over; None = it was over before."""
        look_up = self._end(token)
        if look_up is None:
            return None
        if look_up.domain:
            domain = self._domains[look_up.domain]
            domain.misses = 0 if has_address else domain.misses + 1
        return look_up.site

    def reaper_lost(self, tokens: Iterable[int]) -> None:
        """Their reaper is gone: they are looked up anew."""
        self.add(look_up.site for token in tokens if (look_up := self._end(token)) is not None)

    def expire(self, now_ms: int) -> list[tuple[int, Site]]:
        """Those that no reaper has answered in time."""
        late = [token for token, look_up in self._under_way.items() if look_up.deadline_ms <= now_ms]
        return [(token, look_up.site) for token in late if (look_up := self._end(token)) is not None]

    # --- turns ------------------------------------------------------------------------------------------------------

    def _give_turn(self, name: str, domain: _Domain) -> None:
        if not domain.in_turn and domain.waiting:
            domain.in_turn = True
            self._turns.append(name)

    def _next_of(self, name: str, now_ms: int) -> Site | None:
        """The site of this domain that is looked up now, if one may be; the domain then waits for its next turn."""
        domain = self._domains[name]
        domain.in_turn = False
        if domain.next_ms > now_ms + ROW * SPACING_MS:
            self._wait(name, domain, domain.next_ms - ROW * SPACING_MS)
            return None
        while domain.waiting:
            site = domain.waiting[0]
            is_new = not (site.qkey and is_resolved(site.qkey))
            if is_new and self._is_used_up(domain):
                self.waiting -= 1
                self._refused.append(domain.waiting.popleft())
                continue
            if is_new and domain.misses + domain.under_way >= ROW:
                return None  # an answer gives it its next turn
            domain.waiting.popleft()
            domain.waiting = domain.waiting or None  # an empty one takes more room than all the rest
            domain.names += is_new
            domain.next_ms = max(domain.next_ms, now_ms) + SPACING_MS
            self._give_turn(name, domain)
            return site
        return None

    def _is_used_up(self, domain: _Domain) -> bool:
        return domain.misses >= ROW or bool(self._per_domain and domain.names >= self._per_domain)

    def _wait(self, name: str, domain: _Domain, until_ms: int) -> None:
        domain.in_turn = True
        heapq.heappush(self._later, (until_ms, name))

    def _begin(self, site: Site, domain: str, now_ms: int) -> tuple[int, Site]:
        self._last_token += 1
        self.waiting -= 1
        self._under_way[self._last_token] = LookUp(site, domain, now_ms + MOST_MS)
        if domain:
            self._domains[domain].under_way += 1
        return self._last_token, site

    def _end(self, token: int) -> LookUp | None:
        look_up = self._under_way.pop(token, None)
        if look_up is not None and look_up.domain:
            domain = self._domains[look_up.domain]
            domain.under_way -= 1
            self._give_turn(look_up.domain, domain)
        return look_up
