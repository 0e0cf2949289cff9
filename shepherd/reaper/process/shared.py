"""What the workers of one reapd tell each other and their parent: shared memory, made before the first fork, a seat for each.

A worker notes the token whose page it is working on. If it dies, or is at the same page for too long, the note is what its parent
has; nothing else of a dead process can be asked. A seat belongs to one live worker at a time; only its worker writes to it, and
the parent before that worker's fork and after its death.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from shepherd.wire.messages import MOST_KILLED

_SEAT: Final = struct.Struct("<QQQQ")  # stage, session, token of the page at hand (0 = none), since when
_WORD: Final = struct.Struct("<Q")
_DEAD: Final = struct.Struct("<QQ")  # session, token
MOST_DEAD: Final = MOST_KILLED  # one message can have them all
_AT: Final = {"stage": 0, "session": 8, "token": 16, "since_ns": 24}


class Stage(IntEnum):
    FREE = 0
    ARRIVED = 1  # has not said HELLO
    SERVING = 2
    LEAVING = 3  # takes no new work, so it does not count


class Board:
    """Behind the seats there is the roll of the dead: how many there were, and the session and token of the last ones."""

    def __init__(self, seats: int) -> None:
        self._descriptor = os.memfd_create("shepherd-board")
        self._count, self._roll = seats, seats * _SEAT.size
        size = self._roll + _WORD.size + MOST_DEAD * _DEAD.size
        os.posix_fallocate(self._descriptor, 0, size)
        self._memory = mmap.mmap(self._descriptor, size)

    def died(self, session: int, token: int) -> None:
        """A worker of that session has died at the page of that token. Only the parent says so."""
        count = self._word(self._roll)
        _DEAD.pack_into(self._memory, self._dead(count), session, token)
        _WORD.pack_into(self._memory, self._roll, count + 1)  # last: what is counted is complete

    def killers(self, session: int, after: int = 0) -> tuple[list[int], int]:
        """The tokens of a session at whose pages workers have died, and how many deaths there were in all.

        `after` is an earlier such number: only later ones are wanted.
        """
        count = self._word(self._roll)
        numbers = range(max(after, count - MOST_DEAD), count)
        dead = [_DEAD.unpack_from(self._memory, self._dead(number)) for number in numbers]
        return [token for owner, token in dead if owner == session], count

    def _dead(self, number: int) -> int:
        return self._roll + _WORD.size + number % MOST_DEAD * _DEAD.size

    def _word(self, at: int) -> int:
        value: int = _WORD.unpack_from(self._memory, at)[0]
        return value

    def take(self) -> Seat | None:
        """A seat for a worker that is about to be forked, if there is one."""
        for number in range(self._count):
            seat = Seat(self, number)
            if seat.stage == Stage.FREE:
                seat.set(stage=Stage.ARRIVED)
                return seat
        return None

    def serving(self) -> int:
        return sum(Seat(self, number).stage == Stage.SERVING for number in range(self._count))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other process is in here at the same time; the system ends it with the process."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def read(self, number: int, field: str) -> int:
        return self._word(number * _SEAT.size + _AT[field])

    def write(self, number: int, field: str, value: int) -> None:
        _WORD.pack_into(self._memory, number * _SEAT.size + _AT[field], value)


class Seat:
    def __init__(self, board: Board, number: int) -> None:
        self._board, self._number = board, number

    def set(self, **fields: int) -> None:
        for field, value in fields.items():
            self._board.write(self._number, field, value)

    @property
    def stage(self) -> Stage:
        return Stage(self._board.read(self._number, "stage"))

    @property
    def session(self) -> int:
        return self._board.read(self._number, "session")

    @property
    def token(self) -> int:
        """Of the page at hand; 0 if there is none."""
        return self._board.read(self._number, "token")

    @property
    def since_ns(self) -> int:
        return self._board.read(self._number, "since_ns")

    def serve(self, session: int, most: int) -> bool:
        """Begin to serve, if fewer than so many do."""
        with self._board.alone():
            if self._board.serving() >= most:
                return False
            self.set(session=session, stage=Stage.SERVING)
            return True

    def killers(self, after: int = 0) -> tuple[list[int], int]:
        return self._board.killers(self.session, after)

    def leave(self) -> None:
        self.set(stage=Stage.LEAVING)

    @contextlib.contextmanager
    def at(self, token: int, now_ns: int) -> Iterator[None]:
        """While the page of this token is worked on. The time comes first: a token never stands with an older one's time."""
        self.set(since_ns=now_ns)
        self.set(token=token)
        try:
            yield
        finally:
            self.set(token=0)

    def free(self) -> None:
        self.set(token=0, session=0, since_ns=0, stage=Stage.FREE)
