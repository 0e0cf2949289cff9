"""The contacts of all databases of a machine: a table in a file that their dispatchers share, so that no server is asked by two
of them at once, or by one too soon after the other.

Read `politeness.groups.engine` first: what one database asks of a server is its own engine's to say. Here stands what the others
must know: who has leases of a server and until when, when the last contact ended, and until when it must be left alone. A server
has a slot by its queue key; servers that share a slot wait for each other, which costs time, and never politeness.

Invariants: a contact is written down before it is made. Whoever dies leaves leases that end with their deadlines; what it was
writing when it died says too much, never too little, because every word is written at once, in the order that has this.
Nobody waits for another process: a table that is locked counts as a server that is busy.

A database that waits says so in the slot. Who asked last then leaves the next turn to it; so two that want the same server take
turns. Times are of a clock that all processes of the machine share, and that nobody sets: a table of an earlier start is void.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shepherd.errors import ConfigError
from shepherd.formats.queue_keys import QKEY_IPV4
from shepherd.urls import qkey_of_address

LOG = logging.getLogger("shepherd.politeness")
DEFAULT: Final = "/tmp/shepherd-{user}"  # not of the environment: what cron starts must find the same
FILE: Final = "contacts-1"  # with the version of its layout
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SLOT_BITS: Final = 16
WORDS: Final = 8  # of a slot, signed, 8 bytes each
OWNER, IN_FLIGHT, UNTIL, END, NEXT, WAITER, WAITER_UNTIL = range(7)
HEAD: Final = WORDS  # words before the first slot; the first says of which start of the machine the rest is
SIZE: Final = 8 * (HEAD + (WORDS << SLOT_BITS))
LOCKED_MS: Final = 10  # until a table that somebody else is writing to is looked at again
LOOK_MS: Final = 200  # until a server that another database is asking is looked at again
CLAIM_MS: Final = 1_000  # how long a turn is left to whoever waits for it
CHECK_MS: Final = 10_000  # how often it is looked whether the file is still at its place
MOST_MS: Final = 2 * 86_400_000  # no time in the table is meant to be later than this
_MIX: Final = 0x9E3779B97F4A7C15
_LOOPBACK_V6: Final = qkey_of_address("::1")


class SharedContacts:
    """One dispatcher's view of the table. `owner` is a random number of its own; waits are in milliseconds from now."""

    def __init__(self, directory: Path, owner: int, clock_ms: Callable[[], int], *, with_loopback: bool) -> None:
        self._path, self._owner, self._clock, self._with_loopback = directory / FILE, owner, clock_ms, with_loopback
        self._unsaid: list[tuple[int, bool, int]] = []  # ends that could not be written yet
        self._check_ms = clock_ms() + CHECK_MS
        self._use(*_opened(self._path))

    def take(self, qkey: int, delay_ms: int, lease_ms: int) -> int:
        """0 = the server may be asked, by us alone, until the lease ends; else how long to wait before the next try.

        `delay_ms` is what we leave between two contacts.
        """
        if not self._counts(qkey):
            return 0
        now_ms = self._clock()
        if now_ms >= self._check_ms:
            self._check(now_ms)
        if not self._lock():
            return LOCKED_MS
        try:
            self._say_all(now_ms)
            return self._take(self._slot(qkey), delay_ms, lease_ms, now_ms)
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def extend(self, qkey: int, lease_ms: int) -> None:
        """A contact takes longer than its lease was to last; where this cannot be written now, it is said again."""
        if self._counts(qkey) and self._lock():
            slot, words = self._slot(qkey), self._words
            if words[slot + OWNER] == self._owner:
                words[slot + UNTIL] = max(words[slot + UNTIL], self._clock() + lease_ms)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def end(self, qkey: int, contacted: bool, wait_ms: int) -> None:
        """A contact is over, and for so long nobody may ask the server; if nobody was contacted all is as it was."""
        if not self._counts(qkey):
            return
        self._unsaid.append((qkey, contacted, wait_ms))
        if self._lock():
            self._say_all(self._clock())
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        self._words.release()
        self._memory.close()
        os.close(self._descriptor)

    # --- a slot, while the table is locked --------------------------------------------------------------------------

    def _take(self, slot: int, delay_ms: int, lease_ms: int, now_ms: int) -> int:
        words, owner = self._words, self._owner
        if words[slot + IN_FLIGHT] and words[slot + UNTIL] <= now_ms:  # whoever had it has died, or has been cut off
            words[slot + END] = max(words[slot + END], words[slot + UNTIL])
            words[slot + IN_FLIGHT] = 0
        is_ours, waiter = words[slot + OWNER] == owner, words[slot + WAITER]
        is_claimed = waiter not in (0, owner) and now_ms < words[slot + WAITER_UNTIL] <= now_ms + MOST_MS
        if is_ours:
            if is_claimed:
                return words[slot + WAITER_UNTIL] - now_ms
        elif wait_ms := self._wait_ms(slot, delay_ms, now_ms):
            if not is_claimed:
                words[slot + WAITER_UNTIL] = now_ms + wait_ms + CLAIM_MS
                words[slot + WAITER] = owner
            return wait_ms
        words[slot + UNTIL] = max(words[slot + UNTIL] if is_ours else 0, now_ms + lease_ms)
        words[slot + OWNER] = owner
        words[slot + IN_FLIGHT] += 1
        if waiter == owner:
            words[slot + WAITER] = 0
        return 0

    def _wait_ms(self, slot: int, delay_ms: int, now_ms: int) -> int:
        """How long a server must be left alone that somebody else asked last; 0 = it may be asked."""
        words = self._words
        if words[slot + IN_FLIGHT]:
            return max(min(LOOK_MS, words[slot + UNTIL] - now_ms), 1)
        last_ms = words[slot + END]
        ready_ms = max(words[slot + NEXT], last_ms + delay_ms) if last_ms else 0
        return max(min(ready_ms, now_ms + MOST_MS) - now_ms, 0)

    def _say_all(self, now_ms: int) -> None:
        unsaid, self._unsaid = self._unsaid, []
        words = self._words
        for qkey, contacted, wait_ms in unsaid:
            slot = self._slot(qkey)
            if contacted:
                end_ms = now_ms + 1  # the millisecond it ended in is over
                words[slot + NEXT] = max(words[slot + NEXT], end_ms + min(wait_ms, MOST_MS))
                words[slot + END] = max(words[slot + END], end_ms)
            if words[slot + OWNER] == self._owner and words[slot + IN_FLIGHT]:
                words[slot + IN_FLIGHT] -= 1

    def _slot(self, qkey: int) -> int:
        return HEAD + WORDS * ((qkey * _MIX & (1 << 64) - 1) >> 64 - SLOT_BITS)

    def _counts(self, qkey: int) -> bool:
        if self._with_loopback:
            return True
        return qkey != _LOOPBACK_V6 and not (qkey >> 56 == QKEY_IPV4 and qkey >> 24 & 0xFF == 127)

    # --- the file ---------------------------------------------------------------------------------------------------

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _check(self, now_ms: int) -> None:
        """Whoever cleans up temporary files may have removed it: then others have, or will have, a new one."""
        self._check_ms = now_ms + CHECK_MS
        ours = os.fstat(self._descriptor)
        try:
            entry = os.stat(self._path, follow_symlinks=False)
            if (entry.st_dev, entry.st_ino) == (ours.st_dev, ours.st_ino):
                return
        except OSError:
            pass
        try:
            descriptor, memory = _opened(self._path)
        except ConfigError as error:
            LOG.warning("the contacts of other databases are not seen any more: %s", error)
            return
        self.close()
        self._use(descriptor, memory)

    def _use(self, descriptor: int, memory: mmap.mmap) -> None:
        self._descriptor, self._memory, self._words = descriptor, memory, memoryview(memory).cast("q")


