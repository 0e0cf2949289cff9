"""Memory that ran short: whether the kernel has killed for it, as far as the system lets us see.

A process that is killed so cannot say why it ended. Whoever waited for it compares two counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_COUNTERS: Final = ("/sys/fs/cgroup/memory.events", "/proc/vmstat")  # of our own group, where it shows; else of the whole system
SMALLER: Final = "lower store.partition_rows, run fewer --jobs, or give it more memory"


def kills() -> int:
    """How often the kernel has killed a process because memory ran short; 0 where nobody says."""
    for place in map(Path, _own_counters()):
        try:
            lines = place.read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            continue
        counts = [line.split() for line in lines if line.startswith("oom_kill ")]
        if counts and counts[0][-1].isdecimal():
            return int(counts[0][-1])
    return 0


def reason(kills_before: int) -> str:
    """Why a process got SIGKILL that nobody of ours has sent; `kills_before` is the count from when it began."""
    if kills() > kills_before:
        return "because memory ran short: the kernel has counted it"
    return "most likely because memory ran short: the kernel's log (dmesg) says whether"


def _own_counters() -> tuple[str, ...]:
    """The counter of our control group first."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return _COUNTERS
    unified = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), "/")
    older = next((line.rpartition(":")[2] for line in groups if ":memory:" in line), "/")
    return (
        f"/sys/fs/cgroup{unified.rstrip('/')}/memory.events",
        f"/sys/fs/cgroup/memory{older.rstrip('/')}/memory.oom_control",
        *_COUNTERS,
    )
