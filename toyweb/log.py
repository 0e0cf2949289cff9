"""The access log: what the toy web saw of its clients, and whether they were polite.

A line is written for every request, just before the last bytes of its answer are sent. `start_s` is when the request was read and
`end_s` when the answer was handed to the network: both as the server sees them, so the first is never before the client
started and the second never after the client had the answer. A client that waits `delay` shows gaps of at least `delay` here.
A line is one write to a file opened for appending, so several processes can share the file; lines of different processes stand
in no particular order. Here is the one judge of politeness, for tests and benchmarks alike:
`audit` finds faults, `gaps` measures.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import UsageError

COLUMNS = ("start", "end", "address", "port", "scheme", "host", "path", "status", "bytes", "agent", "conditional")


@dataclass(frozen=True)
class AccessEntry:
    """One request. Status 0 = the connection was closed without an answer; no host = it was no request, or TLS failed."""

    start_s: float
    end_s: float
    address: str
    port: int
    scheme: str
    host: str
    path: str
    status: int
    size_bytes: int
    agent: str
    conditional: bool

    @property
    def site(self) -> str:
        return f"{self.scheme}://{self.host}"

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Gap:
    """What the log shows of one server or site. `smallest_s` is from the end of a request to the begin of the next one; below 0
    they overlapped. None where there were fewer than two requests."""

    whom: str
    requests: int
    smallest_s: float | None
    overlaps: int
    most_at_once: int


@dataclass(frozen=True)
class Violation:
    """A request that came too early for `whom` (an address or a site): `gap_s` after the end of the one it had to wait for."""

    whom: str
    gap_s: float
    delay_s: float
    before: AccessEntry
    after: AccessEntry

    def __str__(self) -> str:
        first, second = (f"{entry.site}{entry.path}" for entry in (self.before, self.after))
        return f"{self.whom}: {second} was asked for {self.gap_s:.6f} s after the end of {first}, not {self.delay_s:g} s"


def header_line() -> bytes:
    return ("\t".join(COLUMNS) + "\n").encode()


def line(entry: AccessEntry) -> bytes:
    """An entry as it is written. Times have microseconds, so that rounding never makes a gap look too short."""
    conditional = "yes" if entry.conditional else "no"
    host, path, agent = _printable(entry.host), _printable(entry.path), _printable(entry.agent)
    times = f"{entry.start_s:.6f}\t{entry.end_s:.6f}\t{entry.address}\t{entry.port}\t{entry.scheme}"
    return f"{times}\t{host}\t{path}\t{entry.status}\t{entry.size_bytes}\t{agent}\t{conditional}\n".encode()


def read_log(path: Path) -> list[AccessEntry]:
    """All entries of an access log; those of one process in the order in which they ended."""
    with path.open(encoding="utf-8") as lines:
        if lines.readline().rstrip("\n").split("\t") != list(COLUMNS):
            raise UsageError(f"{path}:1: not the access log of a toy web: its first line names other columns")
        return [_parse(path, number, text) for number, text in enumerate(lines, start=2)]


def audit(
    entries: Iterable[AccessEntry],
    delay_s_of: Mapping[str, float] | Callable[[str], float],
    slots: int = 1,
    tolerance_s: float = 0.0,
) -> list[Violation]:
    """Every request that came too early, by the rules of host groups.

    An address has `slots`: each takes one request at a time, and the next one only its delay after the end of the last.
    A site has one slot. `delay_s_of` is asked for addresses and hosts; a mapping may leave out hosts, which then have the
    delay of their address.
    """
    by_address, by_site = _grouped(entries)

    def delay_s(name: str, address: str) -> float:
        if callable(delay_s_of):
            return delay_s_of(name)
        return delay_s_of[name] if name in delay_s_of else delay_s_of[address]

    violations = []
    for address, group in by_address.items():
        violations += _too_early(address, group, delay_s(address, address), slots, tolerance_s)
    for (site, address), group in by_site.items():
        violations += _too_early(site, group, delay_s(group[0].host, address), 1, tolerance_s)
    return violations


def gaps(entries: Iterable[AccessEntry]) -> tuple[list[Gap], list[Gap]]:
    """What every server and what every site saw, those with the smallest gap first."""
    by_address, by_site = _grouped(entries)
    servers = [_gap(address, group) for address, group in by_address.items()]
    sites = [_gap(site, group) for (site, _), group in by_site.items()]
    return sorted(servers, key=_narrowness), sorted(sites, key=_narrowness)


def _narrowness(gap: Gap) -> float:
    return float("inf") if gap.smallest_s is None else gap.smallest_s


def _gap(whom: str, group: list[AccessEntry]) -> Gap:
    """`group` by its begins. A gap is counted from the latest end so far: a long request hides no short one behind it."""
    smallest_s: float | None = None
    latest_s = group[0].end_s
    overlaps = 0
    running: list[float] = [latest_s]
    most = 1
    for entry in group[1:]:
        gap_s = round(entry.start_s - latest_s, 6)
        smallest_s = gap_s if smallest_s is None else min(smallest_s, gap_s)
        overlaps += gap_s < 0
        latest_s = max(latest_s, entry.end_s)
        while running and running[0] <= entry.start_s:
            heapq.heappop(running)
        heapq.heappush(running, entry.end_s)
        most = max(most, len(running))
    return Gap(whom, len(group), smallest_s, overlaps, most)


def _grouped(entries: Iterable[AccessEntry]) -> tuple[dict[str, list[AccessEntry]], dict[tuple[str, str], list[AccessEntry]]]:
    """By address, and by site and address; each group by its begins. What has no host counts for its address alone."""
    by_address: dict[str, list[AccessEntry]] = {}
    by_site: dict[tuple[str, str], list[AccessEntry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.start_s, entry.end_s)):
        by_address.setdefault(entry.address, []).append(entry)
        if entry.host:
            by_site.setdefault((entry.site, entry.address), []).append(entry)
    return by_address, by_site


def _too_early(whom: str, group: list[AccessEntry], delay_s: float, slots: int, tolerance_s: float) -> list[Violation]:
    # The slots by the end of their last request. Giving each request to the slot that is free the longest finds a
    # polite reading of the log whenever there is one.
    ends: list[tuple[float, int]] = []
    violations = []
    for number, entry in enumerate(group):
        if len(ends) == slots:
            end_s, last = heapq.heappop(ends)
            gap_s = entry.start_s - end_s
            # Subtracting times of today costs a fraction of a microsecond, which the log does not resolve.
            if round(gap_s, 6) < delay_s - tolerance_s:
                violations.append(Violation(whom, gap_s, delay_s, group[last], entry))
        heapq.heappush(ends, (entry.end_s, number))
    return violations


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def _parse(path: Path, number: int, text: str) -> AccessEntry:
    try:
        start, end, address, port, scheme, *rest = text.rstrip("\n").split("\t")
        host, page, status, size, agent, conditional = rest
        times = float(start), float(end)
        return AccessEntry(*times, address, int(port), scheme, host, page, int(status), int(size), agent, conditional == "yes")
    except ValueError as error:
        raise UsageError(f"{path}:{number}: not a line of a toy web's access log: {error}") from error
