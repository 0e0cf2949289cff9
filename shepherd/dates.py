"""Dates as servers write them: those of HTTP and mail, and W3C dates of sitemaps and feeds. How we write times: text.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from re import Match
from typing import Final

from shepherd.expressions import TextForm

MOST_DATE: Final = 64  # characters that are looked at; the longest that HTTP knows has 33
_U32_MAX: Final = 0xFFFFFFFF


def seconds_of(text: str) -> int:
    """Seconds since 1970; 0 where the text is no time, or one that has no place there. Without a zone it is UTC."""
    text = text.strip()[:MOST_DATE]
    if match := TextForm.W3C_DATE.fullmatch(text):
        try:
            seconds: float | None = _w3c(match).timestamp()
        except (ValueError, OverflowError):
            return 0
    else:
        seconds = http_seconds(text)
    return int(seconds) if seconds and 0 < seconds <= _U32_MAX else 0


def http_seconds(text: str) -> float | None:
    """Seconds since 1970 of a date in a header; None where the text is no date. Without a zone it is UTC."""
    try:
        when = parsedate_to_datetime(text[:MOST_DATE])
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _w3c(match: Match[str]) -> datetime:
    year, month, day, hour, minute, second = (int(part) if part else None for part in match.groups()[:6])
    when = datetime(year or 0, month or 1, day or 1, hour or 0, minute or 0, min(second or 0, 59), tzinfo=UTC)
    zone = match.group(7) or "Z"
    if zone in "Zz":
        return when
    shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return when - shift if zone[0] == "+" else when + shift
