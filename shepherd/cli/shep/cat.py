"""shep cat: a stored document, as bytes for a program, as text for a reader, escaped for a terminal."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.config import Config
from shepherd.console import common, shared
from shepherd.errors import NothingToDo
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.formats.bucket import Bucket
    from shepherd.report.find import UrlPosition
    from shepherd.store.state.directory import State

BODY, TEXT, HEADERS = "body", "text", "headers"


@click.command("cat")
@click.argument("url", metavar="URL")
@click.option("--body", "what", flag_value=BODY, default=BODY, help="The decoded body.  [default]")
@click.option("--text", "what", flag_value=TEXT, help="The body as a person would read it: in UTF-8, without markup.")
@click.option("--headers", "what", flag_value=HEADERS, help="The status line and headers.")
@common.database
@common.configured
@shared.state_number
@common.jsonable
@common.standard
def command(url: str, what: str, db: Path, config: Config, number: int | None, as_json: bool) -> None:
    """Print the stored document of a URL. A URL also means its equivalents, under another scheme or with or without www.

    A file or pipe gets the decoded body byte by byte; a terminal gets it as text, with control characters escaped. Exit status 4
    if nothing is stored, or, with --text, if it is not text.

    \b
    Examples:
      shep cat https://example.org/ > page.html
      shep cat --text https://example.org/ | less
      shep cat --headers --state 12 https://example.org/
    """
    from shepherd.filters import load_filter
    from shepherd.report.find import seek

    with shared.reading(db, number) as state:
        position = seek(state, load_filter(config.filter_path), url)
        bucket = _stored(state, position, what == HEADERS)
    if bucket.url != position.parsed.href:
        common.LOG.info("stored as %s", bucket.url)
    if "X" in bucket.attributes:
        common.LOG.warning("the body was cut when it was gathered: %s", common.escape(bucket.attributes["X"]))
    if as_json:
        common.emit_json(_json(bucket, what))
    elif what == HEADERS:
        _print_headers(bucket)
    elif sys.stdout.isatty():
        _show(_readable(bucket) if what == TEXT else _decoded(bucket))
    else:
        sys.stdout.buffer.write(_readable(bucket).encode("utf-8", "replace") if what == TEXT else bucket.body())


def _stored(state: State, position: UrlPosition, headers: bool) -> Bucket:
    """The first bucket of the document with something to show; NothingToDo says why there is none."""
    from shepherd.formats.bucket import BucketFlag
    from shepherd.report.find import head_of

    hint = f"`shep explain {shlex.quote(position.text)}` says more"
    if not position.rows:
        raise NothingToDo(f"{position.text} is not known; {hint}")
    target = b""
    for row in position.rows:
        head = head_of(state, row)
        if head is None or head.header.flags & BucketFlag.TOMBSTONE:
            continue
        target = target or head.attributes.get("E", b"")
        if "E" not in head.attributes and not head.header.flags & BucketFlag.THIN:
            return state.objects.get(state.index["oid"].value(row), state.index["size"].value(row))
        if headers and "S" in head.attributes:
            return head
    if target:
        raise NothingToDo(f"{position.text} is a redirect to {common.escape(target)} and has no body; {hint}")
    raise NothingToDo(f"{position.text} is known, but no document is stored for it; {hint}")


def _json(bucket: Bucket, what: str) -> dict[str, Any]:
    import base64

    text = {
        name: bucket.attributes.get(letter) for name, letter in (("status_line", "S"), ("content_type", "T"), ("charset", "C"))
    }
    record: dict[str, Any] = {"url": bucket.url, "time": kinds.TIME_MS.json(bucket.header.time_ms), **text}
    record["digest"] = bucket.attributes.get("D", b"").hex() or None
    record["truncated"] = bucket.attributes.get("X")
    if what == TEXT:
        return record | {"text": _readable(bucket)}
    if what == HEADERS:
        return record | {"headers": [common.escape(line) for line in bucket.attributes.get("H", b"").splitlines() if line]}
    return record | {"body_base64": base64.b64encode(bucket.body()).decode("ascii")}


def _print_headers(bucket: Bucket) -> None:
    for letter in ("S", "H"):
        for line in bucket.attributes.get(letter, b"").splitlines():
            if line:
                click.echo(common.escape(line))


def _show(text: str) -> None:
    for line in text.split("\n"):
        click.echo(common.escape(line.removesuffix("\r").expandtabs()))


def _readable(bucket: Bucket) -> str:
    from shepherd.console.readable import is_text, readable

    kind = bucket.attributes.get("T", b"").decode("ascii", "replace")
    if not is_text(kind):
        raise NothingToDo(f"{bucket.url} is {common.escape(kind)}, which has no text here; --body gives its bytes")
    return readable(_decoded(bucket), kind)


def _decoded(bucket: Bucket) -> str:
    """The body as text; an unknown charset is read as UTF-8."""
    from shepherd.reaper.document.charset import codec_of

    codec = codec_of(bucket.attributes.get("C", b"utf-8").decode("ascii", "replace"))
    return bucket.body().decode(codec or "utf-8", "replace")
