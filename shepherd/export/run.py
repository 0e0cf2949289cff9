"""One export from its first document to its manifest: which sink, which files, which counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from shepherd.errors import Corruption
from shepherd.export.documents import DocumentSource, Exported, GoneDocument, OnDamage
from shepherd.export.lines import WHAT, BucketsSink, JsonlSink, StreamSink, described_gone
from shepherd.export.output import Output, Series, StdoutFile, Written
from shepherd.export.sorting import SortedLines
from shepherd.formats import vocabulary
from shepherd.readers.choice import Novelty

Tick = Callable[[int], object]


@dataclass(frozen=True)
class Wish:
    """How documents are to be written."""

    format: str
    split_bytes: int = 1 << 30
    bodies: bool = True
    cdxj: bool = False
    sha256: bool = False

    def words(self) -> dict[str, Any]:
        """The options that change how a document is written, for manifest and cursor; only those of its format."""
        words: dict[str, Any] = {"format": self.format}
        if self.format in ("jsonl", "parquet"):
            words["bodies"] = self.bodies
        if self.format == "warc":
            words |= {"cdxj": self.cdxj, "digest": "sha256" if self.sha256 else "sha1"}
        return words

    def manifest(self) -> dict[str, Any]:
        """All by which the files of an export differ from those of another; where they end makes no other documents."""
        return self.words() | ({"split_bytes": self.split_bytes} if self.format != "files" else {})


class DocumentSink(Protocol):
    def add(self, document: Exported) -> None: ...
    def finish(self) -> None: ...


def export(source: DocumentSource, wish: Wish, output: Output | None, on_damage: OnDamage, tick: Tick) -> dict[str, Any]:
    """Write all of the source; counts by name. Without an output it goes to stdout, else nothing has its name yet."""
    import json

    out = StdoutFile()
    create: Callable[[str], Written] = output.create if output is not None else lambda _suffix: out
    index = SortedLines(output.directory) if wish.cdxj and output is not None else None
    sink = _sink(source, wish, create, output, index)
    counts = dict.fromkeys(vocabulary.words(Novelty), 0) | {"damaged": 0}
    gone_list: Written | None = None
    try:
        for document in source.documents():
            tick(1)
            if isinstance(document, GoneDocument):
                counts["gone"] += 1
                if isinstance(sink, BucketsSink | JsonlSink | StreamSink):
                    sink.add_gone(document)
                    continue
                gone_list = gone_list or create(".gone.jsonl")
                gone_list.write(json.dumps(described_gone(document)).encode("ascii") + b"\n")
                continue
            try:
                sink.add(document)
            except Corruption as error:  # it checks, and yet its body does not decode
                counts["damaged"] += 1
                on_damage(str(error))
            else:
                counts[WHAT.text(document.facts.what)] += 1
        sink.finish()
        if index is not None:
            lines = create(".cdxj")
            for line in index:
                lines.write(line)
    finally:
        if index is not None:
            index.close()
    counts["damaged"] += source.damaged
    return counts


def _sink(
    source: DocumentSource, wish: Wish, create: Callable[[str], Written], output: Output | None, index: SortedLines | None
) -> DocumentSink:
    split = wish.split_bytes if output is not None else 0
    if wish.format == "warc":
        from shepherd.export import warc
        from shepherd.formats.warc import SHA1, SHA256

        series = Series(create, warc.ENDING, split)
        return warc.WarcSink(series, source.state, source.now, source.since_now, SHA256 if wish.sha256 else SHA1, index)
    if wish.format == "buckets":
        return BucketsSink(Series(create, BucketsSink.ending, split))
    if wish.format == "jsonl":
        return JsonlSink(Series(create, JsonlSink.ending, split), wish.bodies)
    if wish.format == "stream":
        return StreamSink(Series(create, StreamSink.ending, split))
    if wish.format == "parquet":
        from shepherd.export import parquet

        return parquet.ParquetSink(Series(create, parquet.ENDING, split), wish.bodies)
    from shepherd.export import files

    assert output is not None
    listing = create(files.LIST)
    if wish.format == "tar.gz":
        return files.TarSink(Series(create, files.TarSink.ending, split), listing)
    return files.FilesSink(output.tree(), listing)
