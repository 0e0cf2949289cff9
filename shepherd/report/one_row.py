"""One row of the index as `shep explain` and `shep at` tell it: as lines for a person, and as an object for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shepherd import text as words

if TYPE_CHECKING:
    from shepherd.formats.bucket import Bucket
    from shepherd.store.state.columns import Table

Values = dict[str, int]  # one row of a table, by column
Line = tuple[str, str]  # a label and what is to be told under it
TIMES = ("gathered", "checked", "changed")
HALVES = ("norm", "path", "site", "oid", "digest")


def values(table: Table, row: int | None) -> Values | None:
    """A row of a table, by single values: of each column one block is read, and not those around it."""
    if row is None:
        return None
    return {name: table[name].at(row) for name in table.names}


def lines(row: Values, head: Bucket | None, now: int) -> Iterator[Line]:
    """All that a row says, but for its type."""
    from shepherd.formats.tables import DEFERRED_TEXT, REASON_TEXT, Deferred, Reason
    from shepherd.sections import section_name

    yield "reason", REASON_TEXT[Reason(row["reason"])]
    if told := flags(row):
        yield "flags", " ".join(told)
    for name in TIMES:
        yield name, words.moment(row[name], now)
    yield "answer", f"status {row['status'] or 'none'}, {row['download_ms']} ms, {words.size(row['size'])} stored"
    if row["digest"]:
        yield "digest", digest(row, head)
    if row["retry"]:
        yield "since then", words.many(row["retry"], "failure")
    if head is not None and "E" in head.attributes:
        yield "redirect to", words.escape(head.attributes["E"])
    if row["deferred"]:
        yield "last plan", f"left it out: {DEFERRED_TEXT[Deferred(row['deferred'])]}"
    section = f", in section {section_name(row['section'])}" if row["section"] else ""
    yield "weight", f"{row['weight']}, gathered {row['frequency']}x per refresh cycle{section}"


def as_object(row: Values, head: Bucket | None) -> dict[str, Any]:
    """For JSON: times as text, footprints in hexadecimal, small vocabularies in words."""
    from shepherd.formats.tables import DEFERRED_TEXT, REASON_TEXT, Deferred, Reason
    from shepherd.sections import section_name

    shown: dict[str, Any] = row | {name: f"{row[name]:016x}" for name in HALVES}
    shown |= {name: words.iso(row[name]) or None for name in TIMES}
    shown |= {"type": type_name(row), "reason": REASON_TEXT[Reason(row["reason"])], "flags": flags(row)}
    shown |= {"deferred": DEFERRED_TEXT[Deferred(row["deferred"])] if row["deferred"] else None}
    shown |= {"section": section_name(row["section"]), "digest": digest(row, head) if row["digest"] else None}
    target = head.attributes.get("E") if head is not None else None
    return {"url": head.url if head is not None else None, "redirect_to": target} | shown


def digest(row: Values, head: Bucket | None) -> str:
    """The SHA-256 of the content where the bucket has it, else the 64 bits that the index has."""
    whole = head.attributes.get("D", b"") if head is not None else b""
    return whole.hex() if whole else row["digest"].to_bytes(8, "little").hex()


def type_name(row: Values) -> str:
    from shepherd.formats.tables import RowType

    return RowType(row["type"]).name.lower()


def flags(row: Values) -> list[str]:
    from shepherd.formats.tables import Flag

    return [flag.name.lower() for flag in Flag if row["flags"] & flag and flag.name]
