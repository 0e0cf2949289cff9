"""A whole choice of documents, one after the other, over as many connections as it takes.

The server gives the same rows in the same order for as long as the lease lasts: after a lost connection the next one begins
behind the last document that was handed out. Nothing is held but the document at hand and what the socket has brought beyond it.

What must hold is the frames of the stream: where they do, a damaged bucket costs no other document. It is asked for once more, by
itself; if it comes damaged again, it is so at the server.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import time
import weakref
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, get_args

import requests
import urllib3
from tqdm import tqdm

from shepherd.client.document import Document
from shepherd.client.server import Server, ServerLease, number
from shepherd.errors import Corruption, PeerLost, UsageError
from shepherd.formats import stream
from shepherd.formats.stream import StreamItem

Damaged: TypeAlias = Literal["raise", "give"]
CHUNK: Final = 1 << 20
MOST_BUCKET: Final = 1 << 27  # bytes: a body has at most 100 MiB (fetch.body_bytes), and beside it attributes
LEASE_S: Final = 3_600
LINES: Final = 1 << 16  # bytes of feedback that are sent at a time


def pull(
    url: str,
    token: str,
    *,
    since: int | None = None,
    state: int | None = None,
    part: str | None = None,
    best: int | None = None,
    weight: int | None = None,
    most_weight: int | None = None,
    site: str | None = None,
    section: str | None = None,
    robots: bool = False,
    redirects: bool = False,
    purpose: str = "pull",
    lease: ServerLease | None = None,
    ca: Path | None = None,
    tries: int = 10,
    insecure: bool = False,
    progress: bool = False,
    damaged: Damaged = "raise",
) -> Pull:
    """The documents of a state, the newest by default, of the server at `url`; docs/serve.md has what the choice means.

    With a `lease` of the caller's, which several machines may share, that one is used, and stays. `progress` shows a bar.
    A document that is damaged at the server ends the pull with Corruption, unless `damaged` is "give": then it is handed out,
    with a text in its `damage`.
    """
    server = Server(url, token, ca=ca, tries=tries, insecure=insecure)
    choice: dict[str, object] = {"part": part, "best": best, "weight": weight, "section": section, "since": since}
    choice |= {"robots": robots, "redirects": redirects, "most_weight": most_weight, "site": site}
    return Pull(server, choice, purpose, state, lease, progress, damaged)


class Pull:
    """Documents to iterate over, once. `state`, `items` and `bucket_bytes` are known when the first one has come.

    Whoever stops before the last one gives the lease back by `close`, or by the end of a `with` block; dropping the iterator does
    the same.
    """

    def __init__(
        self,
        server: Server,
        choice: dict[str, object],
        purpose: str,
        state: int | None,
        lease: ServerLease | None,
        progress: bool,
        damaged: Damaged,
    ) -> None:
        if damaged not in get_args(Damaged):
            raise UsageError(f"damaged={damaged!r}: it is one of {', '.join(get_args(Damaged))}")
        self._server, self._choice, self._purpose, self._lease = server, choice, purpose, lease
        self._number, self._progress, self._damaged = state, progress, damaged
        self.state: int | None = lease.state if lease else None
        self.items = self.bucket_bytes = 0
        self._position = 0  # documents that were handed out
        self._begun = False
        # Not the iterator itself, which holds us: who drops it must not have to wait for the garbage collector.
        self._iterator: weakref.ref[Generator[Document, None, None]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the lease, if it is our own, and end the connection. No more documents come."""
        self._begun = True
        iterator = self._iterator() if self._iterator else None
        if iterator is not None:
            iterator.close()
        self._server.close()

    def __iter__(self) -> Iterator[Document]:
        if self._begun:
            raise UsageError("these documents were pulled already; call pull again")
        self._begun = True
        iterator = self._run()
        self._iterator = weakref.ref(iterator)
        _UNDER_WAY.add(self)
        return iterator

    def _run(self) -> Generator[Document, None, None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._server)
            own = None if self._lease else self._server.leased(self._purpose, self._number, LEASE_S)
            lease = stack.enter_context(own) if own else self._lease
            assert lease is not None
            self.state = lease.state
            bar = stack.enter_context(tqdm(unit="B", unit_scale=True, disable=not self._progress, desc=f"state {lease.state}"))
            yield from self._all(lease, bar)

    def _all(self, lease: ServerLease, bar: tqdm[Any]) -> Iterator[Document]:
        patience, broken, renewed_s = self._server.patience(), -1, time.monotonic()
        while True:
            try:
                for document, length in self._some(lease, bar):
                    if self._position >= self.items:  # a server that begins anew each time would be listened to for ever
                        raise Corruption(self._with_place("more documents than it has announced"))
                    self._position += 1
                    patience.success()
                    yield document
                    bar.update(length)
                    if time.monotonic() > renewed_s + lease.seconds / 2:  # whoever takes long over documents keeps the lease
                        self._server.renew(lease)
                        renewed_s = time.monotonic()
                return
            except PeerLost as error:
                patience.wait(error)
            except _Broken as error:
                if broken == self._position:  # twice at the same place
                    raise Corruption(self._with_place(str(error))) from error
                broken = self._position

    def _some(self, lease: ServerLease, bar: tqdm[Any]) -> Iterator[tuple[Document, int]]:
        """Over one connection, from where we are."""
        query = self._choice | ({"after": self._position} if self._position else {})
        with self._server.open_once("GET", f"/v1/leases/{lease.name}/documents", query) as answer:
            self.items, self.bucket_bytes = (number(answer.headers.get(f"Shepherd-{name}", "0")) for name in ("Items", "Bytes"))
            bar.total = self.bucket_bytes
            for item in _items(answer):
                document = Document(item)
                if document.damage:
                    document = self._once_more(lease, item, document)
                yield document, len(item.data)

    def _once_more(self, lease: ServerLease, item: StreamItem, document: Document) -> Document:
        """The same from another answer: what was damaged on the way is sound there. Its row holds, so only its bucket counts."""
        documents: list[Document] = []
        query = {"footprint": document.footprint}
        with (
            contextlib.suppress(UsageError),  # no such document: what came is all there is
            self._server.open("GET", f"/v1/leases/{lease.name}/document", query) as answer,
        ):
            documents += (Document(StreamItem(item.row, again.data)) for again in itertools.islice(_items(answer), 2))
        if len(documents) == 1 and not documents[0].damage:
            return documents[0]
        if self._damaged == "raise":
            raise Corruption(
                f'{self._with_place(document.damage)}; with damaged="give" it is handed out, and all that come behind it'
            )
        return document

    def _with_place(self, what: str) -> str:
        return f"{self._server.url}: {what}, after {self._position} of {self.items} documents"


