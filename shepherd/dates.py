"""When a sitemap or feed says that a URL was modified: W3C dates, and those of RFC 822 that RSS has."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

_W3C: Final = re.compile(
    r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?)?)?", re.IGNORECASE
)
_U32_MAX: Final = 0xFFFFFFFF


def seconds_of(text: str) -> int:
    """Seconds since 1970; 0 where the text is no time, or one that has no place there. Without a zone it is UTC."""
    text = text.strip()[:64]
    found = _W3C.fullmatch(text)
    try:
        when = _w3c(found) if found else parsedate_to_datetime(text)
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0
    return int(seconds) if 0 < seconds <= _U32_MAX else 0


def _w3c(found: re.Match[str]) -> datetime:
    year, month, day, hour, minute, second = (int(part) if part else None for part in found.groups()[:6])
    when = datetime(year or 0, month or 1, day or 1, hour or 0, minute or 0, min(second or 0, 59), tzinfo=UTC)
    zone = found.group(7) or "Z"
    if zone in "Zz":
        return when
    shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return when - shift if zone[0] == "+" else when + shift
