"""One run of shep-export: its source, the export or the count of it, and the lines at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.cli.export import choice as export_choice
from shepherd.cli.export.options import STDOUT, ExportOptions
from shepherd.console import common, shared
from shepherd.errors import Corruption

if TYPE_CHECKING:
    from shepherd.export.documents import DocumentSource, LocalSource
    from shepherd.store.state.directory import State

MOST_DAMAGE_LINES = 20  # lines; the rest is only counted


class DamageReporter:
    """Reports damage as it is met: the first of it in full."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, why: str) -> None:
        self._count += 1
        if self._count <= MOST_DAMAGE_LINES:
            common.LOG.warning("skipped: %s", why)
        if self._count == MOST_DAMAGE_LINES:
            common.LOG.warning("further damage is only counted; shep-check lists all of it")


def local_source(options: ExportOptions, state: State, since: State | None, on_damage: DamageReporter) -> LocalSource:
    """Of a state that the caller has leased; `since` is what is known of an older one."""
    from shepherd.export.documents import LocalSource
    from shepherd.readers.reading import Reading

    narrow = export_choice.narrowing(state, options.selection, options.cf)
    checked = since is not None and options.wish.format == "warc"
    return LocalSource(Reading(state, options.choice, since, narrow=narrow, checked=checked), on_damage)


def export(source: DocumentSource, options: ExportOptions, on_damage: DamageReporter, again: bool = False) -> dict[str, Any]:
    """What the manifest says; the export is whole and durable, or with --dry-run only counted.

    `again`: one that is there may be this very one, and is replaced if it is.
    """
    from shepherd.export import run
    from shepherd.export.output import Output

    facts = {"state": source.state, "since": source.since, **options.wish.manifest()}
    facts["choice"] = export_choice.words(options.choice, options.selection)
    if options.dry_run:
        gone_items, total = source.gone_items, source.items
        return facts | {"counts": {"documents": total - gone_items, "gone": gone_items, "bucket bytes": source.bucket_bytes}}
    output = None
    if options.output != STDOUT:
        output = Output(Path(options.output), stem_of(options, source.state), options.overwrite, facts if again else None)
    try:
        with common.progress(source.items, f"state {source.state}", " documents") as bar:
            counts = run.export(source, options.wish, output, on_damage, bar.update)
        if output is None:
            sys.stdout.buffer.flush()
            return facts | {"counts": counts, "files": []}
        return output.commit(facts | {"counts": counts})
    except BaseException:
        if output is not None:
            output.abandon()
        raise


def stem_of(options: ExportOptions, state: int) -> str:
    parts = f"-{options.choice.part + 1}of{options.choice.parts}" if options.choice.parts > 1 else ""
    return f"{options.prefix}-{state:06d}{parts}"


def status(manifest: dict[str, Any], as_json: bool) -> int:
    """Print the counts and the files of an export; the exit status."""
    if as_json:
        common.emit_json(manifest)
    else:
        counts = ", ".join(f"{count:,} {name}" for name, count in manifest["counts"].items() if count)
        since = f" since state {manifest['since']}" if manifest.get("since") else ""
        common.LOG.info("state %d%s: %s", manifest["state"], since, counts or "nothing")
        for file in manifest.get("files", ()):
            common.LOG.info("  %s%s", file["name"], f"  {shared.size(file['bytes'])}" if file["bytes"] is not None else "/")
    return Corruption.exit_status if manifest["counts"].get("damaged") else 0
