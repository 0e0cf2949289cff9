"""Buckets for shep-dump: all of a state, a line each; or one, with its header, its attributes and, if asked for, its body.

One bucket may be asked for by oid, by its place, by footprint or by URL. Attributes are checked without the body, so a damaged
body still leaves everything else to be seen.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shepherd.cli.dump import fields
from shepherd.cli.dump.fields import DumpTable
from shepherd.console import common
from shepherd.errors import Corruption, NothingToDo, UsageError
from shepherd.formats import kinds
from shepherd.formats.kinds import ColumnKind

if TYPE_CHECKING:
    from shepherd.formats.bucket import Bucket, Header
    from shepherd.store.state.directory import State

FILE_WIDTH = len("harvest/reap/seg.00000001")
_HALF = re.compile(r"[0-9a-f]{16}", re.IGNORECASE)
_PLACE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")


# --- all --------------------------------------------------------------------------------------------------------


def buckets(state: State, site: str | None) -> DumpTable:
    from shepherd.cli.dump.rows import site_rows

    columns = [
        fields.text("file", FILE_WIDTH),
        fields.of_kind("oid", kinds.OID),
        fields.Field("type", 4, hex, hex),
        fields.of_kind("codec", _codec()),
        fields.of_kind("state", kinds.STATE, 4),
        fields.of_kind("time_ms", kinds.TIME_MS),
        fields.of_kind("stored", kinds.BYTES, 4),
        fields.of_kind("plain", kinds.BYTES, 4),
        fields.of_kind("site", kinds.FOOTPRINT),
        fields.of_kind("path", kinds.FOOTPRINT),
        fields.of_kind("flags", _bucket_flags()),
        fields.text("url"),
    ]
    sites = None if site is None else {state.sites["site"].value(row) for row in site_rows(state, site)}

    def rows() -> Iterator[list[Any]]:
        for file, oid, header, url in _scanned(state, sites):
            yield [file, oid, header.type, header.codec, header.state, header.time_ms, *_sizes(header), *_prints(header), url]

    return DumpTable(columns, rows())


def _sizes(header: Header) -> tuple[int, int]:
    return header.body_bytes, header.plain_bytes


def _prints(header: Header) -> tuple[int, int, int]:
    return header.site, header.path, header.flags


def _scanned(state: State, sites: set[int] | None) -> Iterator[tuple[str, int, Header, bytes]]:
    """File, oid, header and URL of every bucket; those of a harvest up to its newest checkpoint, under their local oids."""
    from shepherd.store.disk import names
    from shepherd.store.state import harvest
    from shepherd.store.state.objects import Objects

    def scan(objects: Objects, number: int, length: int | None, file: str) -> Iterator[tuple[str, int, Header, bytes]]:
        for oid, header in objects.scan(number, length):
            if sites is None or header.site in sites:
                yield file, oid, header, objects.head(oid).attributes.get("U", b"")

    for number in state.segments():
        yield from scan(state.objects, number, None, f"{names.OBJECTS}/{names.segment(number)}")
    for path in state.harvests():
        objects, inside = Objects(path, names.local_segment), f"{names.HARVESTS}/{path.name}"
        for number, mark in enumerate(harvest.inspect(path).checkpoint.segments, 1):
            yield from scan(objects, number, mark.length, f"{inside}/{names.local_segment(number)}")
        objects.close()


# --- one --------------------------------------------------------------------------------------------------------


def find(state: State, which: Sequence[str]) -> int:
    """The oid of the bucket that an operator means."""
    from shepherd.formats import tables

    if len(which) == 1 and (place := _PLACE.fullmatch(which[0])):
        return tables.bucket_oid(int(place[1]), int(place[2]))
    if len(which) == 1 and _HALF.fullmatch(which[0]):
        oid = int(which[0], 16)
    elif len(which) == 2 and all(map(_HALF.fullmatch, which)):
        oid = _of_row(state, which, *_rows(state, int(which[0], 16), int(which[1], 16)))
    elif len(which) == 1 and "://" in which[0]:
        oid = _of_row(state, which, *_rows_of_url(state, which[0]))
    else:
        raise UsageError(
            f"{' '.join(which)}: give an oid (16 hex digits), SEGMENT:OFFSET, a footprint (16 hex digits twice) or a URL"
        )
    if oid >= tables.CONTRIB_BIT:
        raise NothingToDo(f"{' '.join(which)}: it has no bucket, {_instead(oid)}")
    return oid


def _instead(oid: int) -> str:
    from shepherd.formats import tables

    if oid == tables.NO_OID:
        return "and no text of it is left"
    number, ordinal = tables.split_contrib(oid)
    return f"but waits as record {ordinal} of contrib {number} (`shep-dump contrib` shows it)"


def _rows(state: State, norm: int, path: int) -> Sequence[int]:
    """The rows of a footprint, whose first half may be that of the normalised site or that of the site itself."""
    from shepherd.store.state import lookup

    rows: Sequence[int] = lookup.rows_of(state, norm, path)
    site = lookup.site_row(state, norm)
    if not rows and site is not None:
        row = lookup.row_of(state, state.sites["norm"].value(site), path, norm)
        rows = [row] if row is not None else []
    return rows


def _rows_of_url(state: State, url: str) -> Sequence[int]:
    from shepherd.filters import parse_filter
    from shepherd.report.find import seek

    return seek(state, parse_filter(""), url).rows


def _of_row(state: State, which: Sequence[str], *rows: int) -> int:
    from shepherd.console.shared import many

    if not rows:
        raise NothingToDo(f"{' '.join(which)}: not known in {state.name}; `shep explain URL` says more about a URL")
    if len(rows) > 1:
        common.LOG.info("%s have this footprint, on equivalent sites; this is row %d", many(len(rows), "row"), rows[0])
    return state.index["oid"].value(rows[0])


def show(state: State, which: Sequence[str], body: str, urls: bool, as_json: bool) -> None:
    """Header and attributes of one bucket; or its `body`, as "decoded" or as "stored"."""
    oid = find(state, which)
    if body and not as_json:
        _write(_body(state, oid, body))
        return
    head = state.objects.head(oid)
    record = {**_header(oid, head.header), **_attributes(state, head, urls)}
    if not as_json:
        fields.show(DumpTable([fields.text("field", len("redirect_target")), fields.value("value")], _lines(record)), None, False)
        return
    if body:
        import base64

        record["body_base64"] = base64.b64encode(_body(state, oid, body)).decode("ascii")
    common.emit_json(record)


def _lines(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """A line for each value: headers and links have many."""
    for key, value in record.items():
        if key == "flags":
            value = ",".join(value) or None
        for line in value if isinstance(value, list) else [value]:
            yield key, line


def _body(state: State, oid: int, how: str) -> bytes:
    bucket = state.objects.get(oid)
    try:
        return bucket.stored if how == "stored" else bucket.body()
    except Corruption as error:
        raise Corruption(error.what, *state.objects.place(oid)) from error


def _write(body: bytes) -> None:
    """Bytes for a program, text for a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(body)
        return
    for line in body.split(b"\n"):
        sys.stdout.write(common.escape(line.removesuffix(b"\r").expandtabs()) + "\n")


