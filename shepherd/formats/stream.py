"""A stream of documents, as readers pull it over the network or from a file (docs/formats.md, "Streams").

Frames of rows, each followed by the buckets of these rows end to end, as they are stored; the last frame says that it is whole.
Bytes in, arrays and buckets out: what is damaged, cut off or no stream is Corruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.errors import Corruption
from shepherd.formats import bucket, frame
from shepherd.formats.bucket import Bucket
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import Records

MEDIA_TYPE: Final = "application/vnd.shepherd.documents"
BATCH_ROWS: Final = 1_024  # most in one frame
MAX_BUCKET: Final = bucket.HEADER_BYTES + (1 << 24) + (1 << 30)
ROW: Final = np.dtype(
    [
        ("site", "<u8"),
        ("path", "<u8"),
        ("norm", "<u8"),
        ("digest", "<u8"),
        ("length", "<u4"),
        ("gathered", "<u4"),
        ("checked", "<u4"),
        ("changed", "<u4"),
        ("touched", "<u4"),
        ("weight", "<u2"),
        ("status", "<u2"),
        ("flags", "<u2"),
        ("type", "u1"),
        ("section", "u1"),
        ("reason", "u1"),
        ("frequency", "u1"),
        ("what", "u1"),
        ("spare", "u1"),
    ]
)
COLUMNS: Final = tuple(name for name in ROW.names or () if name not in ("length", "what", "spare"))
END_RECORD: Final = np.dtype([("items", "<u8"), ("bytes", "<u8")])

Read = Callable[[int], bytes]  # so many bytes, fewer only at the end


def rows_frame(rows: Records) -> bytes:
    """The frame before the buckets of these rows: `length` says how long each is."""
    return frame.pack_frame(FrameKind.ROWS, len(rows), rows.tobytes())


def end_frame(items: int, bucket_bytes: int) -> bytes:
    """The end: how many rows and bytes of buckets this answer had; one that continues another counts its own."""
    return frame.pack_frame(FrameKind.STREAM_END, 1, np.array([(items, bucket_bytes)], END_RECORD).tobytes())


@dataclass(frozen=True)
class StreamItem:
    """A row and its bucket, whose bytes are still unchecked; a document that is gone has no bucket."""

    row: np.void  # one record of ROW
    data: bytes

    def bucket(self) -> Bucket:
        """Checked: a damaged one is Corruption, and so is one of another document than the row says."""
        return self._of_row(bucket.parse(self.data))

    def head(self) -> Bucket:
        """The same without its body: that one may be damaged."""
        return self._of_row(bucket.parse(self.data, with_body=False))

    def _of_row(self, document: Bucket) -> Bucket:
        if (document.header.site, document.header.path) != (int(self.row["site"]), int(self.row["path"])):
            raise Corruption("stream: a bucket is not that of its row")
        return document


def items(read: Read, most_bucket: int = MAX_BUCKET) -> Iterator[StreamItem]:
    """Every row of a stream with its bucket. It ends after the last frame; a stream that ends before it is Corruption.

    `most_bucket` is for whoever reads from a stranger: a longer one is not taken in.
    """
    count, total = 0, 0
    while True:
        kind, payload = _frame(read, most_bucket)
        if kind == FrameKind.STREAM_END:
            if payload != np.array([(count, total)], END_RECORD).tobytes():
                raise Corruption("stream: its end names another number of rows or bytes than came")
            return
        rows = np.frombuffer(payload, ROW)
        for row in rows:
            length = int(row["length"])
            data = _exactly(read, length) if length else b""
            count, total = count + 1, total + length
            yield StreamItem(row, data)


def _frame(read: Read, most_bucket: int) -> tuple[FrameKind, bytes]:
    head = _exactly(read, frame.HEADER.size)
    magic, length, kind, _zero, records, _check = frame.HEADER.unpack(head)
    size = {FrameKind.ROWS: ROW.itemsize, FrameKind.STREAM_END: END_RECORD.itemsize}.get(kind)
    if magic != frame.MAGIC or size is None or not 0 < records <= BATCH_ROWS or length != records * size:
        raise Corruption("stream: no frame where one should be")
    checked = frame.read_frame(head + _exactly(read, length), 0)
    if checked is None:
        raise Corruption("stream: a frame is damaged")
    payload = bytes(checked.payload)
    if kind == FrameKind.ROWS and int(np.frombuffer(payload, ROW)["length"].max()) > most_bucket:
        raise Corruption(f"stream: a bucket of more than {most_bucket:,} bytes")
    return FrameKind(kind), payload


def _exactly(read: Read, length: int) -> bytes:
    part = read(length)
    if len(part) == length:
        return part
    data = bytearray(part)  # grows with what comes, and not with what a row claims
    while part and len(data) < length:
        part = read(length - len(data))
        data += part
    if len(data) < length:
        raise Corruption("stream: it ends too early")
    return bytes(data)
