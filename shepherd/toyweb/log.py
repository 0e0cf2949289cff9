"""The access log: what the toy web saw of its clients, and whether they were polite.

A line is written for every request, just before the last bytes of its answer are sent. `start_s` is when the request was read and
`end_s` when the answer was handed to the network: both as the server sees them, so the first is never before the client
started and the second never after the client had the answer. A client that waits `delay` shows gaps of at least `delay` here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import UsageError

COLUMNS = ("start", "end", "address", "port", "host", "path", "status", "bytes", "agent", "conditional")


@dataclass(frozen=True)
class Entry:
    """One request. Status 0 = the connection was closed without an answer."""

    start_s: float
    end_s: float
    address: str
    port: int
    host: str
    path: str
    status: int
    size_bytes: int
    agent: str
    conditional: bool


@dataclass(frozen=True)
class Violation:
    """A request that came too early for `whom` (an address or a host): `gap_s` after the end of the one it had to wait for."""

    whom: str
    gap_s: float
    delay_s: float
    before: Entry
    after: Entry

    def __str__(self) -> str:
        first, second = (f"http://{entry.host}{entry.path}" for entry in (self.before, self.after))
        return f"{self.whom}: {second} was asked for {self.gap_s:.6f} s after the end of {first}, not {self.delay_s:g} s"


def header_line() -> bytes:
    return ("\t".join(COLUMNS) + "\n").encode()


def line(entry: Entry) -> bytes:
    """An entry as it is written. Times have microseconds, so that rounding never makes a gap look too short."""
    fields = (
        f"{entry.start_s:.6f}",
        f"{entry.end_s:.6f}",
        entry.address,
        str(entry.port),
        _printable(entry.host),
        _printable(entry.path),
        str(entry.status),
        str(entry.size_bytes),
        _printable(entry.agent),
        "yes" if entry.conditional else "no",
    )
    return ("\t".join(fields) + "\n").encode()


def read_log(path: Path) -> list[Entry]:
    """All entries of an access log, in the order in which they ended."""
    with path.open(encoding="utf-8") as lines:
        if lines.readline().rstrip("\n").split("\t") != list(COLUMNS):
            raise UsageError(f"{path}:1: not the access log of a toy web: its first line names other columns")
        return [_parse(path, number, text) for number, text in enumerate(lines, start=2)]


def audit(
    entries: Iterable[Entry], delay_s_of: Mapping[str, float] | Callable[[str], float], slots: int = 1, tolerance_s: float = 0.0
) -> list[Violation]:
    """Every request that came too early, by the rules of host groups.

    An address has `slots`: each takes one request at a time, and the next one only its delay after the end of the last.
    A host has one slot. `delay_s_of` is asked for addresses and hosts; a mapping may leave out hosts, which then have the
    delay of their address.
    """
    by_address: dict[str, list[Entry]] = {}
    by_host: dict[tuple[str, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.start_s, entry.end_s)):
        by_address.setdefault(entry.address, []).append(entry)
        by_host.setdefault((entry.host, entry.address), []).append(entry)

    def delay_s(name: str, address: str) -> float:
        if callable(delay_s_of):
            return delay_s_of(name)
        return delay_s_of[name] if name in delay_s_of else delay_s_of[address]

    found = []
    for address, group in by_address.items():
        found += _too_early(address, group, delay_s(address, address), slots, tolerance_s)
    for (host, address), group in by_host.items():
        found += _too_early(host, group, delay_s(host, address), 1, tolerance_s)
    return found


def _too_early(whom: str, group: list[Entry], delay_s: float, slots: int, tolerance_s: float) -> list[Violation]:
    # The slots by the end of their last request. Giving each request to the slot that is free the longest finds a
    # polite reading of the log whenever there is one.
    ends: list[tuple[float, int]] = []
    found = []
    for number, entry in enumerate(group):
        if len(ends) == slots:
            end_s, last = heapq.heappop(ends)
            gap_s = entry.start_s - end_s
            # Subtracting times of today costs a fraction of a microsecond, which the log does not resolve.
            if round(gap_s, 6) < delay_s - tolerance_s:
                found.append(Violation(whom, gap_s, delay_s, group[last], entry))
        heapq.heappush(ends, (entry.end_s, number))
    return found


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def _parse(path: Path, number: int, text: str) -> Entry:
    try:
        start, end, address, port, host, page, status, size, agent, asked = text.rstrip("\n").split("\t")
        return Entry(float(start), float(end), address, int(port), host, page, int(status), int(size), agent, asked == "yes")
    except ValueError as error:
        raise UsageError(f"{path}:{number}: not a line of a toy web's access log: {error}") from error
