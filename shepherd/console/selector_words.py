"""What stands behind a selector, as an operator writes it: ages, statuses, weights, servers; read, and written again."""

from __future__ import annotations

import re
from typing import Any

from shepherd import sections
from shepherd.formats import vocabulary

MOST_WEIGHT = 65_535
_AGE = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_STATUS = re.compile(r"([0-9])([0-9]{2}|xx)")
_WEIGHTS = re.compile(r"([0-9]{1,5})?\.\.([0-9]{1,5})?|([0-9]{1,5})")
_SHOWN_QKEY = re.compile(r"\[v6:([0-9a-f]{14})\]|7f([0-9a-f]{6})\?")

TYPES = vocabulary.words(vocabulary.RowType)
REASONS = vocabulary.words(vocabulary.Reason)


def read_age(text: str) -> int:
    """Seconds; ValueError, here and below, says what is allowed."""
    match = _AGE.fullmatch(text)
    if not match:
        raise ValueError("allowed is a number with its unit, such as 45s, 90m, 12h, 30d or 2w")
    return int(match[1]) * _SECONDS[match[2]]


def read_status(text: str) -> range:
    """One status, or a class of them."""
    match = _STATUS.fullmatch(text.lower())
    if not match:
        raise ValueError("allowed is an HTTP status as 404, or a class of them as 4xx")
    if match[2] == "xx":
        return range(int(match[1]) * 100, int(match[1]) * 100 + 100)
    return range(int(text), int(text) + 1)


def read_weights(text: str) -> tuple[int, int]:
    """The least and the most."""
    match = _WEIGHTS.fullmatch(text)
    if match:
        least = int(match[3] or match[1] or 0)
        most = int(match[3] or match[2] or MOST_WEIGHT)
        if least <= most <= MOST_WEIGHT:
            return least, most
    raise ValueError(f"allowed is MIN..MAX, MIN.., ..MAX or one number, from 0 to {MOST_WEIGHT}")


def read_server(text: str) -> int:
    """The queue key of an address, or of a server as the programs show it."""
    from shepherd import urls
    from shepherd.formats import tables

    match = _SHOWN_QKEY.fullmatch(text)
    if match:
        kind = tables.QKEY_IPV6 if match[1] else tables.QKEY_NONE
        return kind << 56 | int(match[1] or match[2], 16)
    try:
        return urls.qkey_of_address(text.strip("[]"))
    except ValueError:
        raise ValueError("allowed is an address such as 192.0.2.7 or 2001:db8::7, or a server as commands print it") from None


def read_glob(text: str) -> str:
    from shepherd.filters import patterns

    return patterns.normal_pattern("glob", text)


def written(option: str, value: Any) -> str:
    """A value as it would be written again."""
    from shepherd.formats import tables

    if option == "--server":
        return tables.show_qkey(value)
    if option == "--status":
        return str(value.start) if len(value) == 1 else f"{value.start // 100}xx"
    if option == "--section":
        return sections.section_name(value)
    if option == "--weight":
        return f"{value[0]}..{value[1]}"
    return f"{value}s" if option in ("--older", "--newer") else str(value)
