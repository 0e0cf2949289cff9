"""A document as WARC records: the response, what is known of the request, and what Shepherd knows besides.

A document that was looked at since the last export and has not changed is a revisit of the record that was written then: its id
is a hash of the capture, so it is known without looking it up. What has no status line (v2 buckets may have none) is a resource.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from shepherd import __version__
from shepherd.export.documents import Exported
from shepherd.export.output import Series, Written
from shepherd.export.sorting import SortedLines
from shepherd.formats import cdxj, httphead, warc
from shepherd.formats.bucket import MAX_BODY, BucketFlag, Codec
from shepherd.formats.warc import Digests, Header
from shepherd.phases.readers import What
from shepherd.sections import section_name

SENT: Final = frozenset((Codec.GZIP_SENT, Codec.BR_SENT, Codec.ZSTD_SENT, Codec.DEFLATE_SENT))
ENDING: Final = ".warc.gz"
_CAPTURE: Final = struct.Struct("<QQqI")
_TYPE: Final = re.compile(rb"^content-type[ \t]*:[ \t]*([^;\s]*)", re.IGNORECASE | re.MULTILINE)
_PLACE: Final = re.compile(rb"https?://([^/?#]*)(/[^#]*)?")
_LINE_ENDS: Final = re.compile(rb"[\r\n\0]+")


class Record(NamedTuple):
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
        told = (
            ("software", f"shepherd/{__version__}"),
            ("format", "WARC File Format 1.1"),
            ("conformsTo", "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
            ("description", f"documents of state {self._state}; requests hold what is known of them"),
        )
        data, self._info = warc.info(file.name, self._now * 1_000, told, self._digests)
        file.write(data)
        self.records += 1
        return file

    # --- the records of a document

    def _records(self, document: Exported) -> Iterator[Record]:
        header = document.bucket.header
        # What was looked at again has its old bucket, unless the same came once more and was stored once more.
        if document.facts.what == What.CHECKED and header.time_ms <= self._since_now * 1_000 + 999:
            yield from self._revisit(document)
            return
        capture = _CAPTURE.pack(header.site, header.path, header.time_ms, header.state)
        payload, date = self._payload(document), warc.date(header.time_ms)
        url, own = document.bucket.attributes["U"], warc.record_id(b"response", capture)
        common = ((b"WARC-Date", date), (b"WARC-Target-URI", url), (b"WARC-Warcinfo-ID", self._info))
        main = self._main(document, payload, own, common)
        if main is not None:
            yield main
            if payload.head is not None:
                yield self._request(url, capture, own, common)
        yield self._metadata(document, capture, own if main is not None else b"", common)

    def _payload(self, document: Exported) -> _Payload:
        bucket = document.bucket
        attributes, sent = bucket.attributes, bucket.header.codec in SENT
        body = bucket.stored if sent else bucket.body(MAX_BODY)
        headers = attributes.get("H", b"")
        if not headers and "E" in attributes:  # of a redirect only the target is kept
            headers = b"Location: " + _LINE_ENDS.sub(b" ", attributes["E"])
        return _Payload(httphead.head(attributes.get("S", b""), headers, len(body), sent), body, self._digests.of(body))

    def _main(self, document: Exported, payload: _Payload, own: bytes, common: Iterable[Header]) -> Record | None:
        """The response, or the resource; None where there is nothing but the URL."""
        attributes, header = document.bucket.attributes, document.bucket.header
        head = payload.head
        if head is None and header.flags & BucketFlag.THIN:
            return None
        block = (head.data, payload.body) if head is not None else (payload.body,)
        headers: list[Header] = [(b"WARC-Record-ID", own), *common]
        if address := attributes.get("A"):
            headers.append((b"WARC-IP-Address", address))
        if head is not None and head.protocol:
            headers.append((b"WARC-Protocol", head.protocol))
        if header.flags & BucketFlag.TRUNCATED or "X" in attributes:
            headers.append((b"WARC-Truncated", warc.TRUNCATED.get(attributes.get("X", b""), warc.UNSPECIFIED)))
        content_type = _clean(attributes.get("T", b""))
        if content_type and head is not None:
            headers.append((b"WARC-Identified-Payload-Type", content_type))
        headers += (
            (b"WARC-Payload-Digest", payload.digest),
            (b"WARC-Block-Digest", self._block_digest(block, payload)),
            (b"Content-Type", warc.HTTP_RESPONSE if head is not None else content_type or b"application/octet-stream"),
        )
        facts = {"url": attributes["U"].decode("ascii")}
        if head is None:
            facts["mime"] = (content_type or b"application/octet-stream").decode("ascii", "replace")
        else:
            if said := _TYPE.search(head.data):
                facts["mime"] = said[1].decode("latin-1")
            facts["status"] = f"{head.status:03d}"
        facts["digest"] = payload.digest.decode()
        kind = b"response" if head is not None else b"resource"
        return Record(warc.record(kind, headers, *block), header.time_ms, facts)

    def _block_digest(self, block: tuple[bytes, ...], payload: _Payload) -> bytes:
        if len(block) == 1:
            return payload.digest
        hasher = self._digests.hash(block[0])
        hasher.update(block[1])
        return self._digests.label(hasher.digest())

    def _request(self, url: bytes, capture: bytes, response: bytes, common: Iterable[Header]) -> Record:
        """Method, target and host are known of every fetch; what else was sent is not kept, and not made up."""
        place = _PLACE.match(url)
        host, target = place.groups() if place is not None else (b"", b"/")
        block = b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target or b"/", host)
        headers = (
            (b"WARC-Record-ID", warc.record_id(b"request", capture)),
            *common,
            (b"WARC-Concurrent-To", response),
            (b"WARC-Block-Digest", self._digests.of(block)),
            (b"Content-Type", warc.HTTP_REQUEST),
        )
        return Record(warc.record(b"request", headers, block))

    def _metadata(self, document: Exported, capture: bytes, response: bytes, common: Iterable[Header]) -> Record:
        block = warc.fields(_known(document))
        headers = (
            (b"WARC-Record-ID", warc.record_id(b"metadata", capture)),
            *common,
            *(((b"WARC-Concurrent-To", response),) if response else ()),
            (b"WARC-Block-Digest", self._digests.of(block)),
            (b"Content-Type", warc.FIELDS),
        )
        return Record(warc.record(b"metadata", headers, block))

    def _revisit(self, document: Exported) -> Iterator[Record]:
        """The head stands in it as it was received then; whether the server said 304 or sent the same again is not kept."""
        header, attributes = document.bucket.header, document.bucket.attributes
        payload = self._payload(document)
        if payload.head is None:
            return
        time_ms = document.facts.checked * 1_000
        capture = _CAPTURE.pack(header.site, header.path, header.time_ms, header.state)
        url, block = attributes["U"], payload.head.data
        headers = (
            (b"WARC-Record-ID", warc.record_id(b"revisit", capture, b"%d" % time_ms)),
            (b"WARC-Date", warc.date(time_ms)),
            (b"WARC-Target-URI", url),
            (b"WARC-Warcinfo-ID", self._info),
            (b"WARC-Profile", warc.IDENTICAL),
            (b"WARC-Refers-To", warc.record_id(b"response", capture)),
            (b"WARC-Refers-To-Target-URI", url),
            (b"WARC-Refers-To-Date", warc.date(header.time_ms)),
            (b"WARC-Payload-Digest", payload.digest),
            (b"WARC-Block-Digest", self._digests.of(block)),
            (b"Content-Type", warc.HTTP_RESPONSE),
        )
        facts = {"url": url.decode("ascii"), "mime": "warc/revisit", "status": f"{payload.head.status:03d}"}
        facts["digest"] = payload.digest.decode()
        yield Record(warc.record(b"revisit", headers, block), time_ms, facts)


def _clean(text: bytes) -> bytes:
    return _LINE_ENDS.sub(b" ", text).strip()


def _known(document: Exported) -> Iterator[tuple[str, str]]:
    """What Shepherd knows of a document that its response does not say."""
    facts, attributes, header = document.facts, document.bucket.attributes, document.bucket.header

    def text(letter: str) -> str:
        return attributes.get(letter, b"").decode("utf-8", "replace")

    def number(letter: str) -> str:
        return str(int.from_bytes(attributes[letter], "little")) if letter in attributes else ""

    yield "footprint", f"{facts.site:016x}{facts.path:016x}"
    yield "title", text("t")
    yield "language", text("l")
    yield "charset", text("C")
    yield "canonical", text("K")
    yield "robots", text("N")
    yield "via", text("R")
    yield "provenance", text("P")
    yield "truncated", text("X")
    yield "sha256", attributes.get("D", b"").hex()
    yield "simhash", attributes.get("h", b"")[::-1].hex()
    yield "fetchTimeMs", number("m")
    yield "weight", str(facts.weight)
    yield "section", section_name(facts.section)
    yield "state", str(header.state)
    for name, seconds in (("gathered", facts.gathered), ("checked", facts.checked), ("changed", facts.changed)):
        yield name, warc.date(seconds * 1_000).decode() if seconds else ""
