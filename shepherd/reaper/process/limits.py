"""The limits of a reapd: how many workers, how much each may do before it is replaced or ended, and whom none may contact."""

from __future__ import annotations

from dataclasses import dataclass, field

from shepherd.reaper.fetch.guard import TRUSTING, ReaperRules


@dataclass(frozen=True)
class WorkerLimits:
    workers: int = 64  # connections served at a time
    recycle: int = 100_000  # answers, after which a worker is replaced; 0 = never
    memory_bytes: int = 2 << 30  # of address space, for each process; 0 = no limit
    parse_s: float = 20.0  # at one page, before its process is killed
    authorities: str = field(default="", repr=False)  # in PEM, to trust where a dispatcher names none; "" = a file has them
    rules: ReaperRules = TRUSTING
