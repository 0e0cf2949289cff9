"""What a filter can say of a site or server: the names and values of `set` and `group`, and the columns they become.

The defaults of SiteSettings are what docs/formats.md gives for "no line".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import mmh3

from shepherd.sections import ALLOWED, section_number

NO_LIMIT: Final = 0xFFFFFFFF  # no line speaks of it
IGNORE_ROBOTS: Final = 1  # in policy
GROUP_BIT: Final = 1 << 63  # no queue key has it

_CHECK_SEED: Final = 0x5348
_SECONDS: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,5}")
_GROUP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class SiteSettings:
    """What the filter says of a site, under the names of its columns."""

    delay_ms: int = NO_LIMIT
    soft_limit: int = NO_LIMIT
    hard_limit: int = NO_LIMIT
    fresh_limit: int = NO_LIMIT
    slots: int = 0
    select_bonus: int = 0
    queue_bonus: int = 0
    refresh_boost: int = 0
    section: int = 0
    policy: int = 0
    group: int = 0


@dataclass(frozen=True)
class SetLine:
    """A line that sets something, and what."""

    name: str  # as it is written: min_delay, robots, group ...
    value_text: str  # its value, as it is written
    value: int  # the same as it stands in the column
    line: int
    text: str

    @property
    def column(self) -> str:
        """ "" = it is of no phase: reapers alone, who are sent the filter, look at it."""
        return COLUMNS.get(self.name, self.name)


COLUMNS: Final = {
    "min_delay": "delay_ms",
    "robots": "policy",
    "requisites": "",
}  # where the name of a setting is not that of its column


def ignores_robots(policy: int) -> bool:
    """Whether a site with this setting is gathered against its robots.txt."""
    return policy & IGNORE_ROBOTS != 0


def settings_by(lines: Sequence[SetLine]) -> SiteSettings:
    """The settings that lines of different names give."""
    return SiteSettings(**{line.column: line.value for line in lines if line.column})


def group_number(name: str) -> int:
    """check64 of the name with the top bit set: so it is never 0, and never a queue key."""
    return mmh3.hash64(name.encode(), _CHECK_SEED, signed=False)[0] | GROUP_BIT


# --- values -----------------------------------------------------------------------------------------------------


def read_value(setting: str, word: str) -> int:
    """What the column holds for a value as it is written; ValueError says what is allowed."""
    allowed, read = SETTINGS[setting]
    value = read(word)
    if value is None:
        raise ValueError(f"{word!r} does not fit; allowed is {allowed}")
    return value


def _milliseconds(word: str) -> int | None:
    return round(float(word) * 1_000) if _SECONDS.fullmatch(word) else None


def _within(least: int, most: int) -> Callable[[str], int | None]:
    def read(word: str) -> int | None:
        return int(word) if _SIGNED.fullmatch(word) and least <= int(word) <= most else None

    return read


def _count(word: str) -> int | None:
    return int(word) if _COUNT.fullmatch(word) else None


def _section(word: str) -> int | None:
    try:
        return section_number(word)
    except ValueError:
        return None


def _robots(word: str) -> int | None:
    return {"ignore": IGNORE_ROBOTS, "obey": 0}.get(word)


def _yes(word: str) -> int | None:
    return {"yes": 1, "no": 0}.get(word)


def _group(word: str) -> int | None:
    return group_number(word) if _GROUP.fullmatch(word) else None


_LIMIT: Final = ("a whole number of at most nine digits", _count)  # well below NO_LIMIT
_BONUS: Final = ("a whole number from -32768 to 32767", _within(-32_768, 32_767))

# What is allowed, in words, and what reads it.
SETTINGS: Final[dict[str, tuple[str, Callable[[str], int | None]]]] = {
    "min_delay": ("seconds, such as 10 or 2.5, below a million", _milliseconds),
    "slots": ("a whole number from 1 to 65535", _within(1, 65_535)),
    "soft_limit": _LIMIT,
    "hard_limit": _LIMIT,
    "fresh_limit": _LIMIT,
    "section": (ALLOWED, _section),
    "select_bonus": _BONUS,
    "queue_bonus": _BONUS,
    "refresh_boost": ("a whole number from 1 to 255", _within(1, 255)),
    "robots": ("ignore or obey", _robots),
    "requisites": ("yes or no", _yes),
    "group": ("a name of letters, digits, `_`, `.` and `-`", _group),  # by lines `group NAME`
}
SET_NAMES: Final = tuple(name for name in SETTINGS if name != "group")
