"""One WARC file read by a process of its own, confined like a reaper's worker: a stranger wrote it, and gzip is compiled code.

The process is this module, started anew for each file: a fork would have the database in its memory, and the lock. It gets the
file as its stdin, and writes what it finds to its stdout. Invariant: whatever becomes of it, the import goes on with the next
file; and what it sends is bounded and of the declared types, or it is not believed any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO, Final

import msgspec

from shepherd import family
from shepherd.config import Reap
from shepherd.importing.warc_file import Damage, Record, records
from shepherd.reaper.process import confine

MOST_BESIDE: Final = 1 << 20  # bytes of a frame beside the block: headers, of at most 64 KiB as they came
_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class ImportFile:
    """A file to import: its name in messages, what opens it, and whether it can be read again; `tick` hears of bytes read."""

    name: str
    open: Callable[[], AbstractContextManager[BinaryIO]]
    seekable: bool
    tick: Callable[[int], object]


class ReaderAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What the process says each time; without anything it is done. With an `errno` the file could not be read."""

    furthest: int  # bytes of the file that were read
    what: Record | Damage | None = None
    errno: int = 0


class LostReader(Exception):
    """The process ended before it was done, or sent what it should not."""


def records_of(file: ImportFile, most: int, reap: Reap) -> Iterator[Record | Damage]:
    """All records of a file, and what cannot be read of it. OSError where the system cannot read it."""
    offset = furthest = 0
    with file.open() as stream, _process(stream, file.seekable, most, reap) as output:
        try:
            while (answer := _next(output, most)).what is not None:
                if answer.furthest > furthest:
                    file.tick(answer.furthest - furthest)
                    furthest = answer.furthest
                offset = answer.what.offset
                yield answer.what
            if answer.errno:
                raise OSError(answer.errno, os.strerror(answer.errno), file.name)
            file.tick(max(answer.furthest - furthest, 0))
        except LostReader as error:
            yield Damage(offset, f"its rest is not read: the process that reads it {error}", is_last=True)


@contextlib.contextmanager
def _process(stream: BinaryIO, seekable: bool, most: int, reap: Reap) -> Iterator[BufferedReader]:
    """What the process writes."""
    arguments = (int(seekable), most, reap.worker_bytes, reap.user, os.getpid())
    process = subprocess.Popen(
        [sys.executable, *(["-I"] if sys.flags.isolated else []), "-m", __name__, *map(str, arguments)],
        stdin=stream,
        stdout=subprocess.PIPE,
        process_group=0,  # Ctrl-C is for us: what has been read is taken in
        preexec_fn=family.dying_with_us(),
    )
    assert isinstance(process.stdout, BufferedReader)
    with process:
        try:
            yield process.stdout
        finally:
            process.kill()  # it is done, or nobody wants more of it


def _next(output: BufferedReader, most: int) -> ReaderAnswer:
    head = output.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise LostReader("has ended before it was done")
    (length,) = _LENGTH.unpack(head)
    if length > most + MOST_BESIDE:
        raise LostReader("sends more than a record can be")
    payload = output.read(length)
    try:
        return msgspec.msgpack.decode(payload, type=ReaderAnswer)
    except msgspec.DecodeError as error:
        raise LostReader("sends what is no record, or has ended inside one") from error


# --- in the process ---------------------------------------------------------------------------------------------------


class _CountingStream:
    """The file, of which at most what is there is read at a time: a pipe may be slow."""

    def __init__(self, stream: BufferedReader, seekable: bool) -> None:
        self._stream, self._seekable = stream, seekable
        self._offset = self.furthest = 0

    def read(self, size: int, /) -> bytes:
        data = self._stream.read1(size)
        self._offset += len(data)
        self.furthest = max(self.furthest, self._offset)
        return data

    def seekable(self) -> bool:
        return self._seekable

    def seek(self, offset: int, /) -> object:
        self._offset = offset
        return self._stream.seek(offset)


def main(arguments: list[str]) -> None:
    """Read stdin, and write what it holds to stdout."""
    seekable, most, memory_bytes, user, parent = (*map(int, arguments[:3]), arguments[3], int(arguments[4]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.geteuid() == 0:
        confine.change_user(user)
    confine.give_up_rights()
    confine.limit_memory(memory_bytes)
    family.die_with(parent, signal.SIGKILL)  # a change of user has undone it
    with open(0, "rb", closefd=False) as file, open(1, "wb", closefd=False) as out:
        stream = _CountingStream(file, bool(seekable))
        try:
            for what in records(stream, most):
                _send(out, ReaderAnswer(stream.furthest, what))
            _send(out, ReaderAnswer(stream.furthest))
        except BrokenPipeError:
            pass  # nobody wants more
        except OSError as error:
            _send(out, ReaderAnswer(stream.furthest, errno=error.errno or 0))


def _send(out: BinaryIO, answer: ReaderAnswer) -> None:
    payload = msgspec.msgpack.encode(answer)
    out.write(_LENGTH.pack(len(payload)))
    out.write(payload)
    out.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MemoryError:
        os.write(2, b"shep-import: a record needs more memory than reap.worker_bytes allows\n")
        os._exit(1)
