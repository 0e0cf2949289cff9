"""What a master logs: one line an event, as key=value or JSON, on stderr or in a file that is opened again when it was rotated.

An event goes through the same logger as everything else. One with a text is shown as that text by a program that does not write
structured lines; one without is only for those that do. What has no name of its own is a `message`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from shepherd.console import common
from shepherd.expressions import TextForm
from shepherd.text import iso_ms

MESSAGE: Final = "message"


def log_event(event: str, text: str = "", level: int = logging.INFO, **fields: Any) -> None:
    common.LOG.log(level, "%s", text, extra={"event": event, "fields": fields})


def line(record: logging.LogRecord, as_json: bool) -> str:
    """A record as one line, whatever bytes of the web are in it."""
    when = iso_ms(int(record.created * 1000))
    entry = {"time": when, "level": record.levelname.lower(), "event": getattr(record, "event", MESSAGE)}
    entry |= {key: value for key, value in getattr(record, "fields", {}).items() if value is not None}
    text = record.getMessage()
    if text:
        entry["text"] = text
    if record.exc_info:
        entry["traceback"] = logging.Formatter().formatException(record.exc_info)
    return json.dumps(entry, default=str) if as_json else " ".join(f"{key}={_value(value)}" for key, value in entry.items())


def _value(value: Any) -> str:
    """Quoted as JSON where it would not be one word."""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    text = common.escape(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if TextForm.UNQUOTED.fullmatch(text) else json.dumps(value if isinstance(value, str) else text)


class Handler(logging.Handler):
    """Structured lines, each by one write: nothing is kept back, and nothing comes between."""

    def __init__(self, path: Path | None, as_json: bool) -> None:
        super().__init__()
        self._path = path
        self.as_json = as_json
        self._fd = -1
        self.reopen()

    def reopen(self) -> None:
        """Continue in a file of that name: the one that was there may have been renamed."""
        if self._path is None:
            return
        opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._close()
        self._fd = opened

    def emit(self, record: logging.LogRecord) -> None:
        """A full disk, or a reader that is gone, must not cost the cycle."""
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno() if self._fd < 0 else self._fd, line(record, self.as_json).encode() + b"\n")

    def close(self) -> None:
        self._close()
        super().close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def structured(path: Path | None, as_json: bool) -> Handler:
    """From now on everything that is logged comes as structured lines."""
    handler = Handler(path, as_json)
    common.LOG.handlers[:] = [handler]
    return handler


class OutputTail:
    """What a program writes to stdout and stderr, line by line, while it runs.

    A file and no pipe: a program that outlives us, or that we are too slow for, writes on undisturbed.
    """

    def __init__(self, on_line: Callable[[str], object]) -> None:
        self.fd = os.memfd_create("output", os.MFD_CLOEXEC)
        self.last_line = ""
        self._on_line = on_line
        self._offset = 0

    def read_new(self, is_last: bool = False) -> None:
        """Report the lines since the last call; with `is_last` also one that has no end yet."""
        for text in self._lines(is_last):
            self.last_line = text
            self._on_line(text)

    def _lines(self, is_last: bool) -> Iterator[str]:
        data = os.pread(self.fd, os.fstat(self.fd).st_size - self._offset, self._offset)
        end = len(data) if is_last else data.rfind(b"\n") + 1
        self._offset += end
        for text in data[:end].decode("utf-8", "backslashreplace").splitlines():
            if text.strip():
                yield text

    def close(self) -> None:
        self.read_new(is_last=True)
        os.close(self.fd)
