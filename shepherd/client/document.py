"""A document as a reader gets it: a row of the index, and its bucket, which was checked when it came."""

from __future__ import annotations

from functools import cached_property
from struct import Struct
from typing import Final

from shepherd.errors import UsageError
from shepherd.formats import httphead
from shepherd.formats.bucket import Bucket
from shepherd.formats.stream import COLUMNS, Item

BODY_BYTES: Final = 1 << 28  # most that a body may be decoded to
WHAT: Final = ("present", "added", "changed", "gone")
_GONE: Final = 3
_LINK: Final = Struct("<QQ")


class Document:
    """One document; what it is (`what`): present, or where something was asked since a state: added, changed or gone."""

    def __init__(self, item: Item) -> None:
        """Corruption where the bucket is damaged, or another document's."""
        self._row = item.row
        kind = int(item.row["what"])
        self.what = WHAT[min(kind, _GONE)]
        self._bucket = None if kind == _GONE else item.bucket()

    def __repr__(self) -> str:
        return f"<{self.what} document {self.footprint}>"

    @cached_property
    def columns(self) -> dict[str, int]:
        """Its values in the index, by the names of docs/formats.md: weight, status, gathered, digest ..."""
        return {name: int(self._row[name]) for name in COLUMNS}

    @property
    def is_gone(self) -> bool:
        """Then only its footprint, and some columns as they were, are known."""
        return self._bucket is None

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
        """As it is stored: `bucket.attributes` has the letters of docs/formats.md."""
        if self._bucket is None:
            raise UsageError(f"document {self.footprint} is gone: nothing but its footprint is known")
        return self._bucket

    @property
    def url(self) -> str:
        return self.bucket.url

    @property
    def status(self) -> int:
        """What its server answered with: 200, 301 ..."""
        return self.columns["status"]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """As its server sent them."""
        return httphead.pairs(self.bucket.attributes.get("H", b""))

    @property
    def content_type(self) -> str:
        return self.bucket.attributes.get("T", b"").decode("utf-8", "replace")

    @property
    def charset(self) -> str:
        """Of a text, as it was found out; empty where there is none."""
        return self.bucket.attributes.get("C", b"").decode("ascii", "replace")

    @property
    def links(self) -> list[str]:
        """The keys of the documents that it links to, of those that were followed the first 256."""
        data = self.bucket.attributes.get("L", b"")
        return [f"{norm:016x}{path:016x}" for norm, path in _LINK.iter_unpack(data[: len(data) // _LINK.size * _LINK.size])]

    @property
    def weight(self) -> int:
        return self.columns["weight"]

    @property
    def gathered(self) -> int:
        """When, in seconds since 1970."""
        return self.columns["gathered"]

    def body(self, limit: int = BODY_BYTES) -> bytes:
        """Decoded, at most `limit` bytes of it."""
        return self.bucket.body(limit)
