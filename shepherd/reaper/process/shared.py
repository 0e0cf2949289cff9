"""The memory that the workers of one reapd share with their parent: created before the first fork, a slot for each worker.

A worker writes the token of the page that it parses into its slot. If it dies, or is at the same page for too long, its parent
reads the slot; nothing else of a dead process can be read. A slot belongs to one live worker at a time; only its worker writes
to it, and the parent before that worker's fork and after its death.
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

MAX_WHY: Final = 160  # bytes
_SLOT: Final = struct.Struct(f"<QQQQ{MAX_WHY}s")  # stage, session, token of the page at hand (0 = none), since when, why it ends
_WHY_OFFSET: Final = 32
SLOT_BYTES: Final = _SLOT.size
_WORD: Final = struct.Struct("<Q")
_DEATH: Final = struct.Struct("<QQ")  # session, token
MAX_DEATHS: Final = MOST_KILLED  # one message can have them all
_OFFSETS: Final = {"stage": 0, "session": 8, "token": 16, "since_ns": 24}


class SlotStage(IntEnum):
    FREE = 0
    ARRIVED = 1  # may be anybody
    WITH_KEY = 2  # has shown a key of ours, but not said HELLO
    SERVING = 3
    LEAVING = 4  # takes no new work, so it does not count


class WorkerTable:
    """The slots, and behind them the deaths: how many there were, and the session and token of the last ones."""

    def __init__(self, slots: int) -> None:
        self._descriptor = os.memfd_create("shepherd-board")
        self._count, self._deaths_offset = slots, slots * _SLOT.size
        size = self._deaths_offset + _WORD.size + MAX_DEATHS * _DEATH.size
        os.posix_fallocate(self._descriptor, 0, size)
        self._memory = mmap.mmap(self._descriptor, size)

    def died(self, session: int, token: int) -> None:
        """Record that a worker of that session has died at the page of that token. Only the parent calls this."""
        count = self._word(self._deaths_offset)
        _DEATH.pack_into(self._memory, self._death_offset(count), session, token)
        _WORD.pack_into(self._memory, self._deaths_offset, count + 1)  # last: what is counted is complete

    def killers(self, session: int, after: int = 0) -> tuple[list[int], int]:
        """The tokens of a session at whose pages workers have died, and how many deaths there were in all.

        `after` is an earlier such number: only later deaths are listed.
        """
        count = self._word(self._deaths_offset)
        numbers = range(max(after, count - MAX_DEATHS), count)
        dead = [_DEATH.unpack_from(self._memory, self._death_offset(number)) for number in numbers]
        return [token for owner, token in dead if owner == session], count

    def _death_offset(self, number: int) -> int:
        return self._deaths_offset + _WORD.size + number % MAX_DEATHS * _DEATH.size

    def _word(self, offset: int) -> int:
        value: int = _WORD.unpack_from(self._memory, offset)[0]
        return value

    def take(self) -> WorkerSlot | None:
        """A slot for a worker that is about to be forked, if there is one."""
        for number in range(self._count):
            slot = WorkerSlot(self, number)
            if slot.stage == SlotStage.FREE:
                slot.set(stage=SlotStage.ARRIVED)
                return slot
        return None

    def serving(self) -> int:
        return sum(WorkerSlot(self, number).stage == SlotStage.SERVING for number in range(self._count))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of this section; if this process dies, the system ends that."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def read(self, number: int, field: str) -> int:
        return self._word(number * _SLOT.size + _OFFSETS[field])

    def write(self, number: int, field: str, value: int) -> None:
        _WORD.pack_into(self._memory, number * _SLOT.size + _OFFSETS[field], value)

    def read_why(self, number: int) -> str:
        start = number * _SLOT.size + _WHY_OFFSET
        return self._memory[start : start + MAX_WHY].rstrip(b"\0").decode(errors="replace")

    def write_why(self, number: int, why: str) -> None:
        start = number * _SLOT.size + _WHY_OFFSET
        self._memory[start : start + MAX_WHY] = why.encode()[:MAX_WHY].ljust(MAX_WHY, b"\0")


class WorkerSlot:
    def __init__(self, table: WorkerTable, number: int) -> None:
        self._table, self._number = table, number

    def set(self, **fields: int) -> None:
        for field, value in fields.items():
            self._table.write(self._number, field, value)

    @property
    def stage(self) -> SlotStage:
        return SlotStage(self._table.read(self._number, "stage"))

    @property
    def session(self) -> int:
        return self._table.read(self._number, "session")

    @property
    def token(self) -> int:
        """The token of the page at hand; 0 if there is none."""
        return self._table.read(self._number, "token")

    @property
    def since_ns(self) -> int:
        return self._table.read(self._number, "since_ns")

    @property
    def why(self) -> str:
        """Why it ended before it was known who was there."""
        return self._table.read_why(self._number)

    def give_up(self, why: str) -> None:
        """End without knowing who was there."""
        self._table.write_why(self._number, why)

    def serve(self, session: int, max_serving: int) -> bool:
        """Begin to serve, if fewer than `max_serving` do; returns whether it does."""
        with self._table.alone():
            if self._table.serving() >= max_serving:
                return False
            self.set(session=session, stage=SlotStage.SERVING)
            return True

    def killers(self, after: int = 0) -> tuple[list[int], int]:
        return self._table.killers(self.session, after)

    def leave(self) -> None:
        self.set(stage=SlotStage.LEAVING)

    @contextlib.contextmanager
    def parsing(self, token: int, now_ns: int) -> Iterator[None]:
        """Mark the page of this token as being parsed. The time comes first: a token never stands with an older one's time."""
        self.set(since_ns=now_ns)
        self.set(token=token)
        try:
            yield
        finally:
            self.set(token=0)

    def free(self) -> None:
        self._table.write_why(self._number, "")
        self.set(token=0, session=0, since_ns=0, stage=SlotStage.FREE)
