"""Exports that are lines or rows in a row: the list of buckets, JSON lines, and the stream of docs/formats.md."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any, Final, TypedDict

import numpy as np

from shepherd.export.documents import DocumentFacts, Exported, GoneDocument
from shepherd.export.output import Series, Written
from shepherd.formats import httphead, kinds, stream
from shepherd.formats.kinds import ColumnKind
from shepherd.formats.tables import KINDS
from shepherd.readers.choice import Novelty
from shepherd.reaper.document.charset import codec_of
from shepherd.text import iso_ms

BATCH_BYTES: Final = 1 << 23
INDEX: Final = KINDS["index"]
OF_ROW: Final = ("status", "weight", "section", "reason", "flags", "gathered", "checked", "changed")
WHAT: Final = kinds.word_of("whats", Novelty)
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
        self._write(document.facts, document.oid, document.bucket.url)

    def add_gone(self, document: GoneDocument) -> None:
        self._write(document.facts, None, document.url or kinds.NONE)

    def _write(self, facts: DocumentFacts, oid: int | None, url: str) -> None:
        file = _file(self._series, TITLES)
        columns = (INDEX[name].text(getattr(facts, name)) for name in COLUMNS[2:-2])
        values = (WHAT.text(facts.what), kinds.OID.text(oid), *columns, str(facts.length), url)
        file.write("\t".join(values).encode("ascii") + b"\n")

    def finish(self) -> None:
        _file(self._series, TITLES)


class JsonlSink:
    """An object a line, in ASCII."""

    ending: Final = ".jsonl"

    def __init__(self, series: Series, bodies: bool) -> None:
        self._series, self._bodies = series, bodies

    def add(self, document: Exported) -> None:
        self._write({**described(document), **(body_of(document) if self._bodies else {})})

    def add_gone(self, document: GoneDocument) -> None:
        self._write(described_gone(document))

    def _write(self, value: dict[str, Any]) -> None:
        _file(self._series).write(json.dumps(value).encode("ascii") + b"\n")

    def finish(self) -> None:
        _file(self._series)


class StreamSink:
    """Frames of rows with their buckets behind them; every file is a whole stream."""

    ending: Final = ".stream"

    def __init__(self, series: Series) -> None:
        self._series = series
        self._rows: list[DocumentFacts] = []
        self._data: list[bytes] = []
        self._bytes_waiting = self._items = self._bytes = 0

    def add(self, document: Exported) -> None:
        self._take(document.facts, document.bucket.data)

    def add_gone(self, document: GoneDocument) -> None:
        self._take(document.facts, b"")

    def _take(self, facts: DocumentFacts, data: bytes) -> None:
        if self._series.file is not None and not self._rows and self._series.wants_next():
            self._end()
        self._rows.append(facts)
        self._data.append(data)
        self._bytes_waiting += len(data)
        if len(self._rows) >= stream.BATCH_ROWS or self._bytes_waiting >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        file = self._series.file or self._series.next()
        file.write(stream.rows_frame(np.array([tuple(row) for row in self._rows], stream.ROW)))
        for data in self._data:
            file.write(data)
        self._items += len(self._rows)
        self._bytes += self._bytes_waiting
        self._rows.clear()
        self._data.clear()
        self._bytes_waiting = 0

    def _end(self) -> None:
        file = self._series.file or self._series.next()
        file.write(stream.end_frame(self._items, self._bytes))
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


class DocumentFields(TypedDict):
    """All that is known of a document but its body, in the order of the columns of Parquet. What is empty is None."""

    url: str
    what: str
    footprint: str
    time: str
    status: int | None
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


def footprint_of(facts: DocumentFacts) -> str:
    """Site and path: what a reader knows a document by."""
    return kinds.FOOTPRINT.text(facts.site) + kinds.FOOTPRINT.text(facts.path)


def described(document: Exported) -> DocumentFields:
    facts, attributes, header = document.facts, document.bucket.attributes, document.bucket.header

    def text(letter: str) -> str | None:
        return attributes[letter].decode("utf-8", "replace") if letter in attributes else None

    def number(letter: str) -> int | None:
        return int.from_bytes(attributes[letter], "little") if letter in attributes else None

    def text_of(kind: ColumnKind, letter: str) -> str | None:
        return kind.text(number(letter)) if letter in attributes else None

    row = kinds.row_as_json(INDEX, facts._asdict(), OF_ROW)
    return {
        "url": document.bucket.url,
        "what": WHAT.text(facts.what),
        "footprint": footprint_of(facts),
        "time": iso_ms(header.time_ms),
        "status": row["status"],
        "status_line": text("S"),
        "headers": httphead.pairs(attributes.get("H", b"")),
        "content_type": text("T"),
        "charset": text("C"),
        "language": text("l"),
        "title": text("t"),
        "sha256": attributes["D"].hex() if "D" in attributes else None,
        "simhash": text_of(kinds.FOOTPRINT, "h"),
        "address": text("A"),
        "redirect": text("E"),
        "canonical": text("K"),
        "truncated": text("X"),
        "provenance": text("P"),
        "download_ms": number("m"),
        "last_modified": text_of(kinds.TIME_MS, "M"),
        "body_bytes": header.plain_bytes,
        "weight": row["weight"],
        "section": row["section"],
        "reason": row["reason"],
        "flags": row["flags"],
        "gathered": row["gathered"],
        "checked": row["checked"],
        "changed": row["changed"],
        "state": header.state,
    }


def described_gone(document: GoneDocument) -> dict[str, Any]:
    facts = document.facts
    return {
        "url": document.url,
        "what": WHAT.text(facts.what),
        "footprint": footprint_of(facts),
        **kinds.row_as_json(INDEX, facts._asdict(), ("weight", "section")),
    }


def body_of(document: Exported) -> dict[str, str]:
    """The decoded body as text, where it is one in its charset; in base 64 otherwise."""
    body = document.body()
    codec = codec_of(document.bucket.attributes.get("C", b"").decode("ascii", "replace"))
    if codec is not None:
        with contextlib.suppress(UnicodeDecodeError):
            return {"body": body.decode(codec)}
    return {"body_base64": base64.b64encode(body).decode("ascii")}
