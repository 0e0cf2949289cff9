"""A document as a reader gets it: a row of the index, and its bucket, which was checked when it came.

A damaged bucket leaves what the row says, and its URL and other attributes, unless these are what is damaged.
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from struct import Struct
from typing import Final

from shepherd.errors import Corruption, UsageError
from shepherd.formats import httphead
from shepherd.formats.bucket import Bucket
from shepherd.formats.stream import COLUMNS, StreamItem

BODY_BYTES: Final = 1 << 28  # most that a body may be decoded to
MOST_PLAIN: Final = 1 << 27  # bytes that a body may have decoded: no page has more than 100 MiB (fetch.decoded_bytes)
WHAT: Final = ("present", "added", "changed", "gone")
_WHAT_GONE: Final = 3
_LINK: Final = Struct("<QQ")


class Document:
    """One document; what it is (`what`): present, or where something was asked since a state: added, changed or gone.

    `damage` says which document it is and what is wrong with its bucket; it is empty where nothing is.
    """

    def __init__(self, item: StreamItem) -> None:
        self._row = item.row
        self.what = WHAT[min(int(item.row["what"]), _WHAT_GONE)]
        self.damage = ""
        self._bucket: Bucket | None = None  # None = gone or damaged
        self._head: Bucket | None = None  # of it what is sound, which may be all but the body
        if not self.is_gone:
            self._check(item)

    def _check(self, item: StreamItem) -> None:
        try:
            bucket = item.bucket()
            _ = bucket.url
            if bucket.header.plain_bytes > MOST_PLAIN:
                raise Corruption(f"its body would have {bucket.header.plain_bytes:,} bytes, which no page has")
            self._bucket = self._head = bucket
        except Corruption as error:
            with contextlib.suppress(Corruption):
                head = item.head()
                _ = head.url
                self._head = head
            self.damage = self._with_its_name(error.what)

    def _with_its_name(self, text: str) -> str:
        """What is wrong, with what is known of whose it is."""
        return f"document {self.footprint} ({self._head.url if self._head else 'its URL cannot be read'}): {text}"

    def __repr__(self) -> str:
        return f"<{'damaged ' if self.damage else ''}{self.what} document {self.footprint}>"

    @cached_property
    def columns(self) -> dict[str, int]:
        """Its values in the index, by the names of docs/formats.md: weight, status, gathered, digest ..."""
        return {name: int(self._row[name]) for name in COLUMNS}

    @property
    def is_gone(self) -> bool:
        """Then only its footprint, and some columns as they were, are known."""
        return self.what == WHAT[_WHAT_GONE]

    @property
    def footprint(self) -> str:
        """32 hexadecimal digits, the same for as long as the database lives: what to know it by."""
        return f"{self.columns['site']:016x}{self.columns['path']:016x}"

    @property
    def key(self) -> str:
        """The same for all equivalent URLs of a document: what `links` of other documents call it."""
        return f"{self.columns['norm']:016x}{self.columns['path']:016x}"

    @property
    def bucket(self) -> Bucket:
        """As it is stored: `bucket.attributes` has the letters of docs/formats.md. A damaged one is Corruption."""
        return self._usable(self._bucket)

    def _usable(self, bucket: Bucket | None) -> Bucket:
        if self.is_gone:
            raise UsageError(f"document {self.footprint} is gone: nothing but its footprint is known")
        if bucket is None:
            raise Corruption(self.damage)
        return bucket

    @property
    def _attributes(self) -> dict[str, bytes]:
        return self._usable(self._head).attributes

    @property
    def url(self) -> str:
        return self._usable(self._head).url

    @property
    def status(self) -> int:
        """What its server answered with: 200, 301 ..."""
        return self.columns["status"]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """As its server sent them."""
        return httphead.pairs(self._attributes.get("H", b""))

    @property
    def content_type(self) -> str:
        return self._attributes.get("T", b"").decode("utf-8", "replace")

    @property
    def charset(self) -> str:
        """Of a text, as it was found out; empty for anything else."""
        return self._attributes.get("C", b"").decode("ascii", "replace")

    @property
    def links(self) -> list[str]:
        """The keys of the documents that it links to, of those that were followed the first 256."""
        data = self._attributes.get("L", b"")
        return [f"{norm:016x}{path:016x}" for norm, path in _LINK.iter_unpack(data[: len(data) // _LINK.size * _LINK.size])]

    @property
    def weight(self) -> int:
        return self.columns["weight"]

    @property
    def gathered(self) -> int:
        """When, in seconds since 1970."""
        return self.columns["gathered"]

    def body(self, limit: int = BODY_BYTES) -> bytes:
        """Decoded, at most `limit` bytes of it; Corruption, which names the document, where it is damaged."""
        bucket = self.bucket
        try:
            return bucket.body(limit)
        except Corruption as error:  # it checks, so it was written so
            raise Corruption(self._with_its_name(str(error))) from error
