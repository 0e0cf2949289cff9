"""One run of shep-export: a source as it was asked for, its export or the count of it, and what is told at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.cli.export import choice as export_choice
from shepherd.cli.export.options import STDOUT, Asked
from shepherd.console import common, shared
from shepherd.errors import Corruption

if TYPE_CHECKING:
    from shepherd.export.documents import DocumentSource, LocalSource
    from shepherd.store.state.directory import State

TOLD_DAMAGE = 20  # lines; the rest is only counted


class Told:
    """Damage, as it is met: the first of it in full."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, why: str) -> None:
        self._count += 1
        if self._count <= TOLD_DAMAGE:
            common.LOG.warning("skipped: %s", why)
        if self._count == TOLD_DAMAGE:
            common.LOG.warning("further damage is only counted; shep-check lists all of it")


def local_source(asked: Asked, state: State, since: State | None, tell: Told) -> LocalSource:
    """Of a state that the caller has leased; `since` is what is known of an older one."""
    from shepherd.export.documents import LocalSource
    from shepherd.readers.reading import Reading

    narrow = export_choice.narrowing(state, asked.selection, asked.cf)
    checked = since is not None and asked.wish.format == "warc"
    return LocalSource(Reading(state, asked.choice, since, narrow=narrow, checked=checked), tell)


def export(source: DocumentSource, asked: Asked, tell: Told, again: bool = False) -> dict[str, Any]:
    """What the manifest says; the export is whole and durable, or with --dry-run only counted.

    `again`: one that is there may be this very one, and is replaced if it is.
    """
    from shepherd.export import run
    from shepherd.export.output import Output

    told = {"state": source.state, "since": source.since, **asked.wish.manifest()}
    told["choice"] = export_choice.words(asked.choice, asked.selection)
    if asked.dry_run:
        gone, total = source.gone_items, source.items
        return told | {"counts": {"documents": total - gone, "gone": gone, "bucket bytes": source.bucket_bytes}}
    output = None
    if asked.output != STDOUT:
        output = Output(Path(asked.output), stem_of(asked, source.state), asked.overwrite, told if again else None)
    try:
        with common.progress(source.items, f"state {source.state}", " documents") as bar:
            counts = run.export(source, asked.wish, output, tell, bar.update)
        if output is None:
            sys.stdout.buffer.flush()
            return told | {"counts": counts, "files": []}
        return output.commit(told | {"counts": counts})
    except BaseException:
        if output is not None:
            output.abandon()
        raise


def stem_of(asked: Asked, state: int) -> str:
    parts = f"-{asked.choice.part + 1}of{asked.choice.parts}" if asked.choice.parts > 1 else ""
    return f"{asked.prefix}-{state:06d}{parts}"


def status(told: dict[str, Any], as_json: bool) -> int:
    """Tell what came of it; the exit status."""
    if as_json:
        common.emit_json(told)
    else:
        counts = ", ".join(f"{count:,} {name}" for name, count in told["counts"].items() if count)
        since = f" since state {told['since']}" if told.get("since") else ""
        common.LOG.info("state %d%s: %s", told["state"], since, counts or "nothing")
        for file in told.get("files", ()):
            common.LOG.info("  %s%s", file["name"], f"  {shared.size(file['bytes'])}" if file["bytes"] is not None else "/")
    return Corruption.exit_status if told["counts"].get("damaged") else 0
