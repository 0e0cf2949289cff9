"""Requests as anyone may drop them: a bad line is told in few words and skipped, the others count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shepherd.batch.requests import Requests, read_requests
from shepherd.config import Config
from shepherd.filters import parse_filter
from shepherd.store.inbox import Item

NAME = "1790000000000-host-77-1"
GOOD = {"op": "insert", "url": "http://a.example/"}


def read(tmp_path: Path, data: bytes) -> Requests:
    path = tmp_path / f"{NAME}.req"
    path.write_bytes(data)
    return read_requests([Item(NAME, path)], parse_filter("reject ext zip\n"), Config())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "Expecting"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"op": "insert", "url": ' + b"[" * 100_000, "nested too deeply"),
        (b"7", "not a request"),
        (b"null", "not a request"),
        (json.dumps(GOOD | {"op": "delete"}).encode(), "not a request"),
        (json.dumps(GOOD | {"url": 7}).encode(), "not a request"),
        (json.dumps(GOOD | {"weight": True}).encode(), "weight True is not from 0 to 65535"),
        (json.dumps(GOOD | {"weight": 65_536}).encode(), "weight 65536 is not"),
        (json.dumps(GOOD | {"weight": 1.5}).encode(), "weight 1.5 is not"),
        (json.dumps(GOOD | {"weight": "x" * 100_000}).encode(), "weight 'xxx"),
        (json.dumps(GOOD | {"weight": [[1]] * 100_000}).encode(), "weight [["),
        (b'{"op": "insert", "url": "http://a.example/", "weight": ' + b"9" * 5_000 + b"}", "integer string conversion"),
        (json.dumps(GOOD | {"url": "http://a.example/ "}).encode(), "blank at column 18"),
        (json.dumps(GOOD | {"url": "http://a.example/x.zip"}).encode(), "rejected by filter line 1"),
        (json.dumps(GOOD | {"url": "http://" + "x" * 100_000}).encode(), ""),
        (json.dumps(GOOD | {"url": "x" * 100_000}).encode(), "not an absolute URL"),
        (json.dumps(GOOD | {"url": "y" * 100_000 + "://x"}).encode(), ""),
        (b'{"op": "insert", "url": "\\ud800"}', "not an absolute URL"),
        (b"\xff\xfe", "Expecting value"),
        (bytes(200), "Expecting value"),
    ],
)
def test_bad_line_is_told_shortly_and_skipped(tmp_path: Path, line: bytes, said: str) -> None:
    good = json.dumps(GOOD).encode()
    found = read(tmp_path, good + b"\n" + line + b"\n\n" + good)
    assert [url.href for url in found.urls] == ["http://a.example/"] * 2
    (told,) = found.bad
    assert told.startswith(f"{NAME}.req line 2: ")
    assert said in told
    assert len(told) < 500


def test_line_ends_only_at_a_line_feed(tmp_path: Path) -> None:
    by = "someone\u2028\x85 or other"
    found = read(tmp_path, json.dumps(GOOD | {"by": by}, ensure_ascii=False).encode() + b"\r\n")
    assert (len(found.urls), found.bad) == (1, [])
