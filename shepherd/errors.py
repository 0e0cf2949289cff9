"""Every way Shepherd can fail on purpose.

    ShepherdError            1   a bug if it is not one of those below
    ├── UsageError           2   a bad argument, URL, configuration, filter or equivalence line
    │   ├── BadUrl
    │   ├── ConfigError
    │   ├── EquivError
    │   ├── FilterError
    │   └── OldFormat            shep-upgrade will bring it up to date
    ├── Locked               3   another program is writing
    ├── NothingToDo          4   not a failure: this step has no work
    ├── HookFailed           5   a command of the operator's own would not have it
    ├── RecoveryNeeded      10   shep-recover will mend it
    ├── Corruption          11   a checksum fails or a file is missing
    ├── NoSpace             12   the disk is full
    ├── IoFailed            13   the disk failed
    ├── PeerLost            20   a reaper or server went away
    ├── PeerRefused         21   a reaper or server would not have us
    └── Impolite            30   a server was asked sooner than its delay

A message says what was wrong, where, and what to do next; it is shown as it is. `cli` turns the class into the exit status.
"""

from __future__ import annotations

from typing import ClassVar


class ShepherdError(Exception):
    """Something that Shepherd did not expect."""

    exit_status: ClassVar[int] = 1


class UsageError(ShepherdError):
    """The caller asked for something that makes no sense."""

    exit_status = 2


class BadUrl(UsageError):
    """A URL we refuse; the message is the reason alone."""


class ConfigError(UsageError):
    """A configuration key that is unknown, mistyped or impossible; names file and key."""


class EquivError(UsageError):
    """A line of url-equiv that cannot be read, or that contradicts another; names file, line and column."""


class FilterError(UsageError):
    """A filter line that cannot be read; names file, line and column."""


class OldFormat(UsageError):
    """A database of an older version of the format."""


class Locked(ShepherdError):
    """Another program holds the lock; the message says which."""

    exit_status = 3


class NothingToDo(ShepherdError):
    """There is nothing for this program to do now."""

    exit_status = 4


class HookFailed(ShepherdError):
    """A command that [hooks] names failed, so that a program was not run."""

    exit_status = 5


class RecoveryNeeded(ShepherdError):
    """The database needs shep-recover."""

    exit_status = 10


class Corruption(ShepherdError):
    """Bytes are not what was written; names file and offset."""

    exit_status = 11


class NoSpace(ShepherdError):
    """The disk is full."""

    exit_status = 12


class IoFailed(ShepherdError):
    """The disk or file system reported an error."""

    exit_status = 13


class PeerLost(ShepherdError):
    """The other end of a connection went away."""

    exit_status = 20


class PeerRefused(ShepherdError):
    """The other end of a connection would not talk to us."""

    exit_status = 21


class Impolite(ShepherdError):
    """A server was asked sooner than its delay, or more often at a time than it has slots."""

    exit_status = 30
