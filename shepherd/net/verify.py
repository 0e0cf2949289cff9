"""What a reaper sends is believed only as far as it can be checked: footprints, lengths, checksums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.errors import Corruption
from shepherd.formats import bucket, contrib
from shepherd.formats.contrib import Block
from shepherd.formats.tables import JOURNAL, JournalFlag, Reason, Records, Result
from shepherd.net import wire
from shepherd.net.items import Item


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
        if found.header.length != len(message.bucket) or "U" not in found.attributes:
            raise Corruption(f"a bucket of {len(message.bucket)} bytes that says {found.header.length}, or has no URL")
        if (found.header.site, found.header.path) != (item.site, item.path):
            raise Corruption("the bucket is not of what was asked for")
    links = contrib.decode(message.links) if message.links else None
    return Answer(record, message.bucket, links, message.location, message.rules, message.rules_status)
