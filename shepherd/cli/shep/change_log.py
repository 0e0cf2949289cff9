"""db/log/changes.jsonl: who asked for which change, and when (docs/formats.md). What came of it is in the report of a merge."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shepherd.console import common, phase, shared

CHANGES = "changes.jsonl"
MOST_URLS = 20  # of those that were given by name


def who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number only
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def note(
    db: Path,
    op: str,
    settings: Mapping[str, Any],
    words: list[str],
    urls: tuple[str, ...],
    files: tuple[str, ...],
    count: int,
    item: str,
) -> None:
    """One more line. The request is durable by now and says who asked, too: a log that cannot be written costs only a warning."""
    line: dict[str, Any] = {"time": int(time.time()), "by": who(), "op": op, "count": count, "item": item}
    line |= {"set": dict(settings)} if settings else {}
    line |= {"selectors": words} if words else {}
    line |= {"files": list(files)} if files else {}
    if urls:
        line["urls"] = [shared.redact(url) for url in urls[:MOST_URLS]]
    try:
        phase.append_line(db / "log" / CHANGES, line)
    except OSError as error:
        common.LOG.warning("the change could not be logged in %s: %s", db / "log" / CHANGES, error.strerror)
