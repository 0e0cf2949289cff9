"""Which process wrote something down, so that anybody on the same machine can know for certain that it has ended.

A pid alone is given again to others, and means nothing on another machine or in another container. So where it means something
is written beside it (the boot, the namespaces of pids and of time), and when the process was started. Whatever differs or is not
known leaves the question open, and then nobody has ended.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

UNKNOWN: Final = ""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_STATE, _START = 0, 19  # in /proc/PID/stat, of the fields behind the name, which ends with the last bracket
_PROGRAMS: Final = ("shep", "gather", "reapd")  # as the names of ours begin


def own() -> str:
    """This process, in words for `has_ended`; UNKNOWN where the system does not say."""
    place, start = _place(), _start(os.getpid())
    return f"{place} {start}" if place and start else UNKNOWN


def has_ended(process: str, pid: int) -> bool:
    """Whether the process of this pid that called itself so has ended for certain."""
    place, _, start = process.rpartition(" ")
    if not place or place != _place():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # somebody else's, or no number that a process could have
    now = _start(pid)  # of what may be hidden from us, as other users' processes may be, nothing
    return bool(now) and now != start


def facts(pid: int | None) -> str:
    """Which program that is, and whether somebody has stopped it; nothing where the system does not say."""
    if pid is None:
        return ""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[_STATE]
    except (OSError, IndexError):
        return ""
    programs = [name for word in words[:4] if (name := os.path.basename(word)).startswith(_PROGRAMS)]
    all_facts = [*programs[-1:], *([f"stopped by a signal: kill -CONT {pid} continues it"] if state in "Tt" else [])]
    return f" ({'; '.join(all_facts)})" if all_facts else ""


def _place() -> str:
    """Where our pids mean what they mean to us: this boot and these namespaces."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return UNKNOWN  # a /proc of other pids than ours
        spaces = [os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/time")]
        return " ".join([_BOOT.read_text().strip(), *spaces])
    except OSError:
        return UNKNOWN


def _start(pid: int) -> str:
    """When it was started, in ticks since the boot."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return UNKNOWN
    return fields[_START] if len(fields) > _START else UNKNOWN