def _header(oid: int, header: Header) -> dict[str, Any]:
    from shepherd.formats.tables import split_oid

    segment, offset = split_oid(oid)
    return {
        "oid": kinds.OID.json(oid),
        "segment": segment,
        "offset": offset,
        "type": hex(header.type),
        "codec": _codec().json(header.codec),
        "flags": _bucket_flags().json(header.flags),
        "state": header.state,
        "time_ms": kinds.TIME_MS.json(header.time_ms),
        "site": kinds.FOOTPRINT.json(header.site),
        "path": kinds.FOOTPRINT.json(header.path),
        "length": header.length,
        "stored": header.body_bytes,
        "plain": header.plain_bytes,
    }


def _codec() -> ColumnKind:
    from shepherd.formats.bucket import Codec

    return kinds.word_of("codecs", Codec)


def _bucket_flags() -> ColumnKind:
    from shepherd.formats.bucket import BucketFlag

    return kinds.flags_of("buckets", BucketFlag)


def _attributes(state: State, bucket: Bucket, urls: bool) -> dict[str, Any]:
    """Attributes by name; an unknown letter stays a letter."""
    from shepherd.formats.attributes import TABLE

    named = {letter: attribute.name.lower().replace(" ", "_") for letter, attribute in TABLE.items()}
    return {named.get(letter, letter): _attribute(state, letter, value, urls) for letter, value in bucket.attributes.items()}


def _attribute(state: State, letter: str, value: bytes, urls: bool) -> Any:
    from shepherd.formats.attributes import HEX, NUMBER, TABLE, TEXT

    form = TABLE[letter].form if letter in TABLE else TEXT
    if letter == "H":
        return [common.escape(line) for line in value.splitlines() if line]
    if letter == "L" and len(value) % 16 == 0:
        return [_link(state, norm, path, urls) for norm, path in struct.iter_unpack("<QQ", value)]
    number = int.from_bytes(value, "little")
    if letter == "M":
        return kinds.TIME_MS.json(number)
    if letter == "h":
        return kinds.FOOTPRINT.json(number)
    if form == NUMBER:
        return number
    return value.hex() if form == HEX else common.escape(value)


def _link(state: State, norm: int, path: int, urls: bool) -> str:
    from shepherd.cli.dump.urls import Urls

    url = Urls(state).of(norm, path, 0) if urls else None
    return url if url is not None else f"{kinds.FOOTPRINT.text(norm)} {kinds.FOOTPRINT.text(path)}"
