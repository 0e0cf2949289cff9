"""What a process that meets untrusted bytes may do: little memory, few files, no core, no way to more rights, no root.

Where the parent has to be root to bind a port or read a key, it gives that up before it accepts anyone.
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


def become(user: str) -> None:
    """Be this user from now on, with its own group and no others, if we are root."""
    found = user_named(user)
    if os.geteuid() != 0 or found.pw_uid == 0:
        return
    os.setgroups([])
    os.setresgid(found.pw_gid, found.pw_gid, found.pw_gid)
    os.setresuid(found.pw_uid, found.pw_uid, found.pw_uid)


def user_named(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(
            f"there is no user {name!r} to run as; name one with --user, or in [reap] user for that of shep-reap"
        ) from None


def no_more_rights() -> None:
    """No program that this process starts can have more rights than it has, and no core is left of it."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(size_bytes: int) -> None:
    """So much address space; what asks for more gets an error and does not take the machine along. 0 = no limit."""
    if size_bytes:
        _lower(resource.RLIMIT_AS, size_bytes)


def limit_cpu(seconds: int) -> None:
    """So much time of a processor, from the begin of this process; then the system kills it."""
    _lower(resource.RLIMIT_CPU, seconds)


def allow_cpu(seconds: float) -> None:
    """So much more time of a processor than this process has used so far; then the system ends it, whatever it is at.

    To be said again and again by whoever lives long. Only the soft limit is set: a hard one could never be raised again.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    until = math.ceil(min(time.process_time() + seconds, LONGEST_CPU_S))
    resource.setrlimit(resource.RLIMIT_CPU, (until if hard == resource.RLIM_INFINITY else min(until, hard), hard))


def limit_files(transfers: int) -> None:
    """As many open files as so many transfers need, each with a connection and maybe one that is kept."""
    wanted = 2 * transfers + SPARE_FILES
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _lower(which: int, limit: int) -> None:
    _soft, hard = resource.getrlimit(which)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (most, most))
