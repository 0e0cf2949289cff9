"""shep explain --why-not: the URLs under a prefix, counted by what they are and why, with some examples of each.

The rows of a host stand together, so only these are read; a prefix with more than a host reads the text of each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from shepherd.console import common, shared
from shepherd.errors import BadUrl, NothingToDo, UsageError
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State

STEP_ROWS = 1 << 20
EXAMPLES = 3
Kind = tuple[int, int, int]  # type, reason and why the last plan left it out


@dataclass
class _Count:
    number: int = 0
    examples: list[int] = field(default_factory=list)  # rows, the first ones


def show(state: State, prefix: str, as_json: bool) -> None:
    """Count, and show; NothingToDo if nothing is known under the prefix."""
    from shepherd.store.state import lookup

    try:
        url = shared.parse_given(prefix if "://" in prefix else f"http://{prefix}")
    except BadUrl as error:
        raise UsageError(f"{shared.redact(prefix)}: {error}; a prefix has a whole host, such as example.org/shop") from None
    rows = lookup.rows_of_norm(state, state.prints.norm(url.site))
    counts, rows_without_text = _counts(state, rows, url.path)
    if not counts:
        unread = f"; {shared.many(rows_without_text, 'row')} of its site lost the text" if rows_without_text else ""
        raise NothingToDo(f"state {state.number} knows no URL under {url.href}{unread}")
    lines = [_line(state, kind, counts[kind]) for kind in sorted(counts, key=lambda kind: (-counts[kind].number, kind))]
    total = sum(count.number for count in counts.values())
    if as_json:
        common.emit_json(
            {"prefix": url.href, "state": state.number, "urls": total, "text_gone": rows_without_text, "by_reason": lines}
        )
        return
    for line in lines:
        plan = f"; left out by the last plan: {line['deferred']}" if line["deferred"] else ""
        click.echo(f"{line['urls']:>10,}  {line['type']}: {line['reason']}{plan}")
        for example in line["examples"]:
            click.echo(f"{'':10}    {common.escape(example)}")
    lost_text = f"; {rows_without_text:,} more of the site lost their text" if rows_without_text else ""
    click.echo(f"{total:>10,}  under {common.escape(url.href)} in state {state.number}{lost_text}")


def _counts(state: State, rows: range, path: str) -> tuple[dict[Kind, _Count], int]:
    """By kind; and how many rows have no text any more, so that nobody can say whether they belong there."""
    counts, rows_without_text = dict[Kind, _Count](), 0
    with common.progress(len(rows), "why not", "row") as bar:
        for start in range(rows.start, rows.stop, STEP_ROWS):
            stop = min(start + STEP_ROWS, rows.stop)
            rows_under, without_text = _under(state, start, stop, path)
            rows_without_text += without_text
            _add(state, counts, rows_under)
            bar.update(stop - start)
    return counts, rows_without_text


def _under(state: State, start: int, stop: int, path: str) -> tuple[I64, int]:
    """The rows whose path begins so, and how many have no text."""
    import numpy as np

    from shepherd.readers.search import urls_of
    from shepherd.urls import PAST_SCHEME

    rows = np.arange(start, stop, dtype=np.int64)
    if path == "/":
        return rows, 0
    prefix, texts = path.encode(), urls_of(state, rows)
    under = [text is not None and text[text.index(b"/", PAST_SCHEME) :].startswith(prefix) for text in texts]
    return rows[np.array(under, np.bool_)], texts.count(None)


def _add(state: State, counts: dict[Kind, _Count], rows: I64) -> None:
    import numpy as np

    columns = state.index.take(rows, ("type", "reason", "deferred"))
    number = columns["type"].astype(np.int64) << 16 | columns["reason"].astype(np.int64) << 8 | columns["deferred"]
    kinds, first, many = np.unique(number, return_index=True, return_counts=True)
    for kind_number, first_index, count in zip(kinds.tolist(), first.tolist(), many.tolist(), strict=True):
        entry = counts.setdefault((kind_number >> 16, kind_number >> 8 & 255, kind_number & 255), _Count())
        entry.number += count
        room = EXAMPLES - len(entry.examples)
        if room > 0:
            entry.examples += rows[first_index:][number[first_index:] == kind_number][:room].tolist()


def _line(state: State, kind: Kind, count: _Count) -> dict[str, Any]:
    type_, reason, deferred = kind
    return {
        "urls": count.number,
        "type": kinds.TYPE.json(type_),
        "reason": kinds.REASON.json(reason),
        "deferred": kinds.DEFERRED.json(deferred),
        "examples": list(_examples(state, count.examples)),
    }


def _examples(state: State, rows: list[int]) -> Iterator[str]:
    from shepherd.report.find import place_of

    for row in rows:
        yield place_of(state, row)
