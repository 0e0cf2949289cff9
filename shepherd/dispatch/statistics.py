"""Counts what a reap does, for the bar, the line a minute and the report.

Timings are figures of one run: they go to the log, never into a state.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from shepherd.formats import vocabulary
from shepherd.formats.journal import FAILED, Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result, show_qkey

TOP: Final = 10  # servers that the report names
FEW: Final = 10  # percent of the servers: below this, the reap has a long tail
MEGABYTE: Final = 1_000_000
_HOP: Final = int(JournalFlag.HOP)
_RESULT: Final = vocabulary.by_number(Result)
_REASON: Final = vocabulary.by_number(Reason)  # an error's class
# Servers by how much they were asked, how slow they were, and how much of it failed: the most of each class, but of the last.
_CONTACTS: Final = {"1": 1, "2-9": 9, "10-99": 99, "100-999": 999, "1000 and more": 0}
_AVERAGE_MS: Final = {"under 100": 99, "100-999": 999, "1000-9999": 9_999, "10000 and more": 0}
_ERRORS_PERCENT: Final = {"0": 0, "1-9": 9, "10-49": 49, "50-99": 99, "100": 0}


@dataclass(slots=True)
class ServerStatistics:
    contacts: int = 0
    errors: int = 0
    wire_bytes: int = 0
    download_ms: int = 0
    name: str = ""  # of one of its sites


class Figures(NamedTuple):
    """How far a reap is."""

    pages: int
    wire_bytes: int
    errors: int
    active: int  # servers with something to give or in flight
    seconds: float

    def __str__(self) -> str:
        rate, megabytes = self.pages / self.seconds if self.seconds else 0.0, self.wire_bytes / MEGABYTE
        return f"{self.pages} pages ({rate:.1f}/s), {megabytes:.1f} MB, {self.errors} errors, {self.active} servers active"

    def short(self) -> str:
        """What a bar does not show by itself, in at most 28 columns."""
        size = _brief(self.wire_bytes // MEGABYTE, ("MB", "GB", "TB", "PB"))
        errors, active = (_brief(count, ("", "k", "M", "G")) for count in (self.errors, self.active))
        return f"{size}, {errors} err, {active} srv"


def _brief(count: int, units: tuple[str, ...]) -> str:
    """At most four digits of the first unit, or three of a larger one."""
    step = 0
    while count > (999 if step else 9_999) and step < len(units) - 1:
        count, step = count // 1_000, step + 1
    return f"{count} {units[step]}".strip() if len(units[step]) > 1 else f"{count}{units[step]}"


class ReapStatistics:
    def __init__(self, now_ms: int) -> None:
        self._start_ms = self._sampled_ms = now_ms
        self.results: Counter[str] = Counter()
        self._status: Counter[int] = Counter()
        self._errors: Counter[str] = Counter()
        self._servers: dict[int, ServerStatistics] = {}
        self._pages = self._wire_bytes = 0
        self._active = self._most_active = 0
        self._active_ms = self._tail_ms = 0

    def count(self, record: Entry, name: str) -> None:
        """A journal record that was written, and the name of the site that was asked."""
        failed = record.result in FAILED
        if not record.flags & _HOP:
            self.results[_RESULT[record.result]] += 1
            self._pages += record.kind == Kind.PAGE
            if failed:
                self._errors[_REASON[record.reason]] += 1
        if record.contacted:
            self._status[record.status] += 1
            self._wire_bytes += record.wire_bytes
            server = self._servers.get(record.qkey)
            if server is None:
                server = self._servers[record.qkey] = ServerStatistics(name=name)
            server.contacts += 1
            server.errors += failed
            server.wire_bytes += record.wire_bytes
            server.download_ms += record.download_ms

    def sample(self, now_ms: int, active: int) -> None:
        """To be called every second or so: how many servers have something to do."""
        passed_ms, self._sampled_ms = max(now_ms - self._sampled_ms, 0), now_ms
        self._active_ms += passed_ms * self._active
        if self._active * 100 < FEW * self._most_active:
            self._tail_ms += passed_ms
        self._active, self._most_active = active, max(active, self._most_active)

    def figures(self, now_ms: int) -> Figures:
        seconds = max(now_ms - self._start_ms, 0) / 1000
        return Figures(self._pages, self._wire_bytes, sum(self._errors.values()), self._active, seconds)

    def report(self, now_ms: int) -> dict[str, Any]:
        """By result, status, error class and server; how evenly the servers were busy, and for how long hardly any was.

        `utilisation_permille` is the share of all servers' time in which they had something to do: 1000 = all to the end.
        """
        self.sample(now_ms, self._active)
        elapsed_ms = max(now_ms - self._start_ms, 1)
        whole_ms = elapsed_ms * self._most_active
        return {
            "seconds": round(elapsed_ms / 1000, 3),
            "pages": self._pages,
            "wire_bytes": self._wire_bytes,
            "results": dict(sorted(self.results.items())),
            "statuses": {str(status) if status else "none": count for status, count in sorted(self._status.items())},
            "errors": dict(sorted(self._errors.items())),
            "servers": len(self._servers),
            "most_active": self._most_active,
            "utilisation_permille": 1000 * self._active_ms // whole_ms if whole_ms else 0,
            "tail_s": round(self._tail_ms / 1000, 3),
            "servers_by_contacts": self._classes(lambda server: server.contacts, _CONTACTS),
            "servers_by_average_ms": self._classes(_average_ms, _AVERAGE_MS),
            "servers_by_errors_percent": self._classes(_errors_percent, _ERRORS_PERCENT),
            "busiest": self._most(lambda server: server.contacts),
            "slowest": self._most(_average_ms),
            "failing": self._most(lambda server: server.errors),
        }

    def servers(self) -> Iterator[dict[str, Any]]:
        """Every server that was contacted, by its queue key."""
        return (_as_object(*entry) for entry in sorted(self._servers.items()))

    def _most(self, value: Callable[[ServerStatistics], int]) -> list[dict[str, Any]]:
        """Those with most of something; none that has nothing of it."""
        some = (entry for entry in self._servers.items() if value(entry[1]))
        return [_as_object(*entry) for entry in heapq.nsmallest(TOP, some, key=lambda entry: (-value(entry[1]), entry[0]))]

    def _classes(self, value: Callable[[ServerStatistics], int], most: Mapping[str, int]) -> dict[str, int]:
        """How many servers are in each class; an empty one is left out."""
        names, limits = list(most), list(most.values())[:-1]
        counts = Counter(bisect.bisect_left(limits, value(server)) for server in self._servers.values())
        return {names[place]: count for place, count in sorted(counts.items())}


def _average_ms(server: ServerStatistics) -> int:
    return server.download_ms // max(server.contacts, 1)


def _errors_percent(server: ServerStatistics) -> int:
    """One error is not none, and one that went well is not all."""
    if not 0 < server.errors < server.contacts:
        return 100 if server.errors else 0
    return min(max(100 * server.errors // server.contacts, 1), 99)


def _as_object(qkey: int, server: ServerStatistics) -> dict[str, Any]:
    return {
        "server": show_qkey(qkey),
        "site": server.name,
        "contacts": server.contacts,
        "errors": server.errors,
        "wire_bytes": server.wire_bytes,
        "average_ms": _average_ms(server),
    }
