"""A small sound state, which tests of shep-check break in one place and publish with checksums that are right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shepherd.formats import bucket, contrib, tables
from shepherd.formats.contrib import Block
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.tables import NO_OID, Array, Flag, Reason, RowType
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.urls import Footprints, Url, parse, qkey_of_address

KEY = bytes(range(16))
NOW = 1_790_000_000
PRINTS = Footprints(KEY)
SERVERS = (qkey_of_address("127.0.0.7"), qkey_of_address("127.0.0.8"))
PAGE = "http://a.example/page"
THIN = "http://b.example/thin"
ROBOTS = "http://a.example/robots.txt"
# Two sites of one norm: their roots and robots files share norm and path, and must not be told of.
URLS = ("http://a.example/", ROBOTS, PAGE, "https://a.example/", "https://a.example/robots.txt", "http://b.example/", THIN)
BODY = b"the body of the page"


@dataclass
class Content:
    """Everything of a state, sound until a test breaks it."""

    index: dict[str, Array]
    sites: dict[str, Array]
    site_names: list[str]
    servers: dict[str, Array]
    segment: bytes
    rows: dict[str, int]  # by URL
    files: dict[str, bytes] = field(default_factory=dict)
    control: dict[str, Any] = field(default_factory=dict)
    phase: str = "closed"


Break = Callable[[Content], object]


def columns(table: dict[str, str], rows: Iterable[dict[str, int]]) -> dict[str, Array]:
    rows = list(rows)
    return {name: np.array([row.get(name, 0) for row in rows], dtype) for name, dtype in table.items()}


def bucket_of(url: Url) -> bytes:
    _, path, site = PRINTS.of(url)
    if url.href != PAGE:
        return bucket.thin(site, path, NOW * 1000, 2, url.href)
    attributes = [("U", url.href.encode()), ("S", b"HTTP/1.1 200 OK"), ("D", hashlib.sha256(BODY).digest()), ("t", b"title")]
    return bucket.pack(site=site, path=path, time_ms=NOW * 1000, state=2, attributes=attributes, body=BODY)


def index_row(url: Url, offset: int, size: int) -> dict[str, int]:
    norm, path, site = PRINTS.of(url)
    row = {"norm": norm, "path": path, "site": site, "oid": tables.bucket_oid(1, offset), "size": size, "frequency": 1}
    row |= {"type": RowType.UNGATHERED, "reason": Reason.LINK}
    if url.href in (PAGE, ROBOTS):
        row |= {"type": RowType.GATHERED, "reason": Reason.GATHERED}
    if url.href == PAGE:
        row["digest"] = int.from_bytes(hashlib.sha256(BODY).digest()[:8], "little")
    return row | {"flags": Flag.ROBOTS if url.path == "/robots.txt" else 0}


def content(urls: Iterable[str] = URLS, more_sites: Iterable[str] = ()) -> Content:
    segment, found = b"", {}
    counts: dict[str, dict[str, int]] = {}
    for url in map(parse, urls):
        data = bucket_of(url)
        found[url.href] = index_row(url, len(segment), len(data))
        segment += data
        count = counts.setdefault(url.site, {"documents": 0, "gathered": 0})
        count["documents"] += 1
        count["gathered"] += url.href == PAGE
    ordered = sorted(found.items(), key=lambda item: (item[1]["norm"], item[1]["path"], item[1]["site"]))
    for name in more_sites:
        counts[name] = {}
    site_names = sorted(counts, key=PRINTS.half)
    sites = []
    for name, end in zip(site_names, np.cumsum([len(name) for name in site_names]).tolist(), strict=True):
        norm, _, site = PRINTS.of(parse(f"{name}/"))
        sites.append({"site": site, "norm": norm, "name": end, "robots_oid": NO_OID, "qkey": tables.qkey_unresolved(site)})
        sites[-1] |= counts[name]
        if name == "http://a.example":
            sites[-1] |= {"qkey": SERVERS[0], "robots_oid": found[ROBOTS]["oid"]}
    return Content(
        columns(tables.INDEX, (row for _url, row in ordered)),
        columns(tables.SITES, sites),
        site_names,
        columns(tables.SERVERS, [{"qkey": qkey} for qkey in SERVERS]),
        segment,
        {url: row for row, (url, _row) in enumerate(ordered)},
        {names.contrib(1): contrib_file(), names.journal(1): journal_file(), names.PLAN: plan_file()},
    )


def contrib_file() -> bytes:
    """Two blocks, of one record each."""
    norm, path, site = (np.array([half], np.uint64) for half in PRINTS.of(parse("http://a.example/linked")))
    u4, u2, u1 = np.zeros(1, np.uint32), np.zeros(1, np.uint16), np.zeros(1, np.uint8)
    block = Block(norm, path, site, u4, u4, u2, u2, u1, [b"/linked"], site, norm, [b"http://a.example"], site, path, 0)
    return pack_frame(FrameKind.CONTRIB, 1, contrib.encode(block)) * 2


def journal_file() -> bytes:
    return pack_frame(FrameKind.JOURNAL, 3, np.zeros(3, tables.JOURNAL).tobytes())


def plan_file() -> bytes:
    return pack_frame(FrameKind.PLAN, 3, np.zeros(3, tables.PLAN).tobytes())


def publish(db: Database, made: Content, leave_out: str = "", shorter: str = "") -> State:
    """The content as state 2, with checksums that are right."""
    with db.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(2, made.phase), NOW)
        builder.write(f"{names.OBJECTS}/{names.segment(1)}", made.segment)
        for table, values in (("index", made.index), ("sites", made.sites), ("servers", made.servers)):
            for name, column in values.items():
                if f"{table}/{name}" != leave_out:
                    builder.write_table(table, {name: column[:-1] if f"{table}/{name}" == shorter else column})
        builder.write_site_names(name.encode() for name in made.site_names)
        for path, data in made.files.items():
            builder.write(path, data)
        builder.change(**({"segments": 2, "contribs": 2} | made.control))
        return builder.publish({})


def keep_all(db: Database) -> State:
    """State 3, every file of it shared with state 2."""
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(3, "closed"), NOW)
        builder.keep(path for path in parent.control.files if path != names.REPORT)
        return builder.publish({})


def flip(path: Path, offset: int) -> None:
    mode = path.stat().st_mode
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    with path.open("r+b") as file:  # in place: the states go on sharing it
        file.write(data)
    path.chmod(mode)
