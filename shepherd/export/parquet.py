"""Parquet, of documents and of the URL database. pyarrow is an extra; without it, the error says how to install it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from shepherd.errors import Corruption, UsageError
from shepherd.export.documents import Exported, OnDamage
from shepherd.export.lines import DocumentFields, described
from shepherd.export.output import Series
from shepherd.formats import kinds, tables
from shepherd.formats.tables import I64

if TYPE_CHECKING:
    from shepherd.store.state.directory import State

ENDING: Final = ".parquet"
GROUP_ROWS: Final = 50_000
GROUP_BYTES: Final = 1 << 26
TIMES: Final = ("time", "last_modified", "gathered", "checked", "changed")
NUMBERS: Final = {"status": "uint16", "download_ms": "uint32", "body_bytes": "uint32", "weight": "uint16", "state": "uint32"}
INDEX: Final = tables.KINDS["index"]


def load() -> tuple[Any, Any]:
    """pyarrow and its parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            f"Parquet needs pyarrow, which is not here ({error}): "
            f"python3 -m pip --python {sys.executable} install 'pyarrow >= 17'"
        ) from None
    return pyarrow, pyarrow.parquet


class _Writer:
    """Rows in groups, groups in files."""

    def __init__(self, series: Series, schema: Any) -> None:
        self._arrow, self._parquet = load()
        self._series, self._schema = series, schema
        self._open: Any = None

    def write(self, columns: dict[str, Any]) -> None:
        if self._open is None or self._series.wants_next():
            self._next()
        self._open.write_table(self._arrow.table(columns, self._schema))

    def _next(self) -> None:
        self._end()
        file = self._arrow.PythonFile(_Sink(self._series.next()), mode="w")
        self._open = self._parquet.ParquetWriter(file, self._schema, compression="zstd")

    def _end(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def finish(self) -> None:
        if self._open is None:
            self._next()
        self._end()


class _Sink:
    """What pyarrow writes to: it gives buffers of its own, which are gone when `write` returns."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return int(self._file.write(bytes(data)))

    def tell(self) -> int:
        return int(self._file.length)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class ParquetSink:
    """A row a document; without `bodies` their column is left out."""

    def __init__(self, series: Series, bodies: bool) -> None:
        self._arrow, _parquet = load()
        self._bodies = bodies
        self._schema = self._make_schema()
        self._writer = _Writer(series, self._schema)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def _make_schema(self) -> Any:
        arrow = self._arrow
        special = {name: arrow.timestamp("ms", "UTC") for name in TIMES}
        special |= {name: getattr(arrow, kind)() for name, kind in NUMBERS.items()}
        special |= {"headers": arrow.list_(arrow.list_(arrow.string())), "flags": arrow.list_(arrow.string())}
        fields = [(name, special.get(name, arrow.string())) for name in DocumentFields.__annotations__]
        return arrow.schema(fields + ([("body", arrow.binary())] if self._bodies else []))

    def add(self, document: Exported) -> None:
        facts, attributes, header = document.facts, document.bucket.attributes, document.bucket.header
        row: dict[str, Any] = {
            **described(document),
            "time": header.time_ms,
            "last_modified": int.from_bytes(attributes["M"], "little", signed=True) if "M" in attributes else None,
            "gathered": _ms(facts.gathered),
            "checked": _ms(facts.checked),
            "changed": _ms(facts.changed),
        }
        if self._bodies:
            row["body"] = document.body()
            self._bytes += len(row["body"])
        self._rows.append(row)
        if len(self._rows) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write({name: [row[name] for row in self._rows] for name in self._schema.names})
            self._rows, self._bytes = [], 0

    def finish(self) -> None:
        self._flush()
        self._writer.finish()


def _ms(seconds: int) -> int | None:
    return seconds * 1_000 or None


class UrlsSink:
    """The URL database: a row for each row of the index, gathered or not."""

    def __init__(self, series: Series, on_damage: OnDamage) -> None:
        self._on_damage = on_damage
        self.damaged = 0
        arrow, _parquet = load()
        numbers = {"<u4": arrow.uint32(), "<u2": arrow.uint16(), "u1": arrow.uint8()}
        fields = [("url", arrow.string())]
        for name, dtype in tables.INDEX.items():
            kind = INDEX[name]
            if kind is kinds.TIME_S:
                fields.append((name, arrow.timestamp("s", "UTC")))
            elif kind is kinds.ROW_FLAGS:
                fields.append((name, arrow.list_(arrow.string())))
            else:
                fields.append((name, numbers[dtype] if kind.is_number else arrow.string()))
        self._writer = _Writer(series, arrow.schema(fields))

    def add(self, state: State, rows: I64) -> None:
        columns: dict[str, Any] = {name: array.tolist() for name, array in state.index.take(rows).items()}
        for name, kind in INDEX.items():
            if kind is kinds.TIME_S:
                columns[name] = [value or None for value in columns[name]]
            elif not kind.is_number or kind.none is not None:
                columns[name] = [kind.json(value) for value in columns[name]]
        columns["url"] = [None if url is None else url.decode("ascii", "replace") for url in self._urls(state, rows)]
        self._writer.write(columns)

    def _urls(self, state: State, rows: I64) -> list[bytes | None]:
        """A damaged bucket costs its own URL, and no other."""
        from shepherd.readers import search

        try:
            return search.urls_of(state, rows)
        except Corruption:
            return [self._url(state, oid) for oid in state.index["oid"].take(rows).tolist()]

    def _url(self, state: State, oid: int) -> bytes | None:
        if oid >= tables.CONTRIB_BIT:
            return None
        try:
            return state.objects.head(oid).url.encode()
        except Corruption as error:
            self.damaged += 1
            self._on_damage(str(error))
            return None

    def finish(self) -> None:
        self._writer.finish()
