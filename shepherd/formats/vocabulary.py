"""The small vocabularies of docs/formats.md: numbers of columns and records, and the word for each.

A number has one word, whatever prints it: the name here in lower case, with hyphens. An operator may type it as a selector.
Nothing heavy is imported, so that a command line can name the words before it reads anything.
"""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag
from typing import Final, TypeVar

E = TypeVar("E", bound=Enum)

RESERVED_REASONS: Final = (15, 17, 32)  # meant something once, and are given to nothing else


def word(member: Enum) -> str:
    """ROBOTS_DENIED is robots-denied. A vocabulary may have a `word` of its own for a member."""
    return str(getattr(member, "word", member.name.lower().replace("_", "-")))


def words(vocabulary: type[Enum]) -> tuple[str, ...]:
    """All words of it, in the order of their numbers."""
    return tuple(map(word, vocabulary))


def by_word(vocabulary: type[E]) -> dict[str, E]:
    """What each word stands for."""
    return {word(member): member for member in vocabulary}


def by_number(vocabulary: type[IntEnum]) -> dict[int, str]:
    """The word of each number that has one."""
    return {int(member): word(member) for member in vocabulary}


class RowType(IntEnum):
    SLEEPING = 1
    UNGATHERED = 2
    GATHERED = 3
    ERROR = 4
    FORGOTTEN = 5


class Flag(IntFlag):
    """Flags of an index row."""

    ROBOTS = 1
    INITIAL = 2
    PINNED = 4
    REFRESH = 8
    EQUIV = 16
    UNREFERENCED = 32
    ELSEWHERE = 64
    REDIRECT = 128
    TRUNCATED = 256
    NOINDEX = 512
    MODIFIED = 1024


SACRED: Final = int(Flag.ROBOTS | Flag.INITIAL | Flag.PINNED | Flag.EQUIV)  # select never drops these


class Reason(IntEnum):
    NONE = 0
    LINK = 1
    INSERTED = 2
    GATHERED = 3
    UNCHANGED = 4
    REDIRECT = 5
    MOVED = 6
    BODY_LOST = 7
    SITE_SOFT = 10
    SITE_HARD = 11
    BELOW_BAR = 12
    BELOW_SLEEP = 13
    FILTER = 14
    DELETED = 16
    PURGED = 18
    ROBOTS_DENIED = 20
    ROBOTS_UNREACHABLE = 21
    NO_ADDRESS = 22
    GUARD = 23
    CONNECTION = 24
    DEADLINE = 25
    TOO_SLOW = 26
    MALFORMED = 27
    CLIENT_ERROR = 28
    SERVER_ERROR = 29
    DECODING = 30
    MOVES = 31
    REAPER_LOST = 33
    SERVER_SOFT = 34
    SERVER_HARD = 35
    SECTION_SOFT = 36
    SECTION_HARD = 37
    SPACE = 38
    FRESH = 39
    SITE_EMPTY = 40
    TLS = 41
    LOOKUP = 42
    PARSER = 43
    UNREFERENCED = 44
    LOOK_UPS = 45


