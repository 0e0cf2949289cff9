"""What the server answers with: a Struct as JSON, or a refusal that says why.

Every answer forbids browsers to guess, frame or keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web

from shepherd.wire import api

# A page that wants to be more than data says so itself.
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Refused(Exception):
    """A refusal: its status, and one sentence that says what is wrong and what to do."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers or {}


def answer(value: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, headers=headers, content_type="application/json")


def refusal(refused: Refused) -> web.Response:
    return answer(api.Refusal(refused.text), refused.status, refused.headers)


async def adorn(_request: web.Request, response: web.StreamResponse) -> None:
    """As a signal of aiohttp, which is sent for what a route has answered."""
    adorn_now(response)


def adorn_now(response: web.StreamResponse) -> None:
    """The headers of every answer."""
    response.headers["Server"] = "shepherd"
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
