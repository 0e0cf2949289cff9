"""Every hexdump of docs/formats.md is what the code writes, or, for what is only read, reads as the page says."""

from __future__ import annotations

import struct
from pathlib import Path

import lz4.frame
import numpy as np
import pytest

from shepherd.filters import parse_filter
from shepherd.formats import bucket, contrib, frame
from shepherd.formats.bucket import Codec
from shepherd.formats.check import check64
from shepherd.formats.checkpoint import Checkpoint, Mark, unpack_checkpoint
from shepherd.formats.contrib import Block
from shepherd.formats.feedback import FEEDBACK
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import JOURNAL, NO_OID, PLAN, ContribFlag, JournalFlag, Kind, Reason, Result, Why
from shepherd.store.disk import names
from shepherd.store.state import inserts
from shepherd.store.state.columns import Column, ColumnWriter
from shepherd.store.state.inbox import Inbox
from shepherd.store.state.lease import Lease, Leases
from shepherd.urls import qkey_of_address
from tests.golden import segments
from tests.golden.segments import Document
from tests.support.hexdumps import examples, hexdump

SITE, PATH, NORM = 0x1111111111111111, 0x2222222222222222, 0x3333333333333333
URL = "http://a.example/"
OLD = {"S": b"HTTP/1.0 200 OK", "m": struct.pack("<I", 7)}
OLD_V30 = Document(URL.encode(), OLD, b"hi\n")
OLD_V2 = Document(URL.encode(), OLD, b"hi\n\x00\xff")
BODY = b"a" + b"b" * 39
REQUEST = {"op": "insert", "url": URL, "weight": 40_000, "pinned": False, "by": "user@host"}
LEASE = Lease("1790000000000-host-77-1", 124, "user@host", "shep list", 77, 1_790_003_600)


def compressed() -> bytes:
    stored = lz4.frame.compress(BODY)
    known = {"site": SITE, "path": PATH, "time_ms": 1000, "state": 1}
    return bucket.pack(**known, attributes=[("U", URL.encode())], body=stored, codec=Codec.LZ4, plain_bytes=len(BODY))


def journal() -> bytes:
    row = np.zeros(1, JOURNAL)
    values = {"norm": NORM, "path": PATH, "site": SITE, "answered": SITE, "qkey": qkey_of_address("192.0.2.7"), "digest": 0x44}
    values |= {"oid": 1 << 32, "start_ms": 1000, "end_ms": 1250, "plan_row": 3, "download_ms": 250, "body_bytes": 40}
    values |= {"stored_bytes": 120, "wire_bytes": 300, "status": 200, "flags": JournalFlag.CONTACTED, "reaper": 1}
    values |= {"kind": Kind.PAGE, "result": Result.STORED, "reason": Reason.GATHERED}
    for name, value in values.items():
        row[name] = value
    return frame.pack_frame(FrameKind.JOURNAL, 1, row.tobytes())


def plan() -> bytes:
    row = np.zeros(1, PLAN)
    values = {"norm": NORM, "path": PATH, "site": SITE, "qkey": qkey_of_address("192.0.2.7"), "oid": NO_OID, "row": 9}
    values |= {"priority": 65_536, "weight": 40_000, "flags": 2, "kind": Kind.PAGE, "why": Why.NEW}
    for name, value in values.items():
        row[name] = value
    return frame.pack_frame(FrameKind.PLAN, 1, row.tobytes())


def contribution() -> bytes:
    block = Block(
        norm=np.array([NORM], "<u8"),
        path=np.array([PATH], "<u8"),
        site=np.array([SITE], "<u8"),
        lastmod=np.zeros(1, "<u4"),
        parent=np.zeros(1, "<u4"),
        parent_weight=np.array([40_000], "<u2"),
        flags=np.array([ContribFlag.INSERTED | ContribFlag.OWN_WEIGHT], "<u2"),
        section=np.zeros(1, "u1"),
        texts=[b"/page?x=1"],
        sites=np.array([SITE], "<u8"),
        norms=np.array([NORM], "<u8"),
        names=[b"http://a.example"],
        parents_site=np.zeros(1, "<u8"),
        parents_path=np.zeros(1, "<u8"),
        filter_version=0x55,
    )
    return frame.pack_frame(FrameKind.CONTRIB, 1, contrib.encode(block))


