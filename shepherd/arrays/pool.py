"""Partitions worked on by several processes, their results taken in order: as if one process had done it all.

The work on a partition is a `Task`: a function that every process can import, the directory of a state, and plain data. So any
process that sees the database can run it: one that is forked here, one that is started anew, one on another machine.

Worker k of n does the tasks k, k + n, k + 2n ... and hands each result through a pipe of its own; we read result i from
pipe i mod n. So results arrive in order without a queue, a worker that is ahead waits in its write, and memory is bounded by one
result a worker. Workers only compute: every byte of the database is written by the one process that holds the lock, which is
why the output cannot depend on their number. They are forked when the work begins, have what their parent had opened and made,
and die with it.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NoReturn, TypeVar
from weakref import WeakValueDictionary

from shepherd import shortage
from shepherd.errors import ShepherdError
from shepherd.family import die_with
from shepherd.store.state.directory import State

S = TypeVar("S")
P = TypeVar("P")
R = TypeVar("R")

_PIPE_BYTES: Final = 1 << 20
_COUNT: Final = struct.Struct("<Q")
_OPEN: Final[WeakValueDictionary[Path, State]] = WeakValueDictionary()  # the states that this process has open
_LATEST: Final[list[State]] = []  # at most one, opened here for a task: the next task is most likely of the same state


@dataclass(frozen=True)
class Task(Generic[S, P, R]):
    """The work on one partition of a state.

    `function` is one that a module defines, so that its name says which it is. `shared` is what all tasks of a pass have in
    common, `part` what this one has for itself: plain data, or objects that pass on the names of scratch files.
    """

    function: Callable[[State, S, P], R]
    state: Path
    shared: S
    part: P

    def run(self) -> R:
        """The result. A task may read whatever it likes, and changes nothing that others see."""
        return self.function(_opened(self.state), self.shared, self.part)


def tasks(function: Callable[[State, S, P], R], state: State, shared: S, parts: Iterable[P]) -> list[Task[S, P, R]]:
    """One for each part. What this process has opened of the state serves all tasks in it, and in processes forked from it."""
    _OPEN[state.path] = state
    return [Task(function, state.path, shared, part) for part in parts]


def _opened(path: Path) -> State:
    """A state, opened once in each process."""
    state = _OPEN.get(path)
    if state is None:
        state = _OPEN[path] = State(path)
        _LATEST[:] = [state]
    return state


def ordered(work: Sequence[Task[S, P, R]], jobs: int) -> Iterator[R]:
    """The result of each task, in their order; by `jobs` processes where that helps. What a task raises is raised here."""
    jobs = min(jobs, len(work))
    if jobs < 2:
        for task in work:
            yield task.run()
        return
    kills = shortage.kills()
    workers = [_start(work[first::jobs]) for first in range(jobs)]
    try:
        for n in range(len(work)):
            try:
                yield _receive(workers[n % jobs][1])
            except _PipeEnd:
                raise _death_of(*workers.pop(n % jobs), kills) from None
    finally:
        for pid, pipe in workers:
            _end(pid, pipe)


class _PipeEnd(Exception):
    """A worker has ended in the midst of its work."""


def _end(pid: int, pipe: int) -> None:
    os.close(pipe)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _death_of(pid: int, pipe: int, kills: int) -> ShepherdError:
    """What to say of a worker that has closed its pipe in the midst of its work."""
    os.close(pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != -signal.SIGKILL:
        return ShepherdError(f"a worker process died with exit status {status}; this is a bug: try --jobs 1, and report it")
    return ShepherdError(f"a worker process was killed, {shortage.reason(kills)}; {shortage.SMALLER}")


def _start(work: Sequence[Task[S, P, R]]) -> tuple[int, int]:
    """The pid of a new worker, and the end of its pipe that is ours."""
    parent = os.getpid()
    ours, theirs = os.pipe()
    with suppress(OSError, AttributeError):  # Linux only, and a user may be short of pipe memory: then it is a small one
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        _labour(work, theirs, parent)
    os.close(theirs)
    return pid, ours


def _labour(work: Sequence[Task[S, P, R]], pipe: int, parent: int) -> NoReturn:
    """The life of a worker. It prints nothing: a failure goes through the pipe, or shows by the pipe's end."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent to decide about
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with(parent, signal.SIGKILL)
        for task in work:
            try:
                answer: tuple[bool, object] = (True, task.run())
            except Exception as error:
                answer = (False, error)
            _send(pipe, answer)
    finally:
        os._exit(0)


def _send(pipe: int, answer: tuple[bool, object]) -> None:
    """Arrays go as they lie in memory, behind what pickle makes of the rest."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = [len(pickled), len(raw), *(view.nbytes for view in raw)]
    for view in (memoryview(b"".join(map(_COUNT.pack, sizes))), memoryview(pickled), *raw):
        while view:
            view = view[os.write(pipe, view) :]


def _receive(pipe: int) -> Any:
    pickled_bytes, count = (_COUNT.unpack(_exactly(pipe, _COUNT.size))[0] for _ in range(2))
    sizes = [_COUNT.unpack(_exactly(pipe, _COUNT.size))[0] for _ in range(count)]
    pickled = _exactly(pipe, pickled_bytes)
    is_result, value = pickle.loads(pickled, buffers=[_exactly(pipe, size) for size in sizes])
    if not is_result:
        raise value
    return value


def _exactly(pipe: int, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        received_bytes = os.readv(pipe, [view])
        if not received_bytes:
            raise _PipeEnd
        view = view[received_bytes:]
    return data
