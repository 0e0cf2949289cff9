"""Requests under way, from hand-out to outcome. Read `fate` and `politeness.groups.engine` first.

What reapers say of them is queued as it arrives, and handled a batch at a time: answers are verified, then their leases end in
one call, and those that the engine accepts go to their outcome. The others came too late: their leases expire, and it is as if
nobody had answered. While a call is under way more may arrive; it waits for the next batch.

Invariant: a request is open until its lease has ended or expired, and then it has exactly one outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from shepherd.clock import end_of
from shepherd.dispatch import fate
from shepherd.dispatch.fate import Case
from shepherd.dispatch.fleet import Fleet
from shepherd.dispatch.group_calls import GroupCalls
from shepherd.dispatch.outcome import Outcomes
from shepherd.dispatch.reapers import Reaper
from shepherd.dispatch.verify import Answer, PendingRequest, Verifier
from shepherd.errors import BadUrl, Corruption
from shepherd.politeness.groups.engine import Extension, FetchEnd, FetchLease, Groups
from shepherd.politeness.server_limits import ServerLimits
from shepherd.politeness.shared_contacts import SharedContacts
from shepherd.rate import ReapLimits
from shepherd.wire import messages as wire

LOG = logging.getLogger("shepherd.dispatch")


@dataclass(frozen=True, slots=True)
class _Reply:
    """What a reaper has answered."""

    message: wire.FetchResult
    reaper: Reaper

    @property
    def token(self) -> int:
        return self.message.token


@dataclass(frozen=True, slots=True)
class _Death:
    """A worker of a reaper has died at a page, it says."""

    token: int
    home: str


@dataclass(frozen=True, slots=True)
class _Conclusion:
    """A request whose lease is about to end: with an answer that holds, or with a case."""

    request: PendingRequest
    end: FetchEnd
    answer: Answer | None = None
    case: Case | None = None


class Exchanges:
    def __init__(
        self,
        groups: Groups,
        calls: GroupCalls,
        server_limits: ServerLimits,
        verifier: Verifier,
        outcomes: Outcomes,
        limits: ReapLimits,
        fleet: Fleet,
        clock_ms: Callable[[], int],
        shared: SharedContacts | None,
        is_ending: Callable[[], bool],
    ) -> None:
        self._groups, self._calls, self._server_limits, self._verifier = groups, calls, server_limits, verifier
        self._outcomes, self._limits, self._fleet = outcomes, limits, fleet
        self._clock, self._shared, self._is_ending = clock_ms, shared, is_ending
        self._open: dict[int, PendingRequest] = {}  # by lease token
        self._arrived: list[_Reply | _Death] = []
        self._deaths: set[_Death] = set()  # among what has arrived
        self._extensions: dict[int, Extension] = {}  # by lease token

    def __len__(self) -> int:
        return len(self._open)

    def get(self, token: int) -> PendingRequest | None:
        return self._open.get(token)

    def wait_ms(self, lease: FetchLease, qkey: int, now: int) -> int:
        """How long other databases of this machine need the server; 0 = none does, and from now on none may ask it."""
        if self._shared is None:
            return 0
        return self._shared.take(qkey, self._server_limits.wait_ms(lease.group), lease.expires_ms - now)

    def begin(self, token: int, request: PendingRequest) -> None:
        """A request that is sent under this lease."""
        self._open[token] = request

    # --- what arrives -----------------------------------------------------------------------------------------------

    def on_reply(self, reaper: Reaper, message: wire.FetchResult) -> None:
        reaper.hold(message.size)
        self._arrived.append(_Reply(message, reaper))

    def on_death(self, token: int, home: str) -> None:
        """Its exchange was over. A reaper is believed only about what it was asked itself: others may still be at their pages."""
        death = _Death(token, home)
        if token in self._open and death not in self._deaths:  # however often it is said, it is kept once
            self._deaths.add(death)
            self._arrived.append(death)

    def extend(self, token: int, until_ms: int) -> None:
        """Let its lease last until then."""
        self._extensions[token] = Extension(token, until_ms)

    # --- what is made of it -----------------------------------------------------------------------------------------

    async def handle(self) -> None:
        """All that has arrived."""
        while self._arrived or self._extensions:
            inbox, self._arrived = self._arrived, []
            extensions, self._extensions = list(self._extensions.values()), {}
            self._deaths.clear()
            if extensions:
                self._extend_shared(extensions)
                await self._groups.extend_many(extensions)
            ends = [end for event in inbox if (end := self._conclude(event)) is not None]
            if ends:
                await self._release(ends)
            for event in inbox:
                if isinstance(event, _Reply):
                    event.reaper.release(event.message.size)

    def _conclude(self, event: _Reply | _Death) -> _Conclusion | None:
        """Take a request out of the open ones, if it is among them: else it is over already."""
        request = self._open.get(event.token)
        if request is None or (isinstance(event, _Death) and event.home != request.home):
            return None
        del self._open[event.token]
        if isinstance(event, _Death):
            LOG.warning("%s: a worker of %s died at this page", request.url, event.home)
            return _Conclusion(request, FetchEnd(event.token), case=fate.at_a_dead_worker(request.item))
        try:
            answer = self._verifier.checked(event.message, request, event.reaper.number, end_of(self._clock()))
        except (Corruption, BadUrl) as error:
            LOG.warning("reaper %d sent an answer that does not hold: %s", event.reaper.number, error)
            return _Conclusion(request, FetchEnd(event.token), case=fate.refused(request.item))
        delay_ms = self._server_limits.after_answer(request.group, request.item.contact, answer.record)
        return _Conclusion(request, FetchEnd(event.token, answer.contacted, delay_ms), answer)

    async def _release(self, ends: list[_Conclusion]) -> None:
        await self._calls.flush_changes()  # what the answers say of their servers holds before anybody is asked again
        now = end_of(self._clock())
        accepted = await self._groups.release_many([conclusion.end for conclusion in ends], now)
        for conclusion, is_accepted in zip(ends, accepted, strict=True):
            if is_accepted:
                self._carry_out(conclusion, now)
            else:
                self._open[conclusion.end.token] = conclusion.request

    def _extend_shared(self, extensions: list[Extension]) -> None:
        shared, now = self._shared, self._clock()
        for token, until_ms in extensions if shared is not None else ():
            request = self._open.get(token)
            if shared is not None and request is not None:
                shared.extend(request.qkey, until_ms - now)

    def _end_shared(self, request: PendingRequest, contacted: bool, delay_ms: int | None) -> None:
        """Others of this machine may ask the server, when its delay has passed."""
        if self._shared is not None:
            self._shared.end(request.qkey, contacted, max(self._server_limits.wait_ms(request.group), delay_ms or 0))

    def _carry_out(self, conclusion: _Conclusion, now: int) -> None:
        request, answer, case = conclusion.request, conclusion.answer, conclusion.case
        self._end_shared(request, conclusion.end.contacted, conclusion.end.delay_ms)
        if answer is not None:
            self._limits.charge_bytes(now, answer.record.wire_bytes)
            case = self._outcomes.case_of(request.item, answer, is_ending=self._is_ending())
            self._outcomes.answered(request.item, answer, case)
        elif case is not None:
            self._outcomes.unanswered(request, case)

    async def expire(self, now: int) -> None:
        """Requests that nobody answered in time."""
        for lease in await self._groups.expire(now):
            request = self._open.pop(lease.token, None)
            if request is not None:
                self._fleet.forget(lease.token)
                self._end_shared(request, True, None)
                self._outcomes.unanswered(request, fate.unanswered(request.item))