# What the words mean, for sentences and, as they were written, for tombstones. A table or a field has the word.
REASON_TEXT: Final[dict[Reason, str]] = {
    Reason.NONE: "none",
    Reason.LINK: "found by a link",
    Reason.INSERTED: "inserted",
    Reason.GATHERED: "gathered",
    Reason.UNCHANGED: "unchanged",
    Reason.REDIRECT: "redirect",
    Reason.MOVED: "moved to its equivalent",
    Reason.BODY_LOST: "its body was damaged",
    Reason.SITE_SOFT: "over the site's soft limit",
    Reason.SITE_HARD: "over the site's hard limit",
    Reason.BELOW_BAR: "below the bar of gathering",
    Reason.BELOW_SLEEP: "below the bar of sleeping",
    Reason.FILTER: "filter",
    Reason.DELETED: "deleted by an operator",
    Reason.PURGED: "purged by an operator",
    Reason.ROBOTS_DENIED: "robots denied",
    Reason.ROBOTS_UNREACHABLE: "robots unreachable",
    Reason.NO_ADDRESS: "address does not resolve",
    Reason.GUARD: "address refused by the guard",
    Reason.CONNECTION: "connection failed",
    Reason.DEADLINE: "deadline passed",
    Reason.TOO_SLOW: "too slow",
    Reason.MALFORMED: "answer malformed",
    Reason.CLIENT_ERROR: "client error (4xx)",
    Reason.SERVER_ERROR: "server error (5xx, 429)",
    Reason.DECODING: "decoding failed or too large",
    Reason.MOVES: "too many moves",
    Reason.REAPER_LOST: "reaper lost",
    Reason.SERVER_SOFT: "over the server's soft limit",
    Reason.SERVER_HARD: "over the server's hard limit",
    Reason.SECTION_SOFT: "over the section's soft limit",
    Reason.SECTION_HARD: "over the section's hard limit",
    Reason.SPACE: "no room for its body",
    Reason.FRESH: "too many new URLs of its site at once",
    Reason.SITE_EMPTY: "its site keeps nothing else",
    Reason.TLS: "certificate or TLS version refused",
    Reason.LOOKUP: "name servers do not answer",
    Reason.PARSER: "kills its parser",
    Reason.UNREFERENCED: "nothing links to it any more",
    Reason.LOOK_UPS: "too many names of its domain to look up",
}


class Deferred(IntEnum):
    """Why the last plan left out a row that was due."""

    NOT = 0
    NO_ADDRESS = 1
    ROBOTS_UNREACHABLE = 2
    SERVER_WAITS = 3
    SERVER_QUOTA = 4
    PLAN_FULL = 5
    SITE_WAITS = 6


DEFERRED_TEXT: Final[dict[Deferred, str]] = {
    Deferred.NOT: "not deferred",
    Deferred.NO_ADDRESS: "address does not resolve",
    Deferred.ROBOTS_UNREACHABLE: "robots unreachable",
    Deferred.SERVER_WAITS: "server waits beyond the reap",
    Deferred.SERVER_QUOTA: "over the server's quota",
    Deferred.PLAN_FULL: "over the limit of the plan",
    Deferred.SITE_WAITS: "left alone, as its site asked",
}


def reason_text(number: int) -> str:
    """What a reason means; of one without a word its number."""
    return REASON_TEXT[Reason(number)] if number in _REASONS else str(number)


def deferred_text(number: int) -> str:
    """What a deferral means, likewise."""
    return DEFERRED_TEXT[Deferred(number)] if number in _DEFERRALS else str(number)


_REASONS: Final = frozenset(map(int, Reason))
_DEFERRALS: Final = frozenset(map(int, Deferred))


class Kind(IntEnum):
    """What a plan or journal record is about."""

    PAGE = 1
    ROBOTS = 2
    QKEY = 3
    RESUMED = 4


class Result(IntEnum):
    STORED = 1
    UNCHANGED = 2
    REDIRECT = 3
    DENIED = 4
    SOFT = 5
    HARD = 6
    SITE = 7
    CONNECTION = 8
    RESOLVED = 9
    UNRESOLVED = 10


class JournalFlag(IntFlag):
    CONTACTED = 1
    TRUNCATED = 2
    NOINDEX = 4
    PERMANENT = 8
    ELSEWHERE = 16
    HOP = 32
    STALE = 64
    COSTLY = 128


class Why(IntEnum):
    """Why a row was planned."""

    FORCED = 1
    OVERDUE = 2
    NEW = 3
    DUE = 4
    RETRY = 5
    ROBOTS = 6
    ANTICIPATED = 7


class ContribFlag(IntFlag):
    INSERTED = 1
    PINNED = 2
    PERMANENT = 4
    TEMPORARY = 8
    HTTPS = 16
    OWN_WEIGHT = 32
    CANONICAL = 64
    REQUISITE = 128
    OWN_SECTION = 256  # an operator said which, and no filter changes it
