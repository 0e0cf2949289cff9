"""Every decoder of bytes that someone else may have written, as a function that must give a value or a ShepherdError.

tests/formats/test_decoders.py feeds them from hypothesis, tests/fuzz/decoders.py from atheris. What a checksum protects is here
twice: as it is, and resealed, with checksums that hold: damage is not the only way to wrong bytes, a writer can be wrong too.
"""

from __future__ import annotations

import dataclasses
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shepherd import urls
from shepherd.equiv import parse_equiv
from shepherd.errors import BadUrl
from shepherd.filters import parse_filter
from shepherd.formats import bucket, coding, contrib, frame
from shepherd.formats.check import BLOCK, check64
from shepherd.formats.checkpoint import Checkpoint, Mark, unpack_checkpoint
from shepherd.formats.control import Control, FileEntry, parse_control
from shepherd.formats.facts import facts_of, sound_bodies, walk_segment
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import JOURNAL, PLAN
from shepherd.store.state import logs
from shepherd.store.state.columns import Column
from shepherd.store.state.inbox import InboxItem
from shepherd.store.state.lease import parse_lease
from shepherd.urls import parse, qkey_of_address
from shepherd.wire import messages as wire
from tests.golden import segments
from tests.support import inboxes
from tests.support.contrib_blocks import a_block

LIMIT = 1 << 16  # of decoded bodies
ITEM = "1790000000000-host-77-1"
DEEP = b"[" * 100_000


@dataclass(frozen=True)
class Target:
    decode: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


# --- buckets ----------------------------------------------------------------------------------------------------


def read_bucket(data: bytes) -> object:
    head = bucket.parse(data, with_body=False)
    whole = bucket.parse(data)
    assert whole.header == head.header and whole.attributes == head.attributes
    body = whole.body(LIMIT)
    assert len(body) <= LIMIT
    return whole.url, body


def read_segment(data: bytes) -> object:
    return [
        (facts_of(data, 1, walk.offsets, lambda sites, urls: sites).tolist(), sound_bodies(data, walk.offsets).tolist())
        for walk in walk_segment(data, len(data))
    ]


def resealed_bucket(data: bytes) -> bytes:
    """The bytes as a bucket whose magic, lengths and checksums hold, whatever else it says."""
    head = bytearray(data[:48].ljust(48, b"\0"))
    rest = data[64:]
    table = rest[: min(int.from_bytes(head[8:12], "little"), len(rest))]
    body = rest[len(table) :]
    head[:4] = bucket.MAGIC
    head[8:16] = struct.pack("<II", len(table), len(body))
    return bytes(head) + struct.pack("<QQ", check64(bytes(head), table), check64(body)) + table + body


def bucket_seeds() -> tuple[bytes, ...]:
    plain = [write(one) for one in segments.DOCUMENTS[:6] for write in segments.PLAIN.values()]
    thin = [segments.v33(one) for one in segments.DOCUMENTS[6:]]
    return *plain, *thin, *(segments.v34(one, coder) for one in segments.COMPRESSED[:2] for coder in segments.CODERS)


# --- logs -------------------------------------------------------------------------------------------------------


def read_log(data: bytes) -> object:
    found = list(frame.frames(data))
    assert sum(one.end - one.offset for one in found) <= len(data)
    return found


def read_records(kind: FrameKind, dtype: np.dtype[np.void]) -> Callable[[bytes], object]:
    return lambda data: [logs.records_of(one, kind, dtype, Path("log")).tolist() for one in frame.frames(data)]


def resealed_frame(data: bytes) -> bytes:
    head = bytearray(data[:16].ljust(16, b"\0"))
    head[:8] = frame.MAGIC + struct.pack("<I", len(data[24:]))
    return bytes(head) + struct.pack("<Q", check64(bytes(head), data[24:])) + data[24:]


def log_seeds() -> tuple[bytes, ...]:
    rows = {kind: np.zeros(2, dtype).tobytes() for kind, dtype in ((FrameKind.JOURNAL, JOURNAL), (FrameKind.PLAN, PLAN))}
    journal, plan = (frame.pack_frame(kind, 2, data) for kind, data in rows.items())
    return journal, plan, journal + journal, frame.pack_frame(FrameKind.END, 0, b"")


