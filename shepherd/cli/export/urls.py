"""shep-export --format parquet-urls: the rows of the index with their URLs, whatever their type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli.export import run as export_run
from shepherd.cli.export.options import Asked
from shepherd.console import common, shared
from shepherd.console import rows as console_rows

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.database import Database


def run(database: Database, asked: Asked) -> int:
    from shepherd.export import parquet
    from shepherd.export.output import Output, Series

    with database.reading("shep-export", shared.clock_ms(), asked.number) as state:
        told = {
            "state": state.number,
            "since": None,
            **asked.wish.manifest(),
            "choice": {"selectors": asked.selection.words()},
        }
        rows = 0
        if asked.dry_run:
            with console_rows.choosing(state, asked.selection, asked.cf) as found:
                rows = sum(map(len, found))
            return export_run.status(told | {"counts": {"rows": rows}}, asked.as_json)
        output = Output(Path(asked.output), export_run.stem_of(asked, state.number) + "-urls", asked.overwrite)
        sink = parquet.UrlsSink(Series(output.create, parquet.ENDING, asked.wish.split_bytes), export_run.Told())
        try:
            with console_rows.choosing(state, asked.selection, asked.cf) as found, common.progress(None, "URLs", " rows") as bar:
                for some in _together(found):
                    sink.add(state, some)
                    rows += len(some)
                    bar.update(len(some))
            sink.finish()
            counts = {"rows": rows, "damaged": sink.damaged}
            return export_run.status(output.commit(told | {"counts": counts}), asked.as_json)
        except BaseException:
            output.abandon()
            raise


def _together(found: Iterator[I64]) -> Iterator[I64]:
    """Rows in groups that are worth writing."""
    import numpy as np

    held: list[I64] = []
    for rows in found:
        held.append(rows)
        if sum(map(len, held)) >= 1 << 16:
            yield np.concatenate(held)
            held = []
    if any(map(len, held)):
        yield np.concatenate(held)
