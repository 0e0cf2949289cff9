"""What stands around the tables, as rows for shep-dump: control, the inbox and the leases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shepherd.cli.dump import fields
from shepherd.cli.dump.fields import DumpTable
from shepherd.errors import Corruption
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.store.state.database import Database
    from shepherd.store.state.directory import State
    from shepherd.store.state.inbox import InboxItem

NAME_WIDTH = 36
SECRET = "(secret)"


def control(state: State) -> DumpTable:
    """Line by line; the key of the footprints is not for anybody's terminal or log."""
    from shepherd.store.disk import names, opening

    def rows() -> Iterator[list[str]]:
        for line in opening.read_file(state.path / names.CONTROL).decode("ascii").splitlines():
            key, _, value = line.partition(" ")
            yield [key, SECRET if key == "key" else value]

    return DumpTable([fields.text("key", len("shepherd-control")), fields.text("value")], rows())


def inbox(database: Database) -> DumpTable:
    """Every request and inserted URL, and every other item, and whether the furthest directory has taken it in already."""
    from shepherd.store.state.inbox import CONTRIB, REQUESTS

    columns = [
        fields.text("item", NAME_WIDTH),
        fields.number("line", 4),
        fields.text("taken", 5),
        fields.value("op", 8),
        fields.value("weight", 6),
        fields.value("pinned", 6),
        fields.value("by", 20),
        fields.value("url"),
    ]

    furthest = database.furthest()
    applied, key = set(furthest.control.applied), furthest.control.key

    def rows() -> Iterator[list[Any]]:
        for item in database.inbox.all_items():
            is_taken = "yes" if item.name in applied else "no"
            if item.kind == CONTRIB:
                for number, values in enumerate(_inserts(item, key), 1):
                    yield [item.name, number, is_taken, *values]
                continue
            if item.kind != REQUESTS:
                yield [item.name, 0, is_taken, item.kind, None, None, None, None]
                continue
            for number, line in _lines(item):
                yield [item.name, number, is_taken, *_request(line)]

    return DumpTable(columns, rows())


def _inserts(item: InboxItem, key: bytes) -> Iterator[list[Any]]:
    """op, weight, pinned, by and url of each URL of an item of contributions; at its damage, why it cannot be read."""
    from shepherd.formats import contrib
    from shepherd.formats.vocabulary import ContribFlag
    from shepherd.store.state import inserts

    try:
        by = inserts.inspect(item.path, key).by
        for frame in inserts.frames(item.path):
            block = contrib.decode(frame.payload)
            names = dict(zip(block.sites.tolist(), block.names, strict=True))
            columns = (block.parent_weight.tolist(), block.flags.tolist(), block.site.tolist(), block.texts)
            for weight, flags, site, text in zip(*columns, strict=True):
                op = "insert" if flags & ContribFlag.INSERTED else "contrib"
                yield [op, weight, bool(flags & ContribFlag.PINNED), by, names[site] + text]
    except Corruption as error:
        yield ["bad", None, None, None, error.what]


def _lines(item: InboxItem) -> Iterator[tuple[int, bytes]]:
    """Of an item that cannot be read: why."""
    from shepherd.store.state.inbox import MOST_LINE_BYTES
    from shepherd.store.state.inbox_files import item_lines

    try:
        for number, line in enumerate(item_lines(item.path, MOST_LINE_BYTES), 1):
            if line.strip():
                yield number, line.rstrip(b"\r\n")
    except Corruption as error:
        yield 0, error.what.encode()


def _request(line: bytes) -> list[Any]:
    """op, weight, pinned, by and url; of a line that is no request, the line itself stands in for the URL."""
    try:
        request = json.loads(line)
    except ValueError:
        request = None
    if not isinstance(request, dict):
        return ["bad", None, None, None, line]
    return [request.get(key) for key in ("op", "weight", "pinned", "by", "url")]


def leases(database: Database, now: int) -> DumpTable:
    columns = [
        fields.text("name", NAME_WIDTH),
        fields.number("state", 4),
        fields.of_kind("expires", kinds.TIME_S),
        fields.text("holds", 5),
        fields.number("pid", 4),
        fields.text("owner", 20),
        fields.text("purpose"),
    ]
    rows = (
        [lease.name, lease.state, lease.expires, "yes" if lease.holds(now) else "no", lease.pid, lease.owner, lease.purpose]
        for lease in database.leases.all()
    )
    return DumpTable(columns, rows)
