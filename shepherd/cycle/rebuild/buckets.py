"""Copies the sound buckets of damaged segments into new ones. A segment may be there several times, each time damaged elsewhere.

Invariant: a bucket is copied once, from the first copy of its segment that has all of it; only where none has its body is its URL
alone kept.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shepherd.cycle.common.bucket_moves import BucketMoves
from shepherd.formats import bucket, facts
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import U64, Array
from shepherd.store.check import salvage
from shepherd.store.state.objects import SegmentWriter


class BucketCopier:
    """Where each bucket stood, and where its copy stands."""

    def __init__(self, segments: SegmentWriter) -> None:
        self.segments, self.bodies_lost = segments, 0
        self._old: list[U64] = []
        self._new: list[U64] = []
        # Of the segment at hand: what has been copied, and fact and thin bucket of what no copy has had whole so far.
        self._copied = np.zeros(0, np.uint64)
        self._without_body: dict[int, tuple[Array, bytes]] = {}

    def take(self, data: salvage.Bytes, originals: Array) -> Array:
        """Copy the buckets of one copy of a segment that no other copy had; the facts of the copies."""
        originals = originals[~np.isin(originals["oid"], self._copied)]
        offsets = (originals["oid"] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        sound = facts.sound_bodies(data, offsets)
        for fact, offset in zip(originals[~sound], offsets[~sound].tolist(), strict=True):
            self._without_body.setdefault(int(fact["oid"]), (fact, _thin(data, offset)))
        whole = originals[sound]
        pieces = (
            data[offset : offset + size] for offset, size in zip(offsets[sound].tolist(), whole["size"].tolist(), strict=True)
        )
        return self._append(whole, pieces)

    def bodiless(self) -> Array:
        """Keep the URL of each bucket of the segment at hand whose body no copy of it has; the facts of these."""
        copied = set(self._copied.tolist()) if self._without_body else set()
        bodiless = [pair for oid, pair in self._without_body.items() if oid not in copied]
        self.bodies_lost += len(bodiless)
        originals = np.array([fact for fact, _data in bodiless], facts.FACT)
        originals["flags"] = BucketFlag.THIN | facts.BODY_DAMAGED
        originals["digest"] = 0
        originals["size"] = [len(data) for _fact, data in bodiless]
        copies = self._append(originals, (data for _fact, data in bodiless))
        self._copied, self._without_body = np.zeros(0, np.uint64), {}
        return copies

    def moves(self) -> BucketMoves:
        old, new = (np.concatenate([np.zeros(0, np.uint64), *parts]) for parts in (self._old, self._new))
        order = np.argsort(old)
        return BucketMoves(old[order], new[order])

    def _append(self, originals: Array, pieces: Iterable[bytes]) -> Array:
        copies = originals.copy()
        copies["oid"] = np.array([self.segments.append(piece) for piece in pieces], np.uint64)
        self._old.append(np.ascontiguousarray(originals["oid"]))
        self._new.append(np.ascontiguousarray(copies["oid"]))
        self._copied = np.concatenate([self._copied, self._old[-1]])
        return copies


def _thin(data: salvage.Bytes, offset: int) -> bytes:
    """What is left of a bucket without its body."""
    whole = bucket.parse(memoryview(data), offset, with_body=False)
    head = whole.header
    return bucket.thin(head.site, head.path, head.time_ms, head.state, whole.url)