def read_contrib(data: bytes) -> object:
    keys, whole = contrib.decode(data, with_texts=False), contrib.decode(data)
    assert len(keys) == len(whole) == len(whole.texts)
    return [text.decode("ascii") for text in (*whole.texts, *whole.names)]


def contrib_seeds() -> tuple[bytes, ...]:
    return tuple(contrib.encode(a_block(count)) for count in (0, 1, 5, 200))


CHECKPOINTS = tuple(Checkpoint(1, 2, Mark(3, 4), Mark(5, 6), (Mark(7, 8),) * count).pack() for count in (0, 1, 3))


# --- control and columns ----------------------------------------------------------------------------------------


def resealed_control(data: bytes) -> bytes:
    body = data.rpartition(b"check ")[0]
    return body + f"check {check64(body):016x}\n".encode()


def control_seeds() -> tuple[bytes, ...]:
    fields = {field.name for field in dataclasses.fields(Control)}
    values = {"phase": "closed", "state": 3, "parent": "000003.reap", "now": 9, "key": bytes(16)}
    values |= dict.fromkeys(fields - values.keys() - {"applied", "files"}, 0)
    files = {"index/norm": FileEntry(8, 1), "objects/00000001": FileEntry(9, 2**64 - 1)}
    return Control(**values, applied=(ITEM,), files=files).pack(), Control(**values).pack()  # type: ignore[arg-type]


SCRATCH = tempfile.TemporaryDirectory(prefix="shepherd-decoders-")


def scratch() -> Path:
    return Path(SCRATCH.name)


def read_column(data: bytes) -> object:
    """A column of u16 whose length is in the first two bytes, and behind it its block table, which is as control says."""
    length = int.from_bytes(data[:2], "little")
    column, table = data[2 : 2 + length], data[2 + length :]
    (scratch() / "column").write_bytes(column)
    (scratch() / "column.check").write_bytes(table)
    found = Column(scratch() / "column", "<u2", FileEntry(length, check64(table)))
    return found[0 : len(found)].tolist()


def block_table(data: bytes) -> bytes:
    """The check64 of each block of a column."""
    return b"".join(check64(data[at : at + BLOCK]).to_bytes(8, "little") for at in range(0, len(data), BLOCK))


def column_seeds() -> tuple[bytes, ...]:
    columns = (np.arange(100, dtype="<u2").tobytes(), b"", b"\0\0")
    return tuple(struct.pack("<H", len(data)) + data + block_table(data) for data in columns)


# --- texts ------------------------------------------------------------------------------------------------------


def read_lease(data: bytes) -> object:
    lease = parse_lease(ITEM, data)
    assert lease is None or {type(value) for value in dataclasses.asdict(lease).values()} == {int, str}
    return lease


NARROW = parse_filter("reject ext zip\nstrip utm_*\n")


def read_request_file(data: bytes) -> inboxes.Taken:
    path = scratch() / f"{ITEM}.req"
    path.write_bytes(data)
    found = inboxes.take([InboxItem(ITEM, path)], NARROW)
    assert all(parse(url).href == url and NARROW.clean(url) == url for url in found.urls)
    assert sum(map(len, found.bad)) <= 2_000 * len(found.bad)
    return found


def read_filter(data: bytes) -> object:
    rules = parse_filter(data.decode("utf-8", "replace"))
    href, qkey = "http://a.example/x.zip?utm_x=1&y", qkey_of_address("10.0.0.1")
    return rules.clean(href), rules.why(href, qkey), rules.section_of(href), rules.site_settings("http://a.example", qkey)


def read_equiv(data: bytes) -> object:
    table = parse_equiv(data.decode("utf-8", "replace"))
    norm = table.norm_of("http://www.a.example")
    assert table.representative(norm) == norm
    return norm


