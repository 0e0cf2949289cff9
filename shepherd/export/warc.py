"""A document as WARC records: the response, what is known of the request, and what Shepherd knows besides.

A document that was looked at since the last export and has not changed is a revisit of the record that was written then: its id
is a hash of the capture, so it is known without looking it up. What has no status line (v2 buckets may have none) is a resource.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from shepherd import __version__
from shepherd.errors import Corruption
from shepherd.export.documents import Exported
from shepherd.export.lines import footprint_of
from shepherd.export.output import Series, Written
from shepherd.export.sorting import SortedLines
from shepherd.expressions import MessageHead
from shepherd.formats import cdxj, httphead, kinds, warc
from shepherd.formats.bucket import BucketFlag, Codec
from shepherd.formats.warc import Digests
from shepherd.readers.choice import Novelty
from shepherd.sections import section_name

PACKED_BY_SERVER: Final = frozenset((Codec.GZIP_SENT, Codec.BR_SENT, Codec.ZSTD_SENT, Codec.DEFLATE_SENT))
ENDING: Final = ".warc.gz"
_CAPTURE: Final = struct.Struct("<QQqI")
_ID: Final = b"WARC-Record-ID: %s\r\n"
_COMMON: Final = b"WARC-Date: %s\r\nWARC-Target-URI: %s\r\nWARC-Warcinfo-ID: %s\r\n"
_BESIDE: Final = b"WARC-Concurrent-To: %s\r\n"
_BLOCK: Final = b"WARC-Block-Digest: %s\r\nContent-Type: %s\r\n"
_REVISIT: Final = (
    b"WARC-Profile: " + warc.IDENTICAL + b"\r\nWARC-Refers-To: %s\r\nWARC-Refers-To-Target-URI: %s\r\n"
    b"WARC-Refers-To-Date: %s\r\nWARC-Payload-Digest: %s\r\n"
)
_TEXTS: Final = (
    *(("t", "title"), ("l", "language"), ("C", "charset"), ("K", "canonical"), ("N", "robots"), ("R", "via")),
    *(("P", "provenance"), ("X", "truncated")),
)


class WarcRecord(NamedTuple):
    """A record, compressed; with `facts` it belongs into an index."""

    data: bytes
    time_ms: int = 0
    facts: dict[str, str] | None = None


@dataclass(frozen=True)
class _Payload:
    """A block of HTTP: its head, and its body as the server sent it, or decoded."""

    head: httphead.Head | None
    body: bytes
    digest: bytes
    packed: bool  # the body is as the server packed it


class WarcSink:
    """Files of records, each beginning with its warcinfo; with `index`, also the lines of a CDXJ."""

    def __init__(
        self, series: Series, state: int, now: int, since_now: int, digests: Digests = warc.SHA1, index: SortedLines | None = None
    ) -> None:
        self._series, self._state, self._now, self._since_now = series, state, now, since_now
        self._digests, self._index = digests, index
        self._info = b""
        self.records = 0

    def add(self, document: Exported) -> None:
        file = self._file()
        for record in self._records(document):
            if self._index is not None and record.facts is not None:
                url = document.bucket.attributes["U"]
                facts = record.facts | {"length": str(len(record.data)), "offset": str(file.length), "filename": file.name}
                self._index.add(cdxj.line(cdxj.url_key(url), warc.timestamp(record.time_ms), facts))
            file.write(record.data)
            self.records += 1

    def finish(self) -> None:
        self._file()  # an export of nothing is a file, too, and says so

    def _file(self) -> Written:
        if not self._series.wants_next():
            assert self._series.file is not None
            return self._series.file
        file = self._series.next()
        fields = (
            ("software", f"shepherd/{__version__}"),
            ("format", "WARC File Format 1.1"),
            ("conformsTo", "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
            ("description", f"documents of state {self._state}; requests hold what is known of them"),
        )
        data, self._info = warc.info(file.name, self._now * 1_000, fields, self._digests)
        file.write(data)
        self.records += 1
        return file

    # --- the records of a document

    def _records(self, document: Exported) -> Iterator[WarcRecord]:
        header, url = document.bucket.header, document.bucket.attributes["U"]
        if MessageHead.LINE_ENDS.search(url):
            raise Corruption(f"the URL {url!r} has line ends in it")
        # What was looked at again has its old bucket, unless the same came once more and was stored once more.
        if document.facts.what == Novelty.CHECKED and header.time_ms <= self._since_now * 1_000 + 999:
            yield from self._revisit(document)
            return
        capture = _CAPTURE.pack(header.site, header.path, header.time_ms, header.state)
        payload, own = self._payload(document), warc.record_id(b"response", capture)
        common = _COMMON % (warc.date(header.time_ms), url, self._info)
        main = self._main(document, payload, own, common)
        if main is not None:
            yield main
            if payload.head is not None:
                yield self._request(url, capture, own, common)
        yield self._metadata(document, capture, own if main is not None else b"", common)

    def _payload(self, document: Exported) -> _Payload:
        bucket = document.bucket
        attributes, is_packed = bucket.attributes, bucket.header.codec in PACKED_BY_SERVER
        body = bucket.stored if is_packed else document.body()
        headers = attributes.get("H", b"")
        if not headers and "E" in attributes:  # of a redirect only the target is kept
            headers = b"Location: " + MessageHead.LINE_ENDS.sub(b" ", attributes["E"])
        return _Payload(
            httphead.head(attributes.get("S", b""), headers, len(body), is_packed), body, self._digests.of(body), is_packed
        )

    def _main(self, document: Exported, payload: _Payload, own: bytes, common: bytes) -> WarcRecord | None:
        """The response, or the resource; None where there is nothing but the URL."""
        attributes, header = document.bucket.attributes, document.bucket.header
        head = payload.head
        if head is None and header.flags & BucketFlag.THIN:
            return None
        lines = [_ID % own, common]
        if address := attributes.get("A"):
            lines.append(b"WARC-IP-Address: %s\r\n" % _clean(address))
        if head is not None and head.protocol:
            lines.append(b"WARC-Protocol: %s\r\n" % head.protocol)
        if header.flags & BucketFlag.TRUNCATED or "X" in attributes:
            lines.append(b"WARC-Truncated: %s\r\n" % warc.TRUNCATED.get(attributes.get("X", b""), warc.UNSPECIFIED))
        type_ = _clean(attributes.get("T", b""))
        if type_ and head is not None:
            lines.append(b"WARC-Identified-Payload-Type: %s\r\n" % type_)
        lines.append(b"WARC-Payload-Digest: %s\r\n" % payload.digest)
        facts = {"url": attributes["U"].decode("ascii")}
        if head is None:
            type_ = type_ or b"application/octet-stream"
            facts |= {"mime": type_.decode("ascii", "replace"), "digest": payload.digest.decode()}
            headers = b"".join(lines) + _BLOCK % (payload.digest, type_)
            return WarcRecord(warc.record(b"resource", headers, payload.body), header.time_ms, facts)
        if content_type := MessageHead.CONTENT_TYPE.search(head.data):
            facts["mime"] = content_type[1].decode("latin-1")
        facts |= {"status": f"{head.status:03d}", "digest": payload.digest.decode()}
        hasher = self._digests.hash(head.data)
        hasher.update(payload.body)
        headers = b"".join(lines) + _BLOCK % (self._digests.label(hasher.digest()), warc.HTTP_RESPONSE)
        written = warc.packed_record if payload.packed else warc.record
        return WarcRecord(written(b"response", headers, head.data, payload.body), header.time_ms, facts)

    def _request(self, url: bytes, capture: bytes, response: bytes, common: bytes) -> WarcRecord:
        """Method, target and host are known of every fetch; what else was sent is not kept, and not made up."""
        place = MessageHead.PLACE.match(url)
        host, target = place.groups() if place is not None else (b"", b"/")
        block = b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target or b"/", host)
        own, beside = _ID % warc.record_id(b"request", capture), _BESIDE % response
        return WarcRecord(
            warc.record(b"request", own + common + beside + _BLOCK % (self._digests.of(block), warc.HTTP_REQUEST), block)
        )

    def _metadata(self, document: Exported, capture: bytes, response: bytes, common: bytes) -> WarcRecord:
        block = warc.fields(_known_fields(document))
        own, beside = _ID % warc.record_id(b"metadata", capture), _BESIDE % response if response else b""
        return WarcRecord(
            warc.record(b"metadata", own + common + beside + _BLOCK % (self._digests.of(block), warc.FIELDS), block)
        )

    def _revisit(self, document: Exported) -> Iterator[WarcRecord]:
        """The head stands in it as it was received then; whether the server said 304 or sent the same again is not kept."""
        header, url = document.bucket.header, document.bucket.attributes["U"]
        payload = self._payload(document)
        if payload.head is None:
            return
        time_ms = document.facts.checked * 1_000
        capture = _CAPTURE.pack(header.site, header.path, header.time_ms, header.state)
        headers = (
            _ID % warc.record_id(b"revisit", capture, b"%d" % time_ms),
            _COMMON % (warc.date(time_ms), url, self._info),
            _REVISIT % (warc.record_id(b"response", capture), url, warc.date(header.time_ms), payload.digest),
            _BLOCK % (self._digests.of(payload.head.data), warc.HTTP_RESPONSE),
        )
        facts = {"url": url.decode("ascii"), "mime": "warc/revisit", "status": f"{payload.head.status:03d}"}
        facts["digest"] = payload.digest.decode()
        yield WarcRecord(warc.record(b"revisit", b"".join(headers), payload.head.data), time_ms, facts)


_section = lru_cache(section_name)


def _clean(text: bytes) -> bytes:
    return MessageHead.LINE_ENDS.sub(b" ", text).strip()


def _known_fields(document: Exported) -> list[tuple[str, str]]:
    """What Shepherd knows of a document that its response does not say."""
    facts, attributes = document.facts, document.bucket.attributes
    fields = [("footprint", footprint_of(facts))]
    fields += [(name, attributes[letter].decode("utf-8", "replace")) for letter, name in _TEXTS if letter in attributes]
    if "D" in attributes:
        fields.append(("sha256", attributes["D"].hex()))
    if "h" in attributes:
        fields.append(("simhash", kinds.FOOTPRINT.text(int.from_bytes(attributes["h"], "little"))))
    if "m" in attributes:
        fields.append(("fetchTimeMs", str(int.from_bytes(attributes["m"], "little"))))
    fields += (
        ("weight", str(facts.weight)),
        ("section", _section(facts.section)),
        ("state", str(document.bucket.header.state)),
    )
    for name, seconds in (("gathered", facts.gathered), ("checked", facts.checked), ("changed", facts.changed)):
        if seconds:
            fields.append((name, warc.date(seconds * 1_000).decode()))
    return fields
