"""What a reaper sends is believed only as far as it can be checked: record, bucket, links, times.

A reaper that lies can still say that a server answered what it did not; it can not make us write a record about another URL, a
bucket or a link that is not what its footprint says, nor a time that lets a server be asked early or never again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd import robots, urls
from shepherd.config import DAY_S, FetchLimits
from shepherd.dispatch.attribute_judges import BucketClaim, check_attributes, is_normalised
from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.items import Item
from shepherd.errors import Corruption
from shepherd.formats import bucket, contrib, journal
from shepherd.formats.contrib import Block
from shepherd.formats.journal import Entry
from shepherd.formats.tables import I64, ContribFlag, JournalFlag, Kind, Reason, Result
from shepherd.wire import messages as wire

MAX_SKEW_MS: Final = 3_600_000  # of a reaper's clock; what is beyond our own times is cut to them
MAX_VALID_S: Final = 30 * DAY_S
MOST_LINKS: Final = 50_000  # of a sitemap
ATTRIBUTE_BYTES: Final = 1 << 20
SITE_CACHE: Final = 65_536

_RESULTS: Final = {int(result): result for result in Result if result not in (Result.RESOLVED, Result.UNRESOLVED)}
_REASONS: Final = {int(reason): reason for reason in Reason}
_BODIES: Final = (Result.STORED, Result.REDIRECT)
_ANSWERED: Final = (Result.STORED, Result.REDIRECT, Result.UNCHANGED)
_FLAGS: Final = sum(JournalFlag) & ~int(JournalFlag.HOP)
_TRUNCATED: Final = int(bucket.BucketFlag.TRUNCATED)
_BUCKET_FLAGS: Final = _TRUNCATED  # that a reaper may set
_STALE: Final = int(JournalFlag.STALE)
_OPERATOR_FLAGS: Final = ContribFlag.INSERTED | ContribFlag.PINNED | ContribFlag.OWN_WEIGHT | ContribFlag.OWN_SECTION
_LINK_FLAGS: Final = sum(ContribFlag) & ~int(_OPERATOR_FLAGS)
_NOT_LINK_FLAGS: Final = np.uint16(0xFFFF & ~_LINK_FLAGS)


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request under way."""

    item: Item
    qkey: int
    group: int
    url: str
    sent_ms: int
    home: str = ""  # the reaper, whichever of its workers has it
    provenance: str = ""  # of an answer that somebody has kept


