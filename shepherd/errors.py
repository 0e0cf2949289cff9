"""Every way Shepherd can fail on purpose.

    ShepherdError            1   a bug if it is not one of those below
    ├── UsageError           2   a bad argument, URL, configuration, filter or equivalence line
    │   ├── BadUrl
    │   ├── FileFaults           in files that an operator writes
    │   │   ├── ConfigError
    │   │   ├── EquivError
    │   │   └── FilterError
    │   └── OldFormat            shep-upgrade will bring it up to date
    ├── Locked               3   another program is writing
    ├── NothingToDo          4   not a failure: this step has no work
    ├── HookFailed           5   a command of the operator's own would not have it
    ├── RecoveryNeeded      10   shep-recover will mend it
    ├── Corruption          11   a checksum fails or a file is missing
    ├── NoSpace             12   the disk is full
    ├── IoFailed            13   the disk failed
    ├── TooFewDescriptors   14   the system opens no more files for us
    ├── PeerLost            20   a reaper or server went away
    ├── PeerRefused         21   a reaper or server would not have us
    └── Impolite            30   a server was asked sooner than its delay

A message says what was wrong, where, and what to do next; it is shown as it is. `cli` turns the class into the exit status.
docs/reference.md shows each docstring: what the status means, and what to do.
"""

from __future__ import annotations

import errno
import resource
from os import PathLike
from typing import ClassVar, Final, TypeAlias

Place: TypeAlias = PathLike[str] | str
CHECK_LISTS: Final = "shep-check lists all damage"


class ShepherdError(Exception):
    """A bug.

    Report it, with the output of -v.
    """

    exit_status: ClassVar[int] = 1


class PlacedError(ShepherdError):
    """One whose message is put together of data: `what` is wrong, at which `offset` of which `path`, and what to do next."""

    def __init__(self, what: str, path: Place | None = None, offset: int | None = None, advice: str = "") -> None:
        super().__init__(what, path, offset, advice)
        self.what, self.path, self.offset, self.advice = what, path, offset, advice

    def __str__(self) -> str:
        place = " ".join(([] if self.path is None else [str(self.path)]) + ([] if self.offset is None else [f"at {self.offset}"]))
        return f"{place}{': ' if place else ''}{self.what}{'; ' if self.advice else ''}{self.advice}"


class UsageError(ShepherdError):
    """A bad argument, URL, configuration key, filter or equivalence line.

    Correct what the message names.
    """

    exit_status = 2


class BadUrl(UsageError):
    """A URL we refuse; the message is the reason alone."""


class FileFaults(UsageError):
    """All that is wrong in a file that an operator writes, a sentence each; as a text the first of them."""

    def __init__(self, *faults: str) -> None:
        super().__init__(*faults)
        self.faults: Final = faults

    def __str__(self) -> str:
        others = len(self.faults) - 1
        return self.faults[0] + (f" (and {others} more: shepherd check-config lists all)" if others else "")


class ConfigError(FileFaults):
    """A configuration key that is unknown, mistyped or impossible; names file and key."""


class EquivError(FileFaults):
    """A line of url-equiv that cannot be read, or that contradicts another; names file, line and column."""


class FilterError(FileFaults):
    """A filter line that cannot be read; names file, line and column."""


class OldFormat(PlacedError, UsageError):
    """A database of an older version of the format."""


class Locked(ShepherdError):
    """Another program is writing; the message says which.

    Wait for it, or stop it.
    """

    exit_status = 3


class NothingToDo(ShepherdError):
    """Nothing to do.

    This is no failure: nothing is due, or there is no such document.
    """

    exit_status = 4


class HookFailed(ShepherdError):
    """A command of [hooks] failed, so a program was not run.

    Read what the message says of the command.
    """

    exit_status = 5


class RecoveryNeeded(ShepherdError):
    """Recovery is needed.

    Run shep-recover; a master runs it by itself.
    """

    exit_status = 10


class Corruption(PlacedError):
    """A checksum fails, or a file is missing; the message names file and offset.

    Run shep-check, then read docs/recovery.md.
    """

    exit_status = 11


class NoSpace(ShepherdError):
    """No space is left on the disk.

    Make room, then run the same command again.
    """

    exit_status = 12


class IoFailed(PlacedError):
    """The disk or file system reported an error.

    Look at the disk, then run shep-check.
    """

    exit_status = 13


class TooFewDescriptors(ShepherdError):
    """The system opens no more files for this program, or for any.

    Raise the limit that the message names, then run the same command again. Nothing is wrong with the disk or the database.
    """

    exit_status = 14


def too_few_descriptors(error: OSError) -> TooFewDescriptors | None:
    """What to say of an error of the system that is one of those."""
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return TooFewDescriptors(
            f"this program may have {most} files open and needs more; raise ulimit -n, or LimitNOFILE= of a service"
        )
    if error.errno == errno.ENFILE:
        return TooFewDescriptors("the system has as many files open as it may; raise its fs.file-max, or stop other programs")
    return None


class PeerLost(ShepherdError):
    """A reaper or server went away.

    Run the same command again.
    """

    exit_status = 20


class PeerRefused(ShepherdError):
    """A reaper or server refused us.

    Compare the versions, and the keys of both ends: `shep-keys show` prints their authorities.
    """

    exit_status = 21


class Impolite(ShepherdError):
    """`shep audit politeness` found a server that was asked too soon, or more often at a time than it has slots.

    Report it: the output names the contacts.
    """

    exit_status = 30
