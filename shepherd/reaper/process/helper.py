"""Work on untrusted bytes in a process of its own, which may die of it.

The child is forked, so that it has what it works on at no price, and only its answer travels back. It has none of our files and
connections. Invariant: whatever the child does, the caller goes on: it gets the answer, or ChildDied that says how.
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
    """How a child ended that gave no answer."""


async def in_child(work: Callable[[], bytes], seconds: float, most_bytes: int) -> bytes:
    """What `work` returns, computed in a forked child that has so long and may answer with so many bytes."""
    parent = os.getpid()
    read_end, write_end = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(read_end)
        os.close(write_end)
        raise ChildDied(f"no process could be started: {error}") from error
    if pid == 0:
        _be_child(work, write_end, parent, seconds)
    os.close(write_end)
    status = 0
    try:
        async with asyncio.timeout(seconds):
            answer = await _read_all(read_end, _LENGTH.size + most_bytes)
    except TimeoutError:
        raise ChildDied(f"it was not done within {seconds:g} s") from None
    finally:
        os.close(read_end)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it has given its answer, or never will
        status = await _ended(pid)
    if len(answer) < _LENGTH.size or _LENGTH.unpack_from(answer)[0] != len(answer) - _LENGTH.size:
        raise ChildDied(f"it ended with status {os.waitstatus_to_exitcode(status)} before it had answered")
    return answer[_LENGTH.size :]


async def _ended(pid: int) -> int:
    """The status of a child that has been killed; a large one takes the system a while, and nobody else has to wait for that."""
    pause_s = 0.001
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


async def _read_all(descriptor: int, most_bytes: int) -> bytes:
    """All until the end; what is longer than so many bytes ends there."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    pieces: list[bytes] = []
    size = 0
    while size <= most_bytes:
        ready = loop.create_future()
        loop.add_reader(descriptor, _settle, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        while size <= most_bytes:
            try:
                piece = os.read(descriptor, PIECE)
            except BlockingIOError:
                break
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
    return b""


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _be_child(work: Callable[[], bytes], pipe: int, parent: int, seconds: float) -> None:
    """In the child; never returns."""
    try:
        gc.disable()  # nothing of the parent's is to be finalised here
        os.dup2(pipe, PIPE_FD)
        os.closerange(PIPE_FD + 1, MOST_FILES)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        family.die_with(parent, signal.SIGKILL)
        confine.limit_cpu(math.ceil(seconds))
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