@dataclass(frozen=True, slots=True)
class NewLinks:
    """Links that hold: the rows of the block that are new, and their texts."""

    block: Block  # without texts
    rows: I64
    texts: list[bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """A RESULT that has been checked."""

    record: Entry
    bucket: bytes
    links: NewLinks | None
    location: str
    rules: bytes
    rules_status: int

    @property
    def result(self) -> Result:
        return _RESULTS[self.record.result]

    @property
    def contacted(self) -> bool:
        """Whether the server saw anything: without that, no delay is due."""
        return self.record.contacted

    @property
    def stale(self) -> bool:
        """Whether a kept connection died before the answer."""
        return bool(self.record.flags & _STALE)

    @property
    def reason(self) -> Reason:
        return _REASONS[self.record.reason]


class Verifier:
    """Checks answers against what was asked. `key` and `state` are of the database, `contributions` knows what is not new."""

    def __init__(self, key: bytes, state: int, filter_version: int, limits: FetchLimits, contributions: Contributions) -> None:
        self._prints = urls.Footprints(key)  # without equivalences: a reaper does not know them
        self._state, self._filter_version, self._contributions = state, filter_version, contributions
        self._most_links = max(limits.links_per_page, MOST_LINKS) + 16
        self._header_bytes = limits.header_bytes
        self._most_bytes = max(limits.body_bytes, limits.decoded_bytes) + limits.header_bytes + ATTRIBUTE_BYTES
        self._sites: dict[bytes, tuple[int, int]] = {}  # norm and site, by name

    def checked(self, message: wire.FetchResult, request: PendingRequest, reaper: int, now_ms: int) -> Answer:
        """The answer to a request; Corruption says what is wrong with it."""
        record = journal.unpack(message.record)
        item = request.item
        if (record.norm, record.path, record.site, record.kind) != (item.norm, item.path, item.site, item.kind):
            raise Corruption("the record is not about what was requested")
        self._check_verdict(record, item)
        if (record.result in _BODIES) != bool(message.bucket):
            raise Corruption(f"a result {record.result} with a bucket of {len(message.bucket)} bytes")
        if message.bucket:
            self._check_bucket(message.bucket, record, request, now_ms)
        self._check_words(message, record, item)
        links = self._links(message.links, item) if message.links else None
        start_ms = min(max(record.start_ms, request.sent_ms), now_ms)
        record = record._replace(  # what we asked, of whom and when is for us to say
            qkey=request.qkey,
            reaper=reaper,
            start_ms=start_ms,
            end_ms=min(max(record.end_ms, start_ms), now_ms),
            spare4=0,
            group=0,
        )
        return Answer(record, message.bucket, links, message.location, message.rules, message.rules_status)

    def _check_verdict(self, record: Entry, item: Item) -> None:
        if record.result not in _RESULTS or record.reason not in _REASONS:
            raise Corruption(f"a record with result {record.result} and reason {record.reason}")
        if record.flags & ~_FLAGS or record.status > 999 or record.valid_s > MAX_VALID_S:
            raise Corruption(f"a record with flags {record.flags}, status {record.status}, valid {record.valid_s} s")
        if record.wire_bytes > self._most_bytes:
            raise Corruption(f"an exchange of {record.wire_bytes} bytes, where at most {self._most_bytes} are allowed")
        if record.result in _ANSWERED and not record.contacted:
            raise Corruption("an answer of a server that was not contacted")
        if record.result == Result.UNCHANGED and not (item.digest and record.digest == item.digest):
            raise Corruption("an unchanged document that is not the one we have")
        if record.result == Result.DENIED and item.kind != Kind.PAGE:
            raise Corruption("a robots.txt that robots.txt denies")

    def _check_bucket(self, data: bytes, record: Entry, request: PendingRequest, now_ms: int) -> None:
        if len(data) > self._most_bytes:
            raise Corruption(f"a bucket of {len(data)} bytes, where at most {self._most_bytes} are allowed")
        parsed = bucket.parse(data)
        header = parsed.header
        if header.length != len(data) or header.type in bucket.TEXT_TYPES:
            raise Corruption(f"a bucket of {len(data)} bytes that says {header.length}, or of an old type")
        if (header.site, header.path) != (request.item.site, request.item.path) or parsed.url != request.url:
            raise Corruption("the bucket is not that of the request")
        if header.state != self._state or header.flags & ~_BUCKET_FLAGS:
            raise Corruption(f"a bucket of state {header.state} with flags {header.flags}")
        claim = BucketClaim(request.url, request.qkey, request.provenance, self._header_bytes, record.digest)
        check_attributes(parsed.attributes, claim)
        if bool(header.flags & _TRUNCATED) != ("X" in parsed.attributes):
            raise Corruption("a bucket that does not say why it is cut, or that it is")
        if not request.sent_ms - MAX_SKEW_MS <= header.time_ms <= now_ms + MAX_SKEW_MS:
            raise Corruption(f"a bucket of another time ({header.time_ms} ms): look at the reaper's clock")
        if record.result == Result.STORED and ("D" not in parsed.attributes or header.plain_bytes != record.body_bytes):
            raise Corruption("the bucket is not that of the record's document")
        if (record.result == Result.REDIRECT) != ("E" in parsed.attributes) or (
            record.result == Result.REDIRECT and header.plain_bytes
        ):
            raise Corruption("a redirect that leads nowhere, or has a body; or a document that redirects")

    def _check_words(self, message: wire.FetchResult, record: Entry, item: Item) -> None:
        if len(message.rules) > robots.MAX_BYTES or message.rules_status > 999:
            raise Corruption(f"rules of {len(message.rules)} bytes with status {message.rules_status}")
        if item.kind != Kind.ROBOTS and (message.rules or message.rules_status):
            raise Corruption("rules that were not requested")
        if len(message.head) > 2 * self._header_bytes:
            raise Corruption(f"a head of {len(message.head)} bytes")
        if message.location and (record.result != Result.REDIRECT or not is_normalised(message.location)):
            raise Corruption(f"a redirect to {message.location[:200]!r}")

    def _links(self, data: bytes, item: Item) -> NewLinks:
        """Whatever is new among the links of a page: record puts name and path together without looking."""
        block = contrib.decode(data, with_texts=False)
        if len(block) > self._most_links or block.filter_version != self._filter_version:
            raise Corruption(f"{len(block)} links, or another filter")
        if block.parents_site.tolist() != [item.site] or block.parents_path.tolist() != [item.path]:
            raise Corruption("links of another page")
        if len(block) and (int(block.parent_weight.max()) > item.weight or (block.flags & _NOT_LINK_FLAGS).any()):
            raise Corruption("links with more weight than their page, or with flags that links do not have")
        norms = {}
        for name, site, norm in zip(block.names, block.sites.tolist(), block.norms.tolist(), strict=True):
            if (self._sites.get(name) or self._learn(name)) != (norm, site):
                raise Corruption(f"a contribution of the site {name[:200]!r} with another's footprint")
            norms[site] = norm
        rows = self._contributions.fresh(block)
        if not len(rows):
            return NewLinks(block, rows, [])
        texts = contrib.texts_of(data, rows)
        self._check_paths(texts, block.path[rows].tobytes())
        if [norms[site] for site in block.site[rows].tolist()] != block.norm[rows].tolist():
            raise Corruption("a contribution with the normalised site of another")
        return NewLinks(block, rows, texts)

    def _check_paths(self, texts: list[bytes], halves: bytes) -> None:
        together = b"".join(texts)
        if not urls.are_paths(together, np.fromiter(map(len, texts), np.int64, len(texts))):
            raise Corruption(f"contributions of paths that are none: {together[:200]!r}")
        if self._prints.halves(texts) != halves:
            raise Corruption(f"contributions of paths with the footprints of others: {together[:200]!r}")

    def _learn(self, name: bytes) -> tuple[int, int]:
        """Norm and site of a name, from now on remembered."""
        if not urls.is_site(name):
            raise Corruption(f"a contribution of the site {name[:200]!r}, which is none")
        if len(self._sites) >= SITE_CACHE:
            self._sites.clear()
        site = name.decode()
        footprints = self._sites[name] = self._prints.norm(site), self._prints.half(site)
        return footprints
