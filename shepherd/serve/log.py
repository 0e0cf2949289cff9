"""The access log: one event for each request, with client, path, status and bytes sent.

The path is logged, the query is not: handlers put what counts of it into the notes. So a token that somebody puts there by
mistake is not in the log.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from aiohttp import web

_LOG: Final = logging.getLogger(__name__)


def log_event(event: str, text: str = "", level: int = logging.INFO, **fields: Any) -> None:
    """As in master/events.py: a program that writes structured lines writes the fields, too."""
    _LOG.log(level, "%s", text, extra={"event": event, "fields": fields})


def log_request(
    request: web.Request, client: str | None, status: int, bytes_sent: int, seconds: float, notes: dict[str, Any]
) -> None:
    entry: dict[str, Any] = {"client": client, "peer": request.remote, "method": request.method}
    entry |= {"path": request.rel_url.raw_path, "status": status, "bytes": bytes_sent, "seconds": round(seconds, 4)}
    log_event("request", **(entry | notes))
