"""The application: what happens around each request of a route (routes.py), and what an error becomes as an answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from shepherd.errors import ConfigError, EquivError, FilterError, Locked, NoSpace, OldFormat, ShepherdError, UsageError
from shepherd.serve.answers import Refused, adorn, refusal
from shepherd.serve.connection import ANSWERED, HttpConnection
from shepherd.serve.drain import LEAVING
from shepherd.serve.log import EventThrottle, log_bug, log_event, request_fields
from shepherd.serve.routes import ROUTES, Handler, Route
from shepherd.serve.service import JSON_BYTES, SERVICE, Ask, Service

ASK: Final = "ask"
LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
BEARER: Final = "a token goes into the header Authorization: Bearer TOKEN"
NOBODY: Final = Refused(401, f"{BEARER}; shep-serve token add makes one", {"WWW-Authenticate": "Bearer"})
UNKNOWN: Final = Refused(
    401,
    "this token is unknown: it was revoked, or belongs to another server; shep-serve token add makes one",
    {"WWW-Authenticate": 'Bearer error="invalid_token"'},
)
IN_QUERY: Final = Refused(400, f"{BEARER}, and never into a query, which ends up in logs; make a new one, and remove this one")
QUERIED: Final = frozenset({"token", "access_token"})
OURS: Final = (ConfigError, EquivError, FilterError, OldFormat)  # of the errors of usage, those that no request is to blame for


def make(service: Service, hosts: frozenset[str] | None) -> web.Application:
    """`hosts` are the names that a request may call us by; None = any."""
    app = web.Application(middlewares=[_around(hosts)], client_max_size=JSON_BYTES)
    app[SERVICE] = service
    app.on_response_prepare.append(adorn)
    for route in ROUTES:
        guarded = _guarded(route)
        app.router.add_route(route.method, route.path, guarded)
        if route.method == "GET":
            app.router.add_route("HEAD", route.path, guarded)  # the same, of which aiohttp sends the headers alone
    return app


# --- around each request ----------------------------------------------------------------------------------------


def _around(hosts: frozenset[str] | None) -> Callable[..., Awaitable[web.StreamResponse]]:
    refusals = EventThrottle()  # requests of strangers, and those that are one too many: their number is not ours to bound

    @web.middleware
    async def around(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        began_s = time.monotonic()
        ask = request[ASK] = Ask(request.app[SERVICE], request)
        try:
            ask.client = ask.service.tokens.find(_bearer_token(request))
            if isinstance(request.protocol, HttpConnection):
                request.protocol.on_request(ask.client.name if ask.client else None)
            response = await _limited(ask, hosts, handler)
        except Refused as error:
            response = refusal(error)
        except web.HTTPException as error:
            allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            response = refusal(Refused(error.status, error.reason, allowed))
        except Exception as error:
            response = refusal(_failure(error, ask))
        if ask.service.drain.is_on():
            response.force_close()
        bytes_sent = (
            ask.bytes_sent if ask.bytes_sent is not None else getattr(response, "body_length", 0) or response.content_length or 0
        )
        bytes_sent = 0 if ask.is_head else bytes_sent
        if ask.client is None:
            ask.allowance.bytes.take(bytes_sent)
        name = ask.client.name if ask.client else None
        seconds, resource = time.monotonic() - began_s, request.match_info.route.resource
        fields = request_fields(request, name, response.status, bytes_sent, seconds, ask.notes)
        if ask.client is None or response.status == 429:
            refusals.log("request", **fields)
        else:
            log_event("request", **fields)
        ask.service.metrics.answered(resource.canonical if resource else "none", response.status, bytes_sent, seconds)
        request[ANSWERED] = True
        return response

    return around


def _bearer_token(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _guarded(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    names = tuple(parameter.name for parameter in route.operation.parameters)

    async def guarded(request: web.Request) -> web.StreamResponse:
        ask: Ask = request[ASK]
        ask.parameter_names = names
        return await _permitted(route, ask, bool(_bearer_token(request)))(ask)

    return guarded


def _permitted(route: Route, ask: Ask, has_token: bool) -> Handler:
    """The handler for this client."""
    in_query = not QUERIED.isdisjoint(ask.request.query)
    if not in_query and (not route.roles or (ask.client and any(ask.client.may(role) for role in route.roles))):
        return route.handler

    async def refuse(ask: Ask) -> web.StreamResponse:
        if in_query:
            raise IN_QUERY
        if ask.client is None:
            raise UNKNOWN if has_token else NOBODY
        raise Refused(403, f"this needs the role {' or '.join(route.roles)}, which {ask.client.name} has not")

    return refuse


async def _limited(
    ask: Ask, hosts: frozenset[str] | None, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Its answer, within the limits of whoever asks. What is refused, or leads nowhere, counts as well."""
    ask.count()
    if ask.service.drain.is_on():
        raise LEAVING
    if hosts is not None and _without_port(ask.request.host) not in hosts:
        # A page that a browser has from elsewhere may have had its name point here since it was loaded.
        raise Refused(421, "this server is not called so")
    allowance, most = ask.allowance, ask.service.settings.connections_per_client
    if allowance.under_way >= most:
        raise Refused(429, f"{most} requests are under way already (serve.connections_per_client)", {"Retry-After": "1"})
    allowance.under_way += 1
    try:
        return await handler(ask.request)
    finally:
        allowance.under_way -= 1


def _failure(error: Exception, ask: Ask) -> Refused:
    """The answer to an error that is not the client's own: texts with paths of this machine are for the log alone."""
    if isinstance(error, OURS):
        log_event("failed", str(error), logging.ERROR)
        return Refused(500, "the server cannot use its configuration or its database; its operator finds the reason in the log")
    if isinstance(error, UsageError):
        return Refused(400, str(error))
    if isinstance(error, Locked):
        log_event("failed", str(error), logging.ERROR)
        return Refused(503, "another program keeps the leases locked; ask again later", {"Retry-After": "10"})
    if isinstance(error, NoSpace):
        log_event("failed", str(error), logging.ERROR)
        return Refused(507, "the disk of the server is full; try again later")
    if isinstance(error, ShepherdError) or (isinstance(error, OSError) and not isinstance(error, ConnectionError)):
        log_event("failed", str(error), logging.ERROR)
        return Refused(500, "the server cannot read its database; its operator finds the reason in the log")
    if ask.client is None:
        log_bug(error)
    else:
        logging.getLogger(__name__).error("a bug in the server", exc_info=error)
    return Refused(500, "a bug in the server; its operator finds the reason in the log")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()
