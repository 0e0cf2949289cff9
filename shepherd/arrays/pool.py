"""Partitions worked on by several processes, their results taken in order: as if one process had done it all.

Worker k of n does the partitions k, k + n, k + 2n ... and hands each result through a pipe of its own; we read result i from
pipe i mod n. So results arrive in order without a queue, a worker that is ahead waits in its write, and memory is bounded by one
result a worker. Workers only compute: every byte of the database is written by the one process that holds the lock, which is
why the output cannot depend on their number. They are forked when the work begins, see what their parent saw, and die with it.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

from shepherd.errors import ShepherdError
from shepherd.family import die_with

P = TypeVar("P")
R = TypeVar("R")

_PIPE_BYTES: Final = 1 << 20
_COUNT: Final = struct.Struct("<Q")


def ordered(work: Callable[[P], R], parts: Sequence[P], jobs: int) -> Iterator[R]:
    """The result of `work` on each part, in the order of the parts; by `jobs` processes where that helps.

    What `work` raises is raised here. It may read whatever it likes, and must change nothing that others see.
    """
    jobs = min(jobs, len(parts))
    if jobs < 2:
        yield from map(work, parts)
        return
    workers = [_start(work, parts[first::jobs]) for first in range(jobs)]
    try:
        for n in range(len(parts)):
            yield _receive(workers[n % jobs][1])
    finally:
        for pid, pipe in workers:
            os.close(pipe)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _start(work: Callable[[P], R], parts: Sequence[P]) -> tuple[int, int]:
    """The pid of a new worker, and the end of its pipe that is ours."""
    parent = os.getpid()
    ours, theirs = os.pipe()
    with suppress(OSError, AttributeError):  # Linux only, and a user may be short of pipe memory: then it is a small one
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        _labour(work, parts, theirs, parent)
    os.close(theirs)
    return pid, ours


def _labour(work: Callable[[P], R], parts: Sequence[P], pipe: int, parent: int) -> NoReturn:
    """The life of a worker. It ends without a word: what failed is told through the pipe, or by the pipe's end."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent to decide about
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with(parent, signal.SIGKILL)
        for part in parts:
            try:
                answer: tuple[bool, object] = (True, work(part))
            except Exception as error:
                answer = (False, error)
            _send(pipe, answer)
    finally:
        os._exit(0)


def _send(pipe: int, answer: tuple[bool, object]) -> None:
    """Arrays go as they lie in memory, behind what pickle says of them."""
    buffers: list[pickle.PickleBuffer] = []
    said = pickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = [len(said), len(raw), *(view.nbytes for view in raw)]
    for view in (memoryview(b"".join(map(_COUNT.pack, sizes))), memoryview(said), *raw):
        while view:
            view = view[os.write(pipe, view) :]


def _receive(pipe: int) -> Any:
    said_bytes, count = (_COUNT.unpack(_exactly(pipe, _COUNT.size))[0] for _ in range(2))
    sizes = [_COUNT.unpack(_exactly(pipe, _COUNT.size))[0] for _ in range(count)]
    said = _exactly(pipe, said_bytes)
    fine, value = pickle.loads(said, buffers=[_exactly(pipe, size) for size in sizes])
    if not fine:
        raise value
    return value


def _exactly(pipe: int, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = os.readv(pipe, [view])
        if not got:
            raise ShepherdError("a worker process died; memory may be short: try --jobs 1, or a smaller store.partition_rows")
        view = view[got:]
    return data