_UNDER_WAY: Final[weakref.WeakSet[Pull]] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """What is kept until the interpreter ends is ended while it still can be: later nothing can be imported or asked any more."""
    for running in list(_UNDER_WAY):
        running._server.tries = 1  # nobody wants to wait now; a lease that is not given back ends by itself
        with contextlib.suppress(Exception):  # and nobody is left to read it
            running.close()


class _Broken(Exception):
    """An answer that is no stream of documents, or not from its first frame to its last."""


def _items(answer: requests.Response) -> Iterator[StreamItem]:
    if answer.headers.get("Content-Type") != stream.MEDIA_TYPE:
        raise _Broken("this is not a stream of documents")
    try:
        yield from stream.items(_Reader(answer).read, MOST_BUCKET)
    except Corruption as error:
        raise _Broken(str(error)) from error


class _Reader:
    """Bytes of an answer as they come; its end, which a whole stream never gets to see, is a lost connection."""

    def __init__(self, answer: requests.Response) -> None:
        self._answer, self._data, self._offset = answer, b"", 0

    def read(self, length: int) -> bytes:
        if self._offset == len(self._data):
            try:
                self._data, self._offset = self._answer.raw.read1(CHUNK), 0
            except (urllib3.exceptions.HTTPError, OSError) as error:
                raise PeerLost(f"{self._answer.url}: the connection broke off: {error}") from error
            if not self._data:
                raise PeerLost(f"{self._answer.url}: the connection broke off")
        part = self._data[self._offset : self._offset + length]
        self._offset += len(part)
        return part


def feedback(
    url: str, token: str, weights: Iterable[tuple[str, int]], *, ca: Path | None = None, insecure: bool = False
) -> dict[str, Any]:
    """Upload weights, from 0 to 65535, of documents by their URLs or footprints; what the server says of them."""
    with Server(url, token, ca=ca, insecure=insecure) as server:
        return server.feedback(_lines(weights))


def _lines(weights: Iterable[tuple[str, int]]) -> Iterator[bytes]:
    lines = bytearray()
    for name, weight in weights:
        lines += f"{name} {weight}\n".encode()
        if len(lines) >= LINES:
            yield bytes(lines)
            lines.clear()
    if lines:
        yield bytes(lines)
