"""Connections on which a server must come to the point: the head of each answer has one deadline.

The timeout of a socket is for one piece of data: a byte a minute keeps it, and a program that waits for a head would wait for
ever. A handshake of TLS has one deadline of its own; what comes behind the head is its reader's to bound.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.client import RemoteDisconnected
from typing import Any, Final

import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

HEAD_S: Final = 180.0  # more than a server may say nothing for


class DeadlineAdapter(HTTPAdapter):
    """What a session of `requests` needs to have such connections."""

    def init_poolmanager(self, *words: Any, **more: Any) -> None:
        super().init_poolmanager(*words, **more)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


class _Connection(HTTPConnection):
    def getresponse(self) -> Any:
        with _deadline(self):
            return super().getresponse()


class _TlsConnection(HTTPSConnection):
    def getresponse(self) -> Any:
        with _deadline(self):
            return super().getresponse()


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


@contextlib.contextmanager
def _deadline(connection: HTTPConnection) -> Iterator[None]:
    """Shut the connection when the time is over: whoever reads from it then comes to an end."""
    is_over = threading.Event()

    def shut() -> None:
        is_over.set()
        if connection.sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # of TLS not its own, which undoes what a reader uses

    timer = threading.Timer(HEAD_S, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if is_over.is_set():  # half a head may look like a whole one
        raise RemoteDisconnected(f"no answer has begun in {HEAD_S:.0f} s")
