"""The dispatcher's end of a connection to a worker, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import uvloop
from msgspec import structs

from shepherd import urls
from shepherd.filters import parse_filter
from shepherd.formats import bucket, contrib
from shepherd.formats.tables import JOURNAL, JournalFlag, Kind, Reason, Result
from shepherd.reaper.process import worker
from shepherd.wire import messages as wire
from tests.support.origin import Answer, Origin, serve

T = TypeVar("T")

KEY = bytes(range(16))
FOOTPRINTS = urls.Footprints(KEY)
SITE = FOOTPRINTS.half("http://a.example")
FILTER = "reject ext jpg\nstrip utm_*\n"
HTML = "Content-Type: text/html; charset=utf-8"
FAR_MS = 4_000_000_000_000
LINKS = b"""<html><head><title>A page</title></head><body><a href="/one">1</a> <a href="https://b.example/two?utm_x=1&y=2">2</a>
<a href="photo.jpg">3</a> <a href="mailto:x@y">4</a> <a href="/one#part">5</a></body></html>"""


def digest_of(body: bytes) -> int:
    return int.from_bytes(hashlib.sha256(body).digest()[:8], "little")


@dataclass(frozen=True)
class Outcome:
    raw: wire.FetchResult
    record: np.void

    @classmethod
    def of(cls, result: wire.FetchResult) -> Outcome:
        return cls(result, np.frombuffer(result.record, JOURNAL)[0])

    @property
    def verdict(self) -> tuple[Result, Reason]:
        return Result(self.record["result"]), Reason(self.record["reason"])

    @property
    def flags(self) -> JournalFlag:
        return JournalFlag(int(self.record["flags"]))

    @property
    def contacted(self) -> bool:
        return JournalFlag.CONTACTED in self.flags

    @property
    def bucket(self) -> bucket.Bucket:
        return bucket.parse(self.raw.bucket)

    @property
    def links(self) -> contrib.Block:
        return contrib.decode(self.raw.links)

    @property
    def hrefs(self) -> list[str]:
        """The URLs of the contributions, as record will put them together."""
        names = dict(zip(self.links.sites.tolist(), self.links.names, strict=True))
        pairs = zip(self.links.site.tolist(), self.links.texts, strict=True)
        return [(names[site] + text).decode() for site, text in pairs]


class Dispatcher:
    """The other end of a worker, with one request in flight at a time."""

    def __init__(self, peer: wire.Peer) -> None:
        self.peer = peer
        self._token = 0

    async def rules(self, body: str = "", status: int = 200) -> None:
        await self.peer.send(wire.Robots(SITE, status, body.encode()))

    async def ask(self, path: str, **changes: Any) -> None:
        self._token += 1
        url = urls.parse(f"http://a.example{path}")
        norm, half, site = FOOTPRINTS.of(url)
        plain = wire.Fetch(
            token=self._token,
            kind=Kind.PAGE,
            url=url.href,
            norm=norm,
            path=half,
            site=site,
            rules=site,
            qkey=urls.qkey_of_address("127.0.0.1"),
            address="127.0.0.1",
            weight=1234,
            section=3,
            etag="",
            modified="",
            digest=0,
            hops=2,
            reuse=False,
            alone=False,
            start_by_ms=FAR_MS,
            deadline_ms=FAR_MS,
            head=False,
        )
        await self.peer.send(structs.replace(plain, **changes))

    async def fetch(self, path: str, **changes: Any) -> Outcome:
        await self.ask(path, **changes)
        while isinstance(result := await self.peer.receive(), wire.Working):
            pass
        assert isinstance(result, wire.FetchResult) and result.token == self._token
        return Outcome.of(result)


async def fetch_once(peer: wire.Peer, origin: Origin, path: str = "/x") -> Outcome:
    """Greet a worker, have it fetch one page, and say goodbye."""
    await peer.send(greeting(origin))
    assert isinstance(await peer.receive(), wire.Welcome)
    dispatcher = Dispatcher(peer)
    await dispatcher.rules()
    outcome = await dispatcher.fetch(path)
    await peer.close("done")
    return outcome


def greeting(origin: Origin, **changes: Any) -> wire.Hello:
    hello = wire.Hello(
        version=wire.VERSION,
        session=77,
        silence_ms=60_000,
        key=KEY,
        state=9,
        agent="shepherd/test",
        robots_agent="shepherd",
        settings={"timeout_s": 20, "decoded_bytes": 64 << 20},
        filter=FILTER,
        filter_version=parse_filter(FILTER).version,
        static={"a.example": ["127.0.0.1", origin.port]},
        allow=["127.0.0.0/8"],
        anonymous=False,
    )
    return structs.replace(hello, **changes)


@contextlib.asynccontextmanager
async def connected(origin: Origin, **changes: Any) -> AsyncIterator[Dispatcher]:
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(worker.serve(theirs))
    peer = await wire.adopt(ours)
    try:
        await peer.send(greeting(origin, **changes))
        welcome = await peer.receive()
        assert isinstance(welcome, wire.Welcome) and welcome.version == wire.VERSION
        yield Dispatcher(peer)
    finally:
        await peer.close()
        await serving


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


def gather(answer_: Answer, rules: str = "", hello: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    """One fetch of http://a.example/x from a server that gives this answer."""
    with serve({"/x": answer_}) as origin:

        async def one() -> Outcome:
            async with connected(origin, **hello or {}) as dispatcher:
                await dispatcher.rules(rules)
                return await dispatcher.fetch("/x", **changes)

        return run(one())
