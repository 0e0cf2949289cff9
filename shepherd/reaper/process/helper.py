"""Work on untrusted bytes in a process of its own, which may die of it.

The child is forked, so that it shares its input at no cost, and only its answer travels back. It has none of our files and
connections. Invariant: whatever the child does, the caller continues: it gets the answer, or ChildDied with the cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import struct
from collections.abc import Callable
from typing import Final

from shepherd import family
from shepherd.reaper.process import confine

LOG = logging.getLogger("shepherd.reapd")
PIPE_FD: Final = 3
MOST_FILES: Final = 1 << 20
_LENGTH: Final = struct.Struct("<Q")
PIECE: Final = 1 << 20


class ChildDied(Exception):
    """A child ended without an answer."""


async def in_child(work: Callable[[], bytes], timeout_s: float, max_bytes: int) -> bytes:
    """What `work` returns, computed in a forked child, which has `timeout_s` and may answer with `max_bytes`."""
    parent = os.getpid()
    read_end, write_end = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(read_end)
        os.close(write_end)
        raise ChildDied(f"no process could be started: {error}") from error
    if pid == 0:
        _be_child(work, write_end, parent, timeout_s)
    os.close(write_end)
    status = 0
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _read_all(read_end, _LENGTH.size + max_bytes)
    except TimeoutError:
        raise ChildDied(f"it was not done within {timeout_s:g} s") from None
    finally:
        os.close(read_end)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it has answered, or never will
        status = await _exit_status(pid)
    if len(answer) < _LENGTH.size or _LENGTH.unpack_from(answer)[0] != len(answer) - _LENGTH.size:
        raise ChildDied(f"it ended with status {os.waitstatus_to_exitcode(status)} before it had answered")
    return answer[_LENGTH.size :]


async def _exit_status(pid: int) -> int:
    """The status of a child that has been killed; freeing a large one takes a while, and the event loop must not wait."""
    pause_s = 0.001
    while True:
        pid_ended, status = os.waitpid(pid, os.WNOHANG)
        if pid_ended:
            return status
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


async def _read_all(descriptor: int, max_bytes: int) -> bytes:
    """All bytes until the end; none if there are more than `max_bytes`."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    pieces: list[bytes] = []
    size = 0
    while size <= max_bytes:
        ready = loop.create_future()
        loop.add_reader(descriptor, _set_done, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        while size <= max_bytes:
            try:
                piece = os.read(descriptor, PIECE)
            except BlockingIOError:
                break
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
    return b""


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _be_child(work: Callable[[], bytes], pipe: int, parent: int, timeout_s: float) -> None:
    """In the child; never returns."""
    try:
        gc.disable()  # nothing of the parent's is to be finalised here
        os.dup2(pipe, PIPE_FD)
        os.closerange(PIPE_FD + 1, MOST_FILES)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        family.die_with(parent, signal.SIGKILL)
        confine.limit_cpu(math.ceil(timeout_s))
        answer = work()
        with open(PIPE_FD, "wb", closefd=False) as out:
            out.write(_LENGTH.pack(len(answer)))
            out.write(answer)
    except MemoryError:
        os.write(2, b"a page needed more memory than a worker has\n")
    except BaseException:
        LOG.exception("a page could not be worked on")
    finally:
        os._exit(0)
