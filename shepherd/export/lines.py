"""Exports that are lines or rows in a row: the list of buckets, JSON lines, and the stream of docs/formats.md."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any, Final, TypedDict

import numpy as np

from shepherd.export.documents import Exported, Facts, Gone
from shepherd.export.output import Series, Written
from shepherd.formats import httphead, stream, warc
from shepherd.formats.tables import Flag, Reason
from shepherd.readers.choice import What
from shepherd.reaper.document.charset import codec_of
from shepherd.sections import section_name

BATCH_BYTES: Final = 1 << 23
COLUMNS: Final = (
    "what", "oid", "site", "path", "weight", "section", "status", "gathered", "checked", "changed", "length", "url"
)  # fmt: skip
TITLES: Final = ("#" + "\t".join(COLUMNS) + "\n").encode()


class BucketsSink:
    """The list of buckets for an indexer: a line a document, its columns with tabs between them."""

    ending: Final = ".buckets"

    def __init__(self, series: Series) -> None:
        self._series = series

    def add(self, document: Exported) -> None:
        oid = f"{document.oid:016x}" if document.oid is not None else "-"
        self._write(document.facts, oid, document.bucket.url)

    def gone(self, gone: Gone) -> None:
        self._write(gone.facts, "-", gone.url or "-")

    def _write(self, facts: Facts, oid: str, url: str) -> None:
        file = _file(self._series, TITLES)
        values = (
            *(What(facts.what).name.lower(), oid, f"{facts.site:016x}", f"{facts.path:016x}", facts.weight, facts.section),
            *(facts.status, facts.gathered, facts.checked, facts.changed, facts.length, url),
        )
        file.write("\t".join(map(str, values)).encode("ascii") + b"\n")

    def finish(self) -> None:
        _file(self._series, TITLES)


class JsonlSink:
    """An object a line, in ASCII."""

    ending: Final = ".jsonl"

    def __init__(self, series: Series, bodies: bool) -> None:
        self._series, self._bodies = series, bodies

    def add(self, document: Exported) -> None:
        self._write({**described(document), **(body_of(document) if self._bodies else {})})

    def gone(self, gone: Gone) -> None:
        self._write(described_gone(gone))

    def _write(self, value: dict[str, Any]) -> None:
        _file(self._series).write(json.dumps(value).encode("ascii") + b"\n")

    def finish(self) -> None:
        _file(self._series)


class StreamSink:
    """Frames of rows with their buckets behind them; every file is a whole stream."""

    ending: Final = ".stream"

    def __init__(self, series: Series) -> None:
        self._series = series
        self._rows: list[Facts] = []
        self._data: list[bytes] = []
        self._held = self._items = self._bytes = 0

    def add(self, document: Exported) -> None:
        self._take(document.facts, document.bucket.data)

    def gone(self, gone: Gone) -> None:
        self._take(gone.facts, b"")

    def _take(self, facts: Facts, data: bytes) -> None:
        if self._series.file is not None and not self._rows and self._series.wants_next():
            self._end()
        self._rows.append(facts)
        self._data.append(data)
        self._held += len(data)
        if len(self._rows) >= stream.BATCH_ROWS or self._held >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        file = self._series.file or self._series.next()
        file.write(stream.rows_frame(np.array([tuple(row) for row in self._rows], stream.ROW)))
        for data in self._data:
            file.write(data)
        self._items += len(self._rows)
        self._bytes += self._held
        self._rows.clear()
        self._data.clear()
        self._held = 0

    def _end(self) -> None:
        file = self._series.file or self._series.next()
        file.write(stream.done_frame(self._items, self._bytes))
        self._series.file = None
        self._items = self._bytes = 0

    def finish(self) -> None:
        self._flush()
        self._end()


def _file(series: Series, begin: bytes = b"") -> Written:
    if not series.wants_next():
        assert series.file is not None
        return series.file
    file = series.next()
    if begin:
        file.write(begin)
    return file


# --- a document as values ---------------------------------------------------------------------------------------


class Described(TypedDict):
    """All that is known of a document but its body, in the order of the columns of Parquet. What is empty is None."""

    url: str
    what: str
    footprint: str
    time: str
    status: int
    status_line: str | None
    headers: list[tuple[str, str]]
    content_type: str | None
    charset: str | None
    language: str | None
    title: str | None
    sha256: str | None
    simhash: str | None
    address: str | None
    redirect: str | None
    canonical: str | None
    truncated: str | None
    provenance: str | None
    download_ms: int | None
    last_modified: str | None
    body_bytes: int
    weight: int
    section: str
    reason: str
    flags: list[str]
    gathered: str | None
    checked: str | None
    changed: str | None
    state: int


def described(document: Exported) -> Described:
    facts, attributes, header = document.facts, document.bucket.attributes, document.bucket.header

    def text(letter: str) -> str | None:
        return attributes[letter].decode("utf-8", "replace") if letter in attributes else None

    def number(letter: str) -> int | None:
        return int.from_bytes(attributes[letter], "little") if letter in attributes else None

    return {
        "url": document.bucket.url,
        "what": What(facts.what).name.lower(),
        "footprint": f"{facts.site:016x}{facts.path:016x}",
        "time": warc.date(header.time_ms).decode(),
        "status": facts.status,
        "status_line": text("S"),
        "headers": httphead.pairs(attributes.get("H", b"")),
        "content_type": text("T"),
        "charset": text("C"),
        "language": text("l"),
        "title": text("t"),
        "sha256": attributes["D"].hex() if "D" in attributes else None,
        "simhash": attributes["h"][::-1].hex() if "h" in attributes else None,
        "address": text("A"),
        "redirect": text("E"),
        "canonical": text("K"),
        "truncated": text("X"),
        "provenance": text("P"),
        "download_ms": number("m"),
        "last_modified": _day(number("M")),
        "body_bytes": header.plain_bytes,
        "weight": facts.weight,
        "section": section_name(facts.section),
        "reason": _name(Reason, facts.reason),
        "flags": [flag.name.lower() for flag in Flag if facts.flags & flag and flag.name],
        "gathered": _seconds(facts.gathered),
        "checked": _seconds(facts.checked),
        "changed": _seconds(facts.changed),
        "state": header.state,
    }


def described_gone(gone: Gone) -> dict[str, Any]:
    facts = gone.facts
    return {
        "url": gone.url,
        "what": What(facts.what).name.lower(),
        "footprint": f"{facts.site:016x}{facts.path:016x}",
        "weight": facts.weight,
        "section": section_name(facts.section),
    }


def body_of(document: Exported) -> dict[str, str]:
    """The decoded body as text, where it is one in its charset; in base 64 otherwise."""
    body = document.body()
    codec = codec_of(document.bucket.attributes.get("C", b"").decode("ascii", "replace"))
    if codec is not None:
        with contextlib.suppress(UnicodeDecodeError):
            return {"body": body.decode(codec)}
    return {"body_base64": base64.b64encode(body).decode("ascii")}


def _name(kind: Any, value: int) -> str:
    try:
        return str(kind(value).name.lower())
    except ValueError:
        return str(value)


def _seconds(value: int) -> str | None:
    return warc.date(value * 1_000).decode() if value else None


def _day(time_ms: int | None) -> str | None:
    return warc.date(time_ms).decode() if time_ms is not None else None
