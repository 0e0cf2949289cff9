"""The access log: one event for each request, which says who asked for what, what came of it, and how much was sent.

The path is told, the query is not: what of it counts, handlers put into the notes. So a token that somebody puts there by mistake
is not in the log.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from aiohttp import web

_LOG: Final = logging.getLogger(__name__)


def tell(event: str, text: str = "", level: int = logging.INFO, **fields: Any) -> None:
    """As master/events.py tells: a program that writes structured lines writes the fields, too."""
    _LOG.log(level, "%s", text, extra={"event": event, "fields": fields})


def tell_request(request: web.Request, client: str | None, status: int, sent: int, seconds: float, notes: dict[str, Any]) -> None:
    told: dict[str, Any] = {"client": client, "peer": request.remote, "method": request.method}
    told |= {"path": request.rel_url.raw_path, "status": status, "bytes": sent, "seconds": round(seconds, 4)}
    tell("request", **(told | notes))
