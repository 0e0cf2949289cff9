"""Documents on their way out: the facts of a row and a bucket that checks, from a state of ours or pulled from elsewhere.

Buckets of a state are read in the order in which they lie, many at once. A damaged one is reported, counted and left out: the
others are wanted all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from shepherd.errors import Corruption
from shepherd.formats import bucket, stream
from shepherd.formats.bucket import Bucket
from shepherd.formats.tables import CONTRIB_BIT, bucket_oid, split_oid
from shepherd.readers.choice import Novelty
from shepherd.readers.reading import Batch, Reading
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.store.state.objects import Objects

PIECE_BYTES: Final = 1 << 23  # read at once
GAP_BYTES: Final = 1 << 16  # of unwanted buckets between two wanted ones, which are read all the same

OnDamage = Callable[[str], None]


class DocumentFacts(NamedTuple):
    """One row of stream.ROW."""

    site: int
    path: int
    norm: int
    digest: int
    length: int
    gathered: int
    checked: int
    changed: int
    touched: int
    weight: int
    status: int
    flags: int
    type: int
    section: int
    reason: int
    frequency: int
    what: int
    spare: int = 0


assert DocumentFacts._fields == stream.ROW.names


class Exported(NamedTuple):
    facts: DocumentFacts
    bucket: Bucket
    oid: int | None = None  # where it lies, if it is in a state of ours

    def body(self) -> bytes:
        """Decoded. The limit is the length that it must have: a larger one would cost memory that is not needed."""
        return self.bucket.body(self.bucket.header.plain_bytes + 1)


class GoneDocument(NamedTuple):
    """A document of the last export that is gone; its URL where the state still knows it."""

    facts: DocumentFacts
    url: str | None


class DocumentSource(Protocol):
    """What is exported. `damaged` counts while it is read."""

    state: int
    now: int  # when the state was made, seconds since 1970
    since: int | None  # the state since which only news are wanted
    since_now: int  # and when that was made
    damaged: int

    @property
    def items(self) -> int: ...
    @property
    def bucket_bytes(self) -> int: ...
    @property
    def gone_items(self) -> int: ...
    def documents(self) -> Iterator[Exported | GoneDocument]: ...


class LocalSource:
    """A reading of a state that the caller has leased."""

    def __init__(self, reading: Reading, on_damage: OnDamage) -> None:
        self._reading, self._on_damage = reading, on_damage
        self.state, self.now = reading.state.number, reading.state.control.now
        self.since = reading.since.number if reading.since is not None else None
        self.since_now = reading.since.control.now if reading.since is not None else 0
        self.damaged = 0

    @property
    def items(self) -> int:
        return self._reading.items

    @property
    def bucket_bytes(self) -> int:
        return self._reading.bucket_bytes

    @property
    def gone_items(self) -> int:
        return self._reading.gone_items

    def documents(self) -> Iterator[Exported | GoneDocument]:
        state = self._reading.state
        for batch in self._reading.batches():
            rows = [tuple.__new__(DocumentFacts, row) for row in batch.rows.tolist()]
            if rows and rows[0].what == Novelty.REMOVED:
                yield from (GoneDocument(facts, _url_of_gone(state, facts)) for facts in rows)
                continue
            for facts, oid, data in zip(rows, batch.oid.tolist(), _read(state.objects, batch), strict=True):
                if (document := self._checked(facts, oid, data)) is not None:
                    yield document

    def _checked(self, facts: DocumentFacts, oid: int, data: bytes) -> Exported | None:
        try:
            stored = bucket.read_whole(data) or self._reading.state.objects.get(oid, facts.length)
            header = stored.header
            if (header.site, header.path) != (facts.site, facts.path):
                raise Corruption("no bucket of its row begins here", *self._reading.state.objects.place(oid))
            _ = stored.url
        except Corruption as error:
            self.damaged += 1
            self._on_damage(str(error))
            return None
        return Exported(facts, stored, oid)


def _read(objects: Objects, batch: Batch) -> Iterator[bytes]:
    """The bytes of the buckets of a batch, which is in the order of oids."""
    oids, lengths = batch.oid.tolist(), batch.rows["length"].tolist()
    first = 0
    while first < len(oids):
        start = end = oids[first]
        segment, offset = split_oid(start)
        last, beyond = first, bucket_oid(segment + 1, 0)
        while last < len(oids) and oids[last] - end <= GAP_BYTES and oids[last] < beyond:
            if last > first and oids[last] + lengths[last] - start > PIECE_BYTES:
                break
            end = oids[last] + lengths[last]
            last += 1
        try:
            piece = objects.piece(segment, offset, end - start)
        except Corruption:
            piece = b""  # reading the bucket itself fails again, with the place of the damage
        for n in range(first, last):
            yield piece[oids[n] - start : oids[n] - start + lengths[n]]
        first = last


def _url_of_gone(state: State, facts: DocumentFacts) -> str | None:
    """What is gone often still has a row, as an error or forgotten, and a bucket that knows its URL."""
    row = lookup.row_of(state, facts.norm, facts.path, facts.site)
    if row is None or state.index["oid"].value(row) >= CONTRIB_BIT:
        return None
    try:
        return state.objects.head(state.index["oid"].value(row)).url
    except Corruption:
        return None
