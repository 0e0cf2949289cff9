"""One row of the index as `shep explain` and `shep at` show it: as lines for a person, and as an object for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shepherd import text as words
from shepherd.formats import kinds, vocabulary
from shepherd.formats.kinds import ColumnKind

if TYPE_CHECKING:
    from shepherd.formats.bucket import Bucket
    from shepherd.store.state.columns import Table

Values = dict[str, int]  # one row of a table, by column
Line = tuple[str, str]  # a label and what stands under it
TIMES = ("gathered", "checked", "changed")


def values(table: Table, row: int | None) -> Values | None:
    """A row of a table, by single values: of each column one block is read, and not those around it."""
    if row is None:
        return None
    return {name: table[name].value(row) for name in table.names}


def lines(row: Values, head: Bucket | None, now: int) -> Iterator[Line]:
    """All that a row says, but for its type."""
    yield "reason", reason_of(row)
    if row["flags"]:
        yield "flags", kinds.ROW_FLAGS.text(row["flags"])
    for name in TIMES:
        yield name, words.moment(row[name], now)
    yield "answer", f"status {kinds.STATUS.text(row['status'])}, {row['download_ms']} ms, {words.size(row['size'])} stored"
    if row["digest"]:
        yield "digest", str(digest(row, head))
    if row["retry"]:
        yield "since then", words.many(row["retry"], "failure")
    if head is not None and "E" in head.attributes:
        yield "redirect to", words.escape(head.attributes["E"])
    if row["deferred"]:
        yield "last plan", f"left it out: {deferred_of(row)}"
    section = f", in section {kinds.SECTION.text(row['section'])}" if row["section"] else ""
    yield "weight", f"{row['weight']}, gathered {row['frequency']}x per refresh cycle{section}"


def as_object(row: Values, head: Bucket | None) -> dict[str, Any]:
    """For JSON: every column as its kind says."""
    from shepherd.formats.tables import KINDS

    columns = kinds.row_as_json(KINDS["index"], row) | {"digest": digest(row, head)}
    target = head.attributes.get("E") if head is not None else None
    return {"url": head.url if head is not None else None, "redirect_to": target} | columns


def digest(row: Values, head: Bucket | None) -> str | None:
    """The SHA-256 of the content where the bucket has it, else as much of it as the index has."""
    whole = head.attributes.get("D", b"") if head is not None and row["digest"] else b""
    return whole.hex() if whole else as_word(kinds.DIGEST, row["digest"])


def as_word(kind: ColumnKind, value: int) -> str | None:
    """A value of a kind that is spelt as one text."""
    spelt = kind.json(value)
    return None if spelt is None else str(spelt)


def type_name(row: Values) -> str:
    return kinds.TYPE.text(row["type"])


def reason_of(row: Values) -> str:
    """Its word, and what that means where it does not say so itself."""
    return _with_meaning(kinds.REASON.text(row["reason"]), vocabulary.reason_text(row["reason"]))


def deferred_of(row: Values) -> str:
    """Why the last plan left it out: the word, and what that means."""
    return _with_meaning(kinds.DEFERRED.text(row["deferred"]), vocabulary.deferred_text(row["deferred"]))


def _with_meaning(word: str, meaning: str) -> str:
    return word if meaning == word.replace("-", " ") else f"{word}: {meaning}"
