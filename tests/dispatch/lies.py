"""Every lie that a reaper can tell in one answer, made from the tables of fields and attributes: no new one can be forgotten."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np

from shepherd.dispatch.items import Item
from shepherd.dispatch.verify import PendingRequest
from shepherd.formats import bucket, contrib
from shepherd.formats.attributes import TABLE
from shepherd.formats.check import check64
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JOURNAL, Kind, Result
from shepherd.urls import Footprints, parse, qkey_of_address
from shepherd.wire import messages as wire
from tests.dispatch import results

ADDRESS = "192.0.2.7"
BODY = b"hello"
DIGEST = hashlib.sha256(BODY).digest()
LETTERS = [*TABLE, "Z"]  # and one that nobody knows
# What no field of a line, a number, a URL or a name may be; longer than any header may be, the last.
HOSTILE = [b"\r\n", b"x\ny", b"\0", b"\xff\xfe\xfd", b"http://a.example/\n", b"fe80::1%\n", b"A\x1b[2J", b"x" * 70_000]
RECORD_FIELDS = Entry._fields
MESSAGE_FIELDS = [field.name for field in msgspec.structs.fields(wire.FetchResult) if field.name != "token"]


@dataclass(frozen=True)
class Truth:
    """An honest answer of a redirect or a document, as its parts."""

    request: PendingRequest
    record: Entry
    attributes: dict[str, bytes]
    links: contrib.Block
    location: str
    state: int

    def message(self, **changed: object) -> wire.FetchResult:
        plain = wire.FetchResult(
            1, self.record.pack(), self.bucket(), contrib.encode(self.links), self.location, b"", 0, b"", 0, 0
        )
        return msgspec.structs.replace(plain, **changed)

    def bucket(self, lies: Mapping[str, bytes] | None = None, flags: int = 0) -> bytes:
        """With lies in the place of attributes, whatever their letters are."""
        attributes = self.attributes | dict(lies or {})
        table = b"".join(struct.pack("<I", len(text)) + text + letter.encode() for letter, text in attributes.items())
        body = b"" if self.record.result == Result.REDIRECT else BODY
        item = self.request.item
        head = bucket.HEAD.pack(
            bucket.MAGIC, bucket.V33, 0, flags, len(table), len(body), len(body), self.state, item.site, item.path,
            self.record.end_ms,
        )  # fmt: skip
        return head + bucket.CHECKS.pack(check64(head, table), check64(body)) + table + body


def truth(href: str, prints: Footprints, state: int, filter_version: int, now_ms: int, leads_to: str = "") -> Truth:
    """The honest answer to a request for a URL: a document, or a redirect."""
    url = parse(href)
    norm, path, site = prints.of(url)
    item = Item(Kind.PAGE, norm, path, site, site, site, weight=results.WEIGHT)
    qkey = qkey_of_address(ADDRESS)
    links = replace(
        results.a_block(),
        parents_site=np.array([site], "<u8"),
        parents_path=np.array([path], "<u8"),
        filter_version=filter_version,
    )
    record = results.RECORD._replace(norm=norm, path=path, site=site, start_ms=now_ms - 9, end_ms=now_ms - 5)
    attributes = {"U": href.encode(), "S": b"HTTP/1.1 200 OK", "H": b"A: b\r\n", "A": ADDRESS.encode(), "m": bytes(4)}
    if leads_to:
        record = record._replace(result=Result.REDIRECT, digest=0, body_bytes=0, status=302)
        attributes |= {"E": leads_to.encode()}
    else:
        attributes |= {
            "D": DIGEST,
            "T": b"text/html",
            "C": b"utf-8",
            "t": "cut behind a blank, Größe ".encode(),
            "l": b"en-gb",
            "N": b"noindex",
        }
        attributes |= {"K": b"http://a.example/", "M": (now_ms - 99).to_bytes(8, "little"), "h": bytes(8), "L": bytes(32)}
    return Truth(PendingRequest(item, qkey, qkey, href, now_ms - 10), record, attributes, links, leads_to, state)


def attribute_lies(one: Truth, letter: str) -> Iterator[wire.FetchResult]:
    """This attribute, with contents that it cannot have; it is also left out, and one byte longer or shorter."""
    contents = one.attributes.get(letter, b"")
    for lie in (*HOSTILE, contents + b"\n", contents[:-1] + b"\n"):
        yield one.message(bucket=one.bucket({letter: lie}))
    if contents:
        yield one.message(bucket=replace(one, attributes={n: a for n, a in one.attributes.items() if n != letter}).bucket())


def record_lies(one: Truth, name: str) -> Iterator[wire.FetchResult]:
    """This field of the journal record at the ends of what it can hold, and beside the truth."""
    info, value = np.iinfo(JOURNAL[name]), getattr(one.record, name)
    for lie in {int(info.min), int(info.max), int(info.max) // 2, (value + 1) % int(info.max)} - {value}:
        yield one.message(record=one.record._replace(**{name: lie}).pack())


def message_lies(one: Truth, name: str) -> Iterator[wire.FetchResult]:
    """This field of the message: empty, hostile, cut and at its greatest."""
    value = getattr(one.message(), name)
    if isinstance(value, bytes):
        yield from (one.message(**{name: lie}) for lie in (b"", *HOSTILE, value[:-1], value + b"x"))
    elif isinstance(value, str):
        yield from (one.message(**{name: lie.decode("latin-1")}) for lie in HOSTILE)
        yield from (one.message(**{name: lie}) for lie in (value + "\n", value + "\t", f" {value}", value.upper()))
    else:
        yield from (one.message(**{name: lie}) for lie in (1, (1 << 16) - 1))


def flag_lies(one: Truth) -> Iterator[wire.FetchResult]:
    yield from (one.message(bucket=one.bucket(flags=1 << bit)) for bit in range(16))


GROUPS: list[Callable[[Truth], Iterator[wire.FetchResult]]] = [
    *(partial(attribute_lies, letter=letter) for letter in LETTERS),
    *(partial(record_lies, name=name) for name in RECORD_FIELDS),
    *(partial(message_lies, name=name) for name in MESSAGE_FIELDS),
    flag_lies,
]
