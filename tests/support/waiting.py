"""Waiting until something is so, however slow the machine is; and the processes, ports and signals that tests wait for."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 900.0  # no measure of speed: so that a run comes to its end where something never does
LISTENS = 1 << 16  # of the flags in /proc/net/unix


def wait_until(condition: Callable[[], object], what: str = "it did not come about") -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.01)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def is_answering(address: tuple[str, int] | Path) -> bool:
    """Whether somebody takes connections there: at a host and port, or at the path of a unix socket."""
    family, place = (socket.AF_UNIX, str(address)) if isinstance(address, Path) else (socket.AF_INET, address)
    with socket.socket(family) as probe:
        return probe.connect_ex(place) == 0


def is_listening(path: Path) -> bool:
    """Whether a unix socket takes connections at the path, without one being made. Its file is there a moment before."""
    sockets = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return any(fields[7:] == [str(path)] and int(fields[3], 16) & LISTENS for fields in sockets)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    """Children and grandchildren, the older first."""
    return [one for child in children(pid) for one in (child, *descendants(child))]


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), f"still running: {pids}")


def wait_until_heeded(pid: int) -> None:
    """Until a signal that was sent to the process has been taken, and it waits again."""

    def is_heeded() -> bool:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return not int(status["SigPnd"], 16) | int(status["ShdPnd"], 16) and status["State"].startswith("S")

    wait_until(is_heeded)


def heed_interrupts() -> None:
    """In a shell's background job SIGINT is ignored, and all programs inherit that: tests that send it would wait for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
