"""How all programs write: times, sizes and counts as text, and foreign text as it may be shown.

Whatever comes from the web or from an operator goes through `escape` before it meets a terminal or a log.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shepherd.errors import BadUrl, Corruption, IoFailed, ShepherdError
from shepherd.expressions import TextForm

if TYPE_CHECKING:
    from shepherd.urls import Url

LATEST_S: Final = 2**32 - 1  # times are kept in 32 bits
LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999: no calendar goes further
MOST_SHOWN: Final = 200  # characters of a line that is refused
_AGE_UNITS: Final = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))


# --- times and sizes --------------------------------------------------------------------------------------------


def iso(seconds: int) -> str:
    """A time, in UTC; nothing for 0, which is never. One that no column could hold is shown as the latest that can."""
    return f"{datetime.fromtimestamp(min(seconds, LATEST_S), UTC).isoformat()[:19]}Z" if seconds else ""


def iso_ms(time_ms: int) -> str:
    """A time to the millisecond, in UTC. What no calendar holds is shown as the nearest that one does."""
    seconds, rest_ms = divmod(min(max(time_ms, 0), LATEST_MS), 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest_ms:03d}Z"


def span(seconds: int) -> str:
    """A duration, in the largest unit of which it has at least two."""
    unit, name = next((unit, name) for least, unit, name in _AGE_UNITS if seconds >= least)
    return f"{seconds // unit} {name}"


def moment(seconds: int, now: int) -> str:
    """A time and how far it is from now."""
    if not seconds:
        return "never"
    return f"{iso(seconds)} ({span(now - seconds)} ago)" if seconds <= now else f"{iso(seconds)} (in {span(seconds - now)})"


def many(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Bytes, in the unit that keeps the number short."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1_000
    return f"{value:.1f} TB"


# --- what others wrote ------------------------------------------------------------------------------------------


def escape(text: str | bytes) -> str:
    """The text with whatever could steer a terminal or break a line written as an escape."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def plain(value: Any) -> Any:
    """The `default` of json.dumps: values that it does not know."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return escape(value)
    if hasattr(value, "tolist"):  # numpy's scalars and arrays, without importing it
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def parse_given(text: str) -> Url:
    """What an operator wrote, strictly read; BadUrl gives the reason."""
    from shepherd import urls

    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadUrl("not UTF-8") from None
    return urls.parse(text, strict=True)


def redact(text: str) -> str:
    """A refused text as it may stand in a message or a log: without a password, and cut where it is long."""
    user = TextForm.USER.match(text)
    end = text.rfind("@", user.end()) if user else -1
    if user and end >= 0:
        text = f"{user[1]}:...{text[end:]}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


# --- what went wrong --------------------------------------------------------------------------------------------


def with_advice(error: ShepherdError) -> str:
    """The message, with what to do next where it does not say so itself."""
    text, cause = str(error), error.__cause__
    if isinstance(error, Corruption) and "shep-" not in text:
        return f"{text}; shep-check names all damage"
    if isinstance(error, IoFailed) and isinstance(cause, PermissionError):
        return text.replace("look at the disk before you continue", "run this as the user whose database it is")
    return text