def feedback() -> bytes:
    return frame.pack_frame(FrameKind.FEEDBACK, 1, np.array([(SITE, PATH, 50_000, 1, 0)], FEEDBACK).tobytes())


CHECKPOINT = Checkpoint(1, 2000, Mark(152, 0x66), Mark(0, check64(b"")), (Mark(86, 0x77),))


def checkpoint() -> bytes:
    return frame.pack_frame(FrameKind.CHECKPOINT, 1, CHECKPOINT.pack())


# --- what is written --------------------------------------------------------------------------------------------


def test_buckets() -> None:
    thin, tombstone, full = examples("v3.3")
    assert thin == bucket.thin(SITE, PATH, 1000, 1, URL)
    assert tombstone == bucket.tombstone(SITE, PATH, 2000, 2, URL, "user@host")
    one = bucket.parse(full)  # only read: another version of lz4 may write other bytes
    assert (one.header.type, one.header.codec, one.url, one.body()) == (bucket.V33_COMPRESSED, Codec.LZ4, URL, BODY)


@pytest.mark.parametrize(
    ("title", "written"),
    [
        ("Journal record", journal),
        ("Plan record", plan),
        ("Contrib block", contribution),
        ("Checkpoint", checkpoint),
        ("Feedback", feedback),
    ],
)
def test_frames(title: str, written: object) -> None:
    assert callable(written)
    assert examples(title) == [written()]


def test_column_and_its_block_table(tmp_path: Path) -> None:
    writer = ColumnWriter(tmp_path / "weight", "<u2")
    writer.append(np.array([40_000, 39_000, 0]))
    entry = writer.finish()
    writer.close()
    table = (tmp_path / f"weight{names.CHECK}").read_bytes()
    assert examples("Columns") == [(tmp_path / "weight").read_bytes(), table]
    assert entry.check == check64(table)
    assert Column(tmp_path / "weight", "<u2", entry)[0:3].tolist() == [40_000, 39_000, 0]


def test_number_of_a_group() -> None:
    rules = parse_filter("group cdn host a.example")
    number = rules.site_settings("http://a.example").group
    assert number == check64(b"cdn") | 1 << 63
    assert examples("group") == [struct.pack("<Q", number)]


def test_request(tmp_path: Path) -> None:
    assert examples("Requests") == [Inbox(tmp_path).drop(LEASE.name, [REQUEST]).read_bytes()]


def test_trailer_of_inserted_urls() -> None:
    assert examples("Inserted URLs") == [inserts.pack_trailer(inserts.Trailer(1, "user@host"))]


def test_lease(tmp_path: Path) -> None:
    Leases(tmp_path).write(LEASE)
    assert examples("Leases") == [(tmp_path / f"{LEASE.name}.lease").read_bytes()]
    assert Leases(tmp_path).all() == [LEASE]


# --- what is read -----------------------------------------------------------------------------------------------


def test_text_buckets_read_as_the_page_says() -> None:
    assert (examples("v3.0"), examples("v2")) == ([segments.v30(OLD_V30)], [segments.v2(OLD_V2)])
    for title, kind, written in (("v3.0", bucket.V30, OLD_V30), ("v2", bucket.V2, OLD_V2)):
        one = bucket.parse(examples(title)[0])
        assert (one.header.type, one.attributes, one.body()) == (kind, written.all, written.body)
        assert (one.header.site, one.header.path, one.header.time_ms) == (SITE, PATH, 1000)


def test_frames_read_as_the_page_says() -> None:
    (point,) = examples("Checkpoint")
    (one,) = frame.frames(point)
    assert (one.kind, unpack_checkpoint(one.payload)) == (FrameKind.CHECKPOINT, CHECKPOINT)
    (block,) = examples("Contrib block")
    (one,) = frame.frames(block)
    assert contrib.decode(one.payload).texts == [b"/page?x=1"]


def test_dump_is_written_as_the_page_does() -> None:
    assert hexdump(b"a\x00 b") == "0000  61 00 20 62                                      a..b\n"
