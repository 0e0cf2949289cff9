"""The limits of a process that meets untrusted bytes: little memory, few files, no core, no way to more rights, no root.

A parent that has to be root to bind a port or read a key gives that up before it accepts a connection.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import pwd
import resource
import sys
import time
from typing import Final

from shepherd.errors import UsageError

_PR_SET_NO_NEW_PRIVS: Final = 38
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
SPARE_FILES: Final = 128  # beside the sockets of the transfers
LONGEST_CPU_S: Final = 1 << 31


def change_user(user: str) -> None:
    """If we are root, become this user, with its own group and no others."""
    account = user_named(user)
    if os.geteuid() != 0 or account.pw_uid == 0:
        return
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)


def user_named(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(
            f"there is no user {name!r}; name another with --user, or in [reap] user for that of shep-reap"
        ) from None


def give_up_rights() -> None:
    """Give up the right to gain rights: no program that this process starts has more, and it leaves no core behind."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(size_bytes: int) -> None:
    """Limit the address space; a process that needs more gets an error and does not take the machine down. 0 = no limit."""
    if size_bytes:
        _lower(resource.RLIMIT_AS, size_bytes)


def limit_cpu(seconds: int) -> None:
    """Limit the CPU time of this process, from its start; then the system kills it."""
    _lower(resource.RLIMIT_CPU, seconds)


def allow_cpu(seconds: float) -> None:
    """Limit the CPU time to so much more than this process has used so far; then the system ends it.

    A process that lives long repeats this. Only the soft limit is set: a hard one could never be raised again.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    until = math.ceil(min(time.process_time() + seconds, LONGEST_CPU_S))
    resource.setrlimit(resource.RLIMIT_CPU, (until if hard == resource.RLIM_INFINITY else min(until, hard), hard))


def limit_files(transfers: int) -> None:
    """Limit open files to what so many transfers need: a connection for each, and maybe one that is kept."""
    max_files = 2 * transfers + SPARE_FILES
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max_files if hard == resource.RLIM_INFINITY else min(max_files, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def _lower(which: int, limit: int) -> None:
    _soft, hard = resource.getrlimit(which)
    allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (allowed, allowed))
