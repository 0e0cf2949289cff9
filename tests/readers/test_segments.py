"""Buckets read for a cleanup: whole windows, or only their fronts, with the same result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.cycle.cleanup.judge import judge
from shepherd.cycle.cleanup.survey import IndexWishes, survey
from shepherd.errors import Corruption
from shepherd.filters import parse_filter
from shepherd.formats import tables
from shepherd.readers import segments as cleanup_read
from shepherd.store.state.directory import State
from tests.golden import segments
from tests.golden.segments import Document
from tests.support import segment_states
from tests.support.segment_states import THIN, Sheep

WHOLE, FRONTS = 1 << 40, 0
BODY = b"a line of wool\n" * 200


def judged(state: State) -> tuple[list[bool], list[int]]:
    found = judge(state, survey(state, IndexWishes(), 3, 1), parse_filter("reject ext zip\n"), 3, 1, lambda _rows: None)
    return found.rejected.tolist(), found.plain.tolist()


def fill(path: Path) -> State:
    pages = [Sheep(f"http://a.example/{n}.{kind}", now=BODY) for n, kind in enumerate(("zip", "pdf", "html"))]
    flock = [*pages, Sheep("http://a.example/thin.zip", now=THIN), Sheep("http://a.example/empty", now=b"")]
    return segment_states.fill(path, flock, segment_bytes=100_000).closed()


def as_text(written: Callable[[Document], bytes]) -> Callable[[Sheep, bytes, int], bytes]:
    def body(one: Sheep, body: bytes, time: int) -> bytes:
        _norm, path, site = one.key
        return written(Document(one.url.encode(), {"D": hashlib.sha256(body).digest()}, body, 0, site, path, time * 1000, 2))

    return body


@pytest.mark.parametrize("written", [None, segments.v2, segments.v30], ids=["v3.3", "v2", "v3.0"])
def test_fronts_are_judged_like_whole_buckets(
    written: Callable[[Document], bytes] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if written is not None:
        monkeypatch.setattr(segment_states, "_body", as_text(written))
    state, told = fill(tmp_path), []
    for small in (WHOLE, FRONTS):
        monkeypatch.setattr(cleanup_read, "SMALL", small)
        told.append(judged(state))
    assert told[0] == told[1]
    rejected, plain = told[0]
    assert (sum(rejected), sum(plain)) == (2, 2 * len(BODY))


def test_damaged_attributes_are_seen_in_fronts_and_whole_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = fill(tmp_path)
    segment, offset = tables.split_oid(state.index["oid"].value(2))
    path = state.path / "objects" / f"{segment:08d}"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[offset + 70] ^= 1
    path.write_bytes(data)
    for small in (WHOLE, FRONTS):
        monkeypatch.setattr(cleanup_read, "SMALL", small)
        with pytest.raises(Corruption, match=f"{path} at {offset}: header or attributes are damaged"):
            judged(state)