def read_url(data: bytes) -> object:
    text = data.decode("utf-8", "surrogateescape")
    try:
        url = urls.parse(text)
    except BadUrl:
        url = urls.join("http://a.example/b/c", text)
    assert urls.parse(url.href, strict=True) == url
    return url


FILTER = b"accept host a.example\nreject glob http://*.zip\nreject regex [?&](a|b)=\nreject ext pdf\nstrip utm_* x\n"
SETTINGS = b"set min_delay 2.5 host a.example\nset soft_limit 5 glob http://*\ndefault reject\n"
RANGES = (
    b"reject address 10.0.0.0/8 2001:db8::1\nreject repeats 3\nreject depth 9\nreject length 99\ngroup g address 10.0.0.0/24\n"
)
SECTIONS = b"section pdf ext pdf zip\nsection 77 host a.example\nset section html glob *\nset robots ignore host a.example\n"
EQUIV = b"a.example b.example:8080 # x\napart c.example d.example:81\n"
REQUEST = b'{"op": "insert", "url": "http://a.example/", "weight": 40000, "pinned": true, "by": "user@host"}\n'
HEAVY = b'{"op": "insert", "url": "http://a.example/", "weight": "' + b"9" * 10_000 + b'"}\n'
LEASE = b'{"expires": 1790003600, "owner": "a", "pid": 77, "purpose": "b", "state": 124}\n'


def read_coded(encoding: str) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        decoded, _truncated = coding.decode(data, encoding, LIMIT)
        assert len(decoded) <= LIMIT
        return decoded

    return read


def coded_seeds(name: str) -> tuple[bytes, ...]:
    encode = segments.CODERS[name][1]
    return encode(segments.MANY_LINES), encode(b""), encode(b"x") * 3, encode(bytes(10 * LIMIT))


def wire_seeds() -> tuple[bytes, ...]:
    messages = (wire.Bye("why"), wire.Welcome(1, 2, 3, [4]), wire.Resolve(1, 2, "http://a.example"), wire.Robots(1, 200, b"x"))
    return tuple(wire.encode(message)[4:] for message in messages)


def sealing(reseal: Callable[[bytes], bytes], decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    return lambda data: decode(reseal(data))


TARGETS: dict[str, Target] = {
    "bucket": Target(read_bucket, bucket_seeds()),
    "bucket resealed": Target(sealing(resealed_bucket, read_bucket), bucket_seeds()),
    "segment": Target(read_segment, (*bucket_seeds(), b"".join(bucket_seeds()[:6]))),
    "segment resealed": Target(sealing(resealed_bucket, read_segment), bucket_seeds()),
    "frame": Target(read_log, log_seeds()),
    "journal resealed": Target(sealing(resealed_frame, read_records(FrameKind.JOURNAL, JOURNAL)), log_seeds()),
    "plan resealed": Target(sealing(resealed_frame, read_records(FrameKind.PLAN, PLAN)), log_seeds()),
    "contrib": Target(read_contrib, contrib_seeds()),
    "checkpoint": Target(unpack_checkpoint, CHECKPOINTS),
    "control": Target(lambda data: parse_control(data, "control"), control_seeds()),
    "control resealed": Target(lambda data: parse_control(resealed_control(data), "control"), control_seeds()),
    "column": Target(read_column, column_seeds()),
    "lease": Target(read_lease, (LEASE, DEEP)),
    "request": Target(read_request_file, (REQUEST, REQUEST * 3, DEEP, HEAVY)),
    "filter": Target(
        read_filter, (FILTER, SETTINGS, RANGES, SECTIONS, b"reject regex (a{1000}){1000}", b"reject regex (" * 5_000)
    ),
    "url-equiv": Target(read_equiv, (EQUIV,)),
    "url": Target(read_url, (b"HTTP://www.A.example:80/b/../c?d#e", b"//[::1]:8080/%2e\\x", "http://ü.example/ü".encode())),
    "wire": Target(wire.decode, wire_seeds()),
    **{f"body {name}": Target(read_coded(name), coded_seeds(name)) for name in ("gzip", "br", "deflate")},
    "body zstd": Target(read_coded("zstd"), coded_seeds("zstd")),
}
