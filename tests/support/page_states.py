"""A small database of known content, made through the store alone, and a way to run the real `shep` on it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shepherd.formats import bucket, contrib, tables
from shepherd.formats.bucket import Codec
from shepherd.formats.contrib import Block
from shepherd.formats.frame import FrameKind
from shepherd.formats.frame import pack_frame as frame
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from shepherd.store.state.directory import Builder
from shepherd.urls import Footprints, Url, parse, qkey_of_address
from tests.worlds import DAY, KEY, NOW, create, next_state, write_world

ROOT = Path(__file__).resolve().parents[2]
FILTER = "strip utm_*\nreject ext zip\nreject prefix http://a.example/private/\n"

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@dataclass(frozen=True)
class Page:
    """A row to be, with its bucket: thin without a body; `attributes` by letter; other columns by name."""

    url: str
    type: RowType = RowType.UNGATHERED
    reason: Reason = Reason.LINK
    body: bytes | None = None
    attributes: dict[str, bytes] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    bucket: bool = True
    packed: tuple[Codec, bytes] | None = None  # the body as its server sent it, else it is packed as we do it


@dataclass(frozen=True)
class Site:
    """Columns of a site, by name, for a site that some page is on."""

    name: str
    columns: dict[str, int]


@dataclass(frozen=True)
class Herd:
    """A filled database and its configuration."""

    db: Path
    cf: Path
    now: int

    @property
    def store(self) -> Database:
        return Database(self.db)


GREETING = "Grüße\t\x1b[31m\n".encode()
HEADERS = b"Content-Type: text/html\r\nX-Steer: \x1b[2J\r\n\r\n"
GATHERED = {"status": 200, "weight": 50_000, "gathered": NOW - 3 * DAY, "checked": NOW - 2 * DAY, "changed": NOW - 9 * DAY}
PAGES = (
    Page(
        "http://a.example/",
        RowType.GATHERED,
        Reason.GATHERED,
        GREETING,
        {"S": b"HTTP/1.1 200 OK", "H": HEADERS, "T": b"text/html", "C": b"utf-8"},
        GATHERED | {"flags": Flag.INITIAL | Flag.EQUIV, "download_ms": 12},
    ),
    Page(
        "http://a.example/robots.txt",
        RowType.GATHERED,
        Reason.GATHERED,
        b"User-agent: *\n",
        {},
        GATHERED | {"flags": Flag.ROBOTS},
    ),
    Page("http://a.example/new?x=1", columns={"weight": 49_000}),
    Page("http://a.example/asleep", RowType.SLEEPING, Reason.SITE_SOFT, columns={"weight": 7}),
    Page("http://a.example/private/old", RowType.GATHERED, Reason.GATHERED, b"old", {}, GATHERED),
    Page(
        "http://a.example/gone",
        RowType.ERROR,
        Reason.CLIENT_ERROR,
        columns={"status": 404, "retry": 2, "checked": NOW - DAY, "weight": 30_000},
    ),
    Page("http://a.example/dead", RowType.ERROR, Reason.MALFORMED, columns={"status": 410, "retry": 4, "checked": NOW - DAY}),
    Page("http://a.example/forgotten", RowType.FORGOTTEN, Reason.DELETED, bucket=False),
    Page(
        "http://a.example/moved",
        RowType.GATHERED,
        Reason.REDIRECT,
        None,
        {"S": b"HTTP/1.1 301 Moved", "E": b"http://b.example/\x1b]0;"},
        {"status": 301, "checked": NOW - DAY, "flags": Flag.REDIRECT},
    ),
    Page("https://www.b.example/page", RowType.GATHERED, Reason.GATHERED, b"the page", {}, GATHERED | {"weight": 60_000}),
    Page("http://down.example/x", RowType.UNGATHERED, Reason.INSERTED, columns={"flags": Flag.INITIAL, "weight": 40_000}),
)
SITES = (
    Site(
        "http://a.example",
        {"qkey": qkey_of_address("127.0.0.7"), "qkey_checked": NOW - DAY, "robots_status": 200, "robots_checked": NOW - DAY},
    ),
    Site("http://down.example", {"robots_since": NOW - 5 * DAY, "robots_next": NOW + 600}),
)
LINKED = "http://a.example/linked"
SERVERS = {
    "qkey": [qkey_of_address("127.0.0.7")],
    "next_ms": [(NOW + 60) * 1_000],
    "delay_ms": [10_000],
    "fetches": [9],
    "slots": [1],
}


def _bucket(page: Page, url: Url, prints: Footprints) -> bytes:
    _, path, site = prints.of(url)
    if page.body is None and not page.attributes:
        return bucket.thin(site, path, NOW * 1_000, 2, url.href)
    codec, stored = page.packed or (bucket.compress(page.body, "lz4") if page.body else (Codec.NONE, b""))
    attributes = [("U", url.href.encode()), *page.attributes.items()]
    flags = bucket.BucketFlag.THIN if page.body is None else 0
    flags |= bucket.BucketFlag.TRUNCATED if "X" in page.attributes else 0
    plain = len(page.body or b"")
    return bucket.pack(
        site=site,
        path=path,
        time_ms=NOW * 1_000,
        state=2,
        attributes=attributes,
        body=stored,
        codec=codec,
        plain_bytes=plain,
        flags=flags,
    )


def _fill(
    builder: Builder,
    pages: Iterable[Page],
    sites: Iterable[Site],
    stored_robots: Mapping[str, Mapping[str, int]],
    known_servers: Mapping[str, Sequence[int]] = SERVERS,
) -> None:
    prints = Footprints(KEY)
    writer = builder.segment_writer(1 << 20)
    rows: list[dict[str, int]] = []
    found: dict[str, dict[str, int]] = {}
    for page in pages:
        url = parse(page.url)
        norm, path, site = prints.of(url)
        data = _bucket(page, url, prints) if page.bucket else b""
        oid = writer.append(data) if data else tables.NO_OID
        row = {"norm": norm, "path": path, "site": site, "oid": oid, "size": len(data), "touched": 2, "frequency": 1}
        rows.append(row | {"type": page.type, "reason": page.reason} | page.columns)
        known = found.setdefault(url.site, {"documents": 0, "gathered": 0})
        known["documents"] += 1
        known["gathered"] += page.type == RowType.GATHERED and not page.columns.get("flags", 0) & Flag.ROBOTS
        known |= dict.fromkeys(("delay_ms", "soft_limit", "hard_limit"), tables.NO_LIMIT)
        label = url.site.partition("://")[2].partition(".")[0]
        if page.columns.get("flags", 0) & Flag.ROBOTS and label in stored_robots:
            known |= {**stored_robots[label], "robots_oid": oid}
    for one in sites:
        found[one.name] |= one.columns
    builder.finish_segments(writer)
    servers = [dict(zip(known_servers, values, strict=True)) for values in zip(*known_servers.values(), strict=True)]
    write_world(builder, rows, found, servers)


def _contributed(url: Url) -> Block:
    """A contrib block of one URL, as a link on some page gives it."""
    norm, path, site = (np.array([half], np.uint64) for half in Footprints(KEY).of(url))
    u4, u2 = np.zeros(1, np.uint32), np.zeros(1, np.uint16)
    text = url.path.encode()
    return Block(norm, path, site, u4, u4, u2, u2, np.zeros(1, np.uint8), [text], site, norm, [url.site.encode()], site, path, 0)


def make_herd(
    directory: Path,
    pages: Sequence[Page] = PAGES,
    sites: Sequence[Site] = SITES,
    links: Sequence[str] = (LINKED,),
    stored_robots: Mapping[str, Mapping[str, int]] | None = None,
    servers: Mapping[str, Sequence[int]] = SERVERS,
) -> Herd:
    """`stored_robots`: by the first label of a host, columns of a site that has the bucket of its robots page as its rules."""
    db, cf = directory / "db", directory / "cf"
    with next_state(create(directory, FILTER, NOW - DAY)) as builder:
        _fill(builder, pages, sites, stored_robots or {}, servers)
        for number, link in enumerate(links, 1):
            waiting = contrib.encode(_contributed(parse(link)))
            builder.write(names.contrib(number), frame(FrameKind.CONTRIB, 1, waiting))
            builder.change(contribs=number + 1)
    return Herd(db, cf, NOW)


def add_state(
    herd: Herd, pages: Sequence[Page], sites: Sequence[Site] = (), now: int = NOW, journal: Sequence[bytes] = ()
) -> int:
    """Close one more state, of these pages alone, with a journal if there are records for one; its number."""
    with herd.store.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "closed"), now)
        _fill(builder, pages, sites, {})
        if journal:
            records = np.frombuffer(b"".join(journal), tables.JOURNAL)
            builder.write_records(names.journal(parent.control.contribs), FrameKind.JOURNAL, records)
            builder.change(contribs=parent.control.contribs + 1)
        return writer.publish(builder, {"phase": "cork" if journal else "test"}).number


def stdout_of(answer: subprocess.CompletedProcess[bytes], status: int = 0) -> str:
    assert answer.returncode == status, answer
    return answer.stdout.decode()


def objects(answer: subprocess.CompletedProcess[bytes], status: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout_of(answer, status).splitlines()]
