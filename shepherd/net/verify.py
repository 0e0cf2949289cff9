"""What a reaper sends is believed only as far as it can be checked: footprints, lengths, checksums."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd import urls
from shepherd.errors import BadUrl, Corruption
from shepherd.formats import bucket, contrib
from shepherd.formats.contrib import Block
from shepherd.formats.tables import JOURNAL, JournalFlag, Reason, Records, Result
from shepherd.net import wire
from shepherd.net.items import Item

_PATH: Final = re.compile(rb"/[\x21\x22\x24-\x7e]*")  # as it is hashed: ASCII, without blanks or fragment


@dataclass(frozen=True)
class Answer:
    """A RESULT that has been checked."""

    record: Records  # one record, ours to change
    bucket: bytes
    links: Block | None
    location: str
    rules: bytes
    rules_status: int

    @property
    def result(self) -> Result:
        return Result(self.record["result"][0])

    @property
    def contacted(self) -> bool:
        """Whether the server saw anything: without that, no delay is due."""
        return bool(int(self.record["flags"][0]) & JournalFlag.CONTACTED)

    @property
    def stale(self) -> bool:
        """Whether a kept connection died before the answer."""
        return bool(int(self.record["flags"][0]) & JournalFlag.STALE)

    @property
    def reason(self) -> Reason:
        return Reason(self.record["reason"][0])


def checked(message: wire.Result, item: Item, qkey: int) -> Answer:
    """The answer to the request for `item` from the server `qkey`; Corruption says what is wrong with it."""
    if len(message.record) != JOURNAL.itemsize:
        raise Corruption(f"a journal record of {len(message.record)} bytes")
    record = np.frombuffer(message.record, JOURNAL).copy()
    try:
        Result(record["result"][0])
        Reason(record["reason"][0])
    except ValueError as error:
        raise Corruption(f"a journal record with {error}") from error
    if (int(record["norm"][0]), int(record["path"][0]), int(record["site"][0])) != (item.norm, item.path, item.site):
        raise Corruption("the record is not about what was asked for")
    if record["kind"][0] != item.kind:
        raise Corruption("the record is of another kind than what was asked for")
    record["qkey"] = qkey  # what we asked is for us to say, and so is what settles nothing
    record["flags"] &= np.uint16(0xFFFF ^ JournalFlag.HOP)
    if message.bucket:
        found = bucket.parse(message.bucket)
        if found.header.length != len(message.bucket) or found.header.type in bucket.TEXT_TYPES:
            raise Corruption(f"a bucket of {len(message.bucket)} bytes that says {found.header.length}, or of an old type")
        if not 0 < len(found.url) <= urls.MAX_URL_BYTES or (found.header.site, found.header.path) != (item.site, item.path):
            raise Corruption("the bucket is not of what was asked for")
    links = contrib.decode(message.links) if message.links else None
    if links is not None:
        _check_texts(links)
    return Answer(record, message.bucket, links, message.location, message.rules, message.rules_status)


def _check_texts(links: Block) -> None:
    """Names of sites, and paths that leave them what they are: record puts both together without looking."""
    for name in links.names:
        try:
            good = urls.parse(name.decode("ascii")).site.encode() == name
        except (UnicodeDecodeError, BadUrl):
            good = False
        if not good:
            raise Corruption(f"a contribution of the site {name[:200]!r}, which is none")
    for text in links.texts:
        if len(text) > urls.MAX_URL_BYTES or not _PATH.fullmatch(text):
            raise Corruption(f"a contribution of the path {text[:200]!r}, which is none")
