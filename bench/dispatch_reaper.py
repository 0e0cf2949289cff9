"""The other end of bench/dispatch: a reaper without a network, which answers every request with a page of its own making."""

from __future__ import annotations

import hashlib
import os
import socket
import struct

import numpy as np

from shepherd import urls
from shepherd.formats import bucket, contrib
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.wire import messages as wire

CREDITS = 200
BODY = os.urandom(20_000)
DIGEST = hashlib.sha256(BODY).digest()
POOL = 3_000  # links that all pages share
LENGTH = struct.Struct("<I")


def answer_all(connection: socket.socket, links: int) -> None:
    """Serve until the dispatcher says BYE."""
    with connection.makefile("rwb") as stream:
        hello = _next(stream)
        assert isinstance(hello, wire.Hello)
        _send(stream, wire.Welcome(wire.VERSION, os.getpid(), CREDITS, []))
        prints = urls.Footprints(hello.key)
        pool = [f"http://www.site{n // 30}.example/shared/{n}.html" for n in range(POOL)]
        while (message := _next(stream)) is not None and not isinstance(message, wire.Bye):
            if isinstance(message, wire.Resolve):
                address = ".".join(str(8 + (message.site >> shift) % 100) for shift in (0, 8, 16, 24))
                _send(stream, wire.Resolved(message.token, urls.qkey_of_address(address), address, 3_600, 0))
            elif isinstance(message, wire.Fetch):
                _send(stream, _page(message, hello, prints, pool, links if message.kind == Kind.PAGE else 0))
            elif isinstance(message, wire.Ping):
                _send(stream, message)


def _next(stream: object) -> wire.Message | None:
    head = stream.read(LENGTH.size)  # type: ignore[attr-defined]
    return wire.decode(stream.read(LENGTH.unpack(head)[0])) if head else None  # type: ignore[attr-defined]


def _send(stream: object, message: wire.Message) -> None:
    stream.write(wire.encode(message))  # type: ignore[attr-defined]
    stream.flush()  # type: ignore[attr-defined]


def _page(fetch: wire.Fetch, hello: wire.Hello, prints: urls.Footprints, pool: list[str], links: int) -> wire.FetchResult:
    now_ms = fetch.start_by_ms - 10_000
    attributes = [("U", fetch.url.encode()), ("S", b"HTTP/1.1 200 OK"), ("T", b"text/html"), ("D", DIGEST), ("t", b"A page")]
    stored = bucket.pack(site=fetch.site, path=fetch.path, time_ms=now_ms, state=hello.state, attributes=attributes, body=BODY)
    record = Entry(
        norm=fetch.norm,
        path=fetch.path,
        site=fetch.site,
        digest=int.from_bytes(DIGEST[:8], "little"),
        start_ms=now_ms,
        end_ms=now_ms,
        download_ms=50,
        body_bytes=len(BODY),
        wire_bytes=len(BODY),
        status=200,
        flags=int(JournalFlag.CONTACTED),
        kind=fetch.kind,
        result=Result.STORED,
        reason=Reason.GATHERED,
    )
    block = b""
    if links:
        new = [f"http://www.site{fetch.token % 300}.example/{fetch.token}/{n}.html" for n in range(links // 3)]
        old = [pool[(fetch.token * 17 + n) % POOL] for n in range(links - len(new))]
        block = _block(urls.batch(fetch.url, new + old, prints), fetch, hello)
    rules = b"User-agent: *\nDisallow: /private\n" if fetch.kind == Kind.ROBOTS else b""
    return wire.FetchResult(fetch.token, record.pack(), stored, block, "", rules, 200 if rules else 0, b"", 0, 0)


def _block(links: urls.Links, fetch: wire.Fetch, hello: wire.Hello) -> bytes:
    count = len(links)
    sites, first = np.unique(links.site, return_index=True)
    return contrib.encode(
        contrib.Block(
            norm=links.norm,
            path=links.path,
            site=links.site,
            lastmod=np.zeros(count, "<u4"),
            parent=np.zeros(count, "<u4"),
            parent_weight=np.full(count, min(fetch.weight, 100), "<u2"),
            flags=np.zeros(count, "<u2"),
            section=np.zeros(count, "u1"),
            texts=[text.encode() for text in links.paths],
            sites=sites,
            norms=links.norm[first],
            names=[links.sites[at].encode() for at in first.tolist()],
            parents_site=np.array([fetch.site], "<u8"),
            parents_path=np.array([fetch.path], "<u8"),
            filter_version=hello.filter_version,
        )
    )
