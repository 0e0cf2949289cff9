"""The log: one event for each request, with client, path, status and bytes sent; and events that strangers can bring about.

Invariant: nothing that came from somebody without a token is logged, but for the address that it came from. Of a client the path
is logged, the query is not: handlers put what counts of it into the notes. So a token in the wrong place is not in the log.
"""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any, Final

from aiohttp import hdrs, web

from shepherd.serve.limits import Clock, Rate

_LOG: Final = logging.getLogger(__name__)
LINES_PER_S: Final = 1.0  # of the events of one kind that somebody can bring about as often as he likes
LINES_AT_ONCE: Final = 10.0


def log_event(event: str, text: str = "", level: int = logging.INFO, **fields: Any) -> None:
    """As in master/events.py: a program that writes structured lines writes the fields, too."""
    _LOG.log(level, "%s", text, extra={"event": event, "fields": fields})


class EventThrottle:
    """Lets so many events of a kind into the log, and counts the others: the next one that is logged has their number."""

    def __init__(self, per_s: float = LINES_PER_S, at_once: float = LINES_AT_ONCE, clock: Clock = time.monotonic) -> None:
        self._rate = Rate(per_s, at_once, clock)
        self._not_logged = 0

    def log(self, event: str, text: str = "", level: int = logging.INFO, **fields: Any) -> None:
        if self._rate.try_take():
            self._not_logged += 1
            return
        log_event(event, text, level, **fields, **({"not_logged": self._not_logged} if self._not_logged else {}))
        self._not_logged = 0


def request_fields(
    request: web.Request, client: str | None, status: int, bytes_sent: int, seconds: float, notes: dict[str, Any]
) -> dict[str, Any]:
    """What the event of a request has. Of a stranger's path only which route it is: it may be a token that slipped there."""
    path = request.rel_url.raw_path if client else _route_of(request)
    method = request.method if request.method in hdrs.METH_ALL else None
    entry: dict[str, Any] = {"client": client, "peer": request.remote, "method": method}
    entry |= {"path": path, "status": status, "bytes": bytes_sent, "seconds": round(seconds, 4)} | notes
    token = request.headers.get("Authorization", "").rpartition(" ")[2]
    return {key: _without(token, value) for key, value in entry.items()}


def _without(token: str, value: Any) -> Any:
    """A client may put its token into a path or a parameter by mistake."""
    return "(the token)" if token and isinstance(value, str) and token in value else value


def _route_of(request: web.Request) -> str | None:
    resource = request.match_info.route.resource
    return resource.canonical if resource else None


def log_bug(error: BaseException | None) -> None:
    """Where it is, but not what it says: that may be a stranger's text."""
    frames = "".join(traceback.format_tb(error.__traceback__)) if error else ""
    name = type(error).__name__ if error else "no error"
    log_event("bug", f"a bug in the server: {name}", logging.ERROR, traceback=frames or None)
