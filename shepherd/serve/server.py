"""The server as a process: where it listens, with which certificate, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import web

from shepherd import secrets
from shepherd.addresses import Listen
from shepherd.config import Config
from shepherd.errors import IoFailed, UsageError
from shepherd.serve import app
from shepherd.serve.connection import IDLE_S, Full, HttpConnection
from shepherd.serve.listener import FULL, open_listeners
from shepherd.serve.log import EventThrottle, log_bug, log_event
from shepherd.serve.seats import Seats
from shepherd.serve.service import Service

SHUTDOWN_S: Final = 1.0  # for handlers to see that their sockets are shut, when serve.drain_s is over
HANDSHAKE_S: Final = 10.0
BACKLOG: Final = 32  # connections beyond the limit that still get a refusal
STRANGER_S: Final = 10.0  # most that a connection may take to bring a request with a known token, from its last one on
SETTINGS: Final = {
    "keepalive_timeout": IDLE_S,
    "lingering_time": 2.0,
    "auto_decompress": False,
    "access_log": None,
}


def certificate(config: Config) -> ssl.SSLContext | None:
    """For HTTPS, where [serve] names the files; a key that others can read is refused."""
    if not config.serve.certificate:
        return None
    chain, key = config.directory / config.serve.certificate, config.directory / config.serve.key
    secrets.refuse_open(key, "private key", "serve.key of shepherd.toml names it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(chain, key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"{chain}, {key}: cannot be used as certificate and key: {error}") from error
    return context


async def serve(
    service: Service, listen: Listen, tls: ssl.SSLContext | None, on_ready: Callable[[int], None], on_hang_up: Callable[[], None]
) -> None:
    """Until SIGTERM or Ctrl-C. `on_ready` gets the port when it is open."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_softly, loop, stop)
    loop.add_signal_handler(signal.SIGHUP, on_hang_up)
    loop.set_exception_handler(lambda _loop, context: log_bug(context.get("exception")))
    runner = web.AppRunner(app.make(service, _names(listen)), shutdown_timeout=SHUTDOWN_S, access_log=None)
    await runner.setup()
    server = runner.server
    assert server is not None

    settings = service.settings
    broken_requests = EventThrottle()
    metrics, stranger_s = service.metrics, min(settings.stall_s, STRANGER_S)
    seats = Seats(settings.connections, settings.connections_per_address, BACKLOG, metrics.turned_away, metrics.displaced)

    def connect() -> asyncio.Protocol:
        if seats.is_overfull:
            return Full()
        return HttpConnection(server, loop, service, seats, stranger_s, broken_requests, **SETTINGS)

    try:
        listeners = open_listeners(listen, seats, b"" if tls else FULL, BACKLOG)
    except OSError as error:
        await runner.cleanup()
        raise IoFailed(f"{listen}: cannot listen there: {error.strerror or error}; choose another with --listen") from error
    handshake_s = HANDSHAKE_S if tls else None
    listening = [
        await loop.create_server(connect, sock=listener, ssl=tls, ssl_handshake_timeout=handshake_s, backlog=BACKLOG)
        for listener in listeners
    ]
    on_ready(listeners[0].getsockname()[1])
    await stop.wait()
    for server_socket in listening:
        server_socket.close()
    log_event("drain", under_way=len(service.drain))
    await service.drain.run(settings.drain_s)
    service.close()
    await runner.cleanup()


def _names(listen: Listen) -> frozenset[str] | None:
    """What a request may call us: on loopback only what leads there, whatever a name of the web points to today."""
    return app.LOCAL | {str(listen).rpartition(":")[0].lower()} if listen.is_loopback else None


def _stop_softly(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """A second signal ends us at once."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    stop.set()