def _opened(path: Path) -> tuple[int, mmap.mmap]:
    """The file, mapped; made where there is none. Whoever may write into its directory may write into it."""
    mode = _sound_directory(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
        try:
            return descriptor, _mapped(path, descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be used: {error}; name another directory in [politeness] shared") from error


def _mapped(path: Path, descriptor: int, mode: int) -> mmap.mmap:
    """Void what an earlier start of the machine has left. Only this waits for others, who are doing the same."""
    entry, start = os.fstat(descriptor), _start_of_machine()
    if not stat.S_ISREG(entry.st_mode) or entry.st_nlink != 1:
        raise ConfigError(f"{path}: is not a file of ours; remove it")
    if entry.st_uid == os.geteuid() and entry.st_mode & 0o666 != mode:
        os.fchmod(descriptor, mode)
    if entry.st_size >= SIZE:
        memory = mmap.mmap(descriptor, SIZE)
        if int.from_bytes(memory[:8], sys.byteorder) == start:
            return memory
        memory.close()
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        os.posix_fallocate(descriptor, 0, SIZE)
        memory = mmap.mmap(descriptor, SIZE)
        if int.from_bytes(memory[:8], sys.byteorder) != start:
            memory[8:] = bytes(SIZE - 8)
            memory[:8] = start.to_bytes(8, sys.byteorder)  # last: a table of this start is whole
        return memory
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def of_machine(directory: Path | None, owner: int, clock_ms: Callable[[], int]) -> SharedContacts | None:
    """The table in the directory that the operator has named, else in one of this user's; None if that cannot be used.

    Without a named one loopback does not count: what listens there is the operator's own.
    """
    if directory is not None:
        return SharedContacts(directory, owner, clock_ms, with_loopback=True)
    try:
        return SharedContacts(Path(DEFAULT.format(user=os.geteuid())), owner, clock_ms, with_loopback=False)
    except ConfigError as error:
        LOG.warning("other databases of this machine are not heeded: %s", error)
        return None


def _sound_directory(directory: Path) -> int:
    """The mode of a table in this directory, which is made where there is none; a ConfigError if anybody could put one there."""
    try:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(0o700)
        entry = os.stat(directory, follow_symlinks=False)
    except OSError as error:
        raise ConfigError(f"{directory}: cannot be used: {error}; name another directory in [politeness] shared") from error
    if not stat.S_ISDIR(entry.st_mode) or entry.st_mode & stat.S_IWOTH or entry.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"{directory}: must be a directory of this user or of root that not everybody can write to; "
            "name another one in [politeness] shared"
        )
    return entry.st_mode & 0o666


def _start_of_machine() -> int:
    """A number of the time since the machine was started; never 0."""
    try:
        text = BOOT_ID.read_text(encoding="ascii")
    except OSError:
        return 1
    return int(text.replace("-", "")[:15], 16) | 1
