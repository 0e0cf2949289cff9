"""A harvest filled by a program of one's own: documents from wherever, stored for what a plan asks for (docs/api.md).

A reap makes this of exchanges with servers; here it is made of bytes that somebody already has: no server is contacted, so none
has to wait. Invariant: what was stored before the last checkpoint is not wanted again, however the program ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import numpy as np

from shepherd.errors import UsageError
from shepherd.formats import bucket
from shepherd.formats.tables import JOURNAL, Kind, Reason, Result
from shepherd.store.disk import fsio, names
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest

SEGMENT_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class PlannedPage:
    """A page that the plan asks for."""

    row: int  # of the plan
    url: str


@dataclass(frozen=True)
class Page:
    """A document as its server gave it."""

    body: bytes
    time_ms: int  # when it was fetched
    status: int = 200
    content_type: str = "text/html"
    headers: bytes = b""


class Gathering:
    """One harvest of a `.reap` directory, begun, or continued from its last checkpoint.

    with Gathering(state, "import") as gathering:
        for planned in gathering.planned_pages():
            gathering.store(planned, Page(...))
        gathering.end(now_ms)

    Left without `end`, what came after the last checkpoint is lost, and the next Gathering of this name continues from there. A
    page that is wanted and not stored stays as it was, to be planned again.
    """

    def __init__(self, state: State, name: str, compress: str = "lz4", segment_bytes: int = SEGMENT_BYTES) -> None:
        if state.name.phase != "reap" or not names.is_harvest(name):
            raise UsageError(f"{state.name}: no harvest {name!r} can be there: that takes a .reap directory and a plain name")
        directory = state.path / names.HARVESTS
        if not directory.exists():
            fsio.make_directory(directory)
        self._state, self._compress, self._plan = state, compress, state.plan()
        self.harvest = Harvest(directory / name, segment_bytes)

    def planned_pages(self) -> Iterator[PlannedPage]:
        """The pages of the plan that this harvest has not stored, best first."""
        rows_journalled = set(self.harvest.journalled()["plan_row"].tolist())
        for row in np.flatnonzero(self._plan["kind"] == Kind.PAGE).tolist():
            if row not in rows_journalled:
                yield PlannedPage(row, self._state.objects.head(int(self._plan["oid"][row])).url)

    def store(self, planned: PlannedPage, page: Page) -> None:
        """Keep a page: its bucket and its journal record. Durable after the next checkpoint."""
        digest = hashlib.sha256(page.body).digest()
        data = self._bucket(planned, page, digest)
        plan_record = self._plan[planned.row]
        record = np.zeros(1, JOURNAL)
        for name in ("norm", "path", "site", "qkey", "section"):
            record[name] = plan_record[name]
        values = {
            "answered": plan_record["site"],
            "oid": self.harvest.store(data),
            "digest": int.from_bytes(digest[:8], "little"),
            "start_ms": page.time_ms,
            "end_ms": page.time_ms,
            "plan_row": planned.row,
            "body_bytes": len(page.body),
            "stored_bytes": len(data),
            "status": page.status,
            "kind": Kind.PAGE,
            "result": Result.STORED,
            "reason": Reason.GATHERED,
        }
        for name, value in values.items():
            record[name] = value
        self.harvest.journal(record.tobytes())

    def _bucket(self, planned: PlannedPage, page: Page, digest: bytes) -> bytes:
        codec, stored = bucket.compress(page.body, self._compress)
        attributes = [
            ("U", planned.url.encode("ascii")),
            ("S", f"HTTP/1.1 {page.status}".encode("ascii")),
            ("H", page.headers),
            ("T", page.content_type.encode()),
            ("D", digest),
        ]
        return bucket.pack(
            site=int(self._plan["site"][planned.row]),
            path=int(self._plan["path"][planned.row]),
            time_ms=page.time_ms,
            state=self._state.number,
            attributes=[(letter, text) for letter, text in attributes if text],
            body=stored,
            codec=codec,
            plain_bytes=len(page.body),
        )

    def checkpoint(self, now_ms: int) -> None:
        """Make all that was stored durable: a crash costs only what comes after."""
        self.harvest.checkpoint(now_ms)

    def end(self, now_ms: int) -> None:
        """The last checkpoint; shep-cork can now take the harvest in."""
        self.harvest.end(now_ms)

    def __enter__(self) -> Gathering:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.harvest.close()
