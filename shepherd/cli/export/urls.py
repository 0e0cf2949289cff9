"""shep-export --format parquet-urls: the rows of the index with their URLs, whatever their type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli.export import run as export_run
from shepherd.cli.export.options import ExportOptions
from shepherd.console import common, shared
from shepherd.console import rows as console_rows

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.database import Database


def run(database: Database, options: ExportOptions) -> int:
    from shepherd.export import parquet
    from shepherd.export.output import Output, Series

    with database.reading("shep-export", shared.clock_ms(), options.number) as state:
        facts = {
            "state": state.number,
            "since": None,
            **options.wish.manifest(),
            "choice": {"selectors": options.selection.words()},
        }
        rows = 0
        if options.dry_run:
            with console_rows.choosing(state, options.selection, options.cf) as row_batches:
                rows = sum(map(len, row_batches))
            return export_run.status(facts | {"counts": {"rows": rows}}, options.as_json)
        output = Output(Path(options.output), export_run.stem_of(options, state.number) + "-urls", options.overwrite)
        sink = parquet.UrlsSink(Series(output.create, parquet.ENDING, options.wish.split_bytes), export_run.DamageReporter())
        try:
            with (
                console_rows.choosing(state, options.selection, options.cf) as row_batches,
                common.progress(None, "URLs", " rows") as bar,
            ):
                for some in _together(row_batches):
                    sink.add(state, some)
                    rows += len(some)
                    bar.update(len(some))
            sink.finish()
            counts = {"rows": rows, "damaged": sink.damaged}
            return export_run.status(output.commit(facts | {"counts": counts}), options.as_json)
        except BaseException:
            output.abandon()
            raise


def _together(row_batches: Iterator[I64]) -> Iterator[I64]:
    """Rows in groups that are worth writing."""
    import numpy as np

    group: list[I64] = []
    for rows in row_batches:
        group.append(rows)
        if sum(map(len, group)) >= 1 << 16:
            yield np.concatenate(group)
            group = []
    if any(map(len, group)):
        yield np.concatenate(group)
