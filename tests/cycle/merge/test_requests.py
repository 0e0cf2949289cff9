"""Requests as anyone may drop them: a bad line is reported in few words and skipped, the others count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from shepherd.cycle.merge.edits import Op
from shepherd.filters import parse_filter
from shepherd.store.state.inbox import MOST_LINE_BYTES, InboxItem
from tests.support import inboxes
from tests.support.inboxes import Taken

NAME = "1790000000000-host-77-1"
GOOD = {"op": "insert", "url": "http://a.example/"}


def read(tmp_path: Path, data: bytes) -> Taken:
    path = tmp_path / f"{NAME}.req"
    path.write_bytes(data)
    return inboxes.take([InboxItem(NAME, path)], parse_filter("reject ext zip\n"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "Expecting"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"op": "insert", "url": ' + b"[" * 100_000, "nested too deeply"),
        (b"7", "not a request"),
        (b"null", "not a request"),
        (json.dumps(GOOD | {"op": "remove"}).encode(), "not a request"),
        (json.dumps(GOOD | {"op": "set"}).encode(), "nothing to set"),
        (json.dumps(GOOD | {"op": "set", "frequency": 3}).encode(), "frequency 3 is not 1, 2 or 4"),
        (json.dumps(GOOD | {"op": "set", "pinned": 1}).encode(), "pinned 1 is neither true nor false"),
        (json.dumps(GOOD | {"op": "set", "frequency": True}).encode(), "frequency True is not 1, 2 or 4"),
        (json.dumps(GOOD | {"op": "set", "frequency": 2.0}).encode(), "frequency 2.0 is not 1, 2 or 4"),
        (json.dumps(GOOD | {"op": "delete", "purge": "yes"}).encode(), "purge 'yes' is neither true nor false"),
        (json.dumps(GOOD | {"op": "delete", "purge": 1}).encode(), "purge 1 is neither true nor false"),
        (json.dumps(GOOD | {"pinned": "yes"}).encode(), "pinned 'yes' is neither true nor false"),
        (json.dumps(GOOD | {"op": "set", "weight": -1}).encode(), "weight -1 is not from 0 to 65535"),
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
def test_bad_line_is_reported_shortly_and_skipped(tmp_path: Path, line: bytes, said: str) -> None:
    good = json.dumps(GOOD).encode()
    found = read(tmp_path, good + b"\n" + line + b"\n\n" + good)
    assert found.urls == ["http://a.example/"] * 2
    (told,) = found.bad
    assert told.startswith(f"{NAME}.req line 2: ")
    assert said in told
    assert len(told) < 500


def test_line_ends_only_at_a_line_feed(tmp_path: Path) -> None:
    by = "someone\u2028\x85 or other"
    found = read(tmp_path, json.dumps(GOOD | {"by": by}, ensure_ascii=False).encode() + b"\r\n")
    assert (len(found.urls), found.bad) == (1, [])


def test_line_is_read_no_further_than_a_request_may_reach(tmp_path: Path) -> None:
    good = json.dumps(GOOD).encode()
    found = read(tmp_path, good + b"\n" + b"{" + b" " * (3 * MOST_LINE_BYTES) + good[1:] + b"\n" + good)
    assert found.urls == ["http://a.example/"] * 2
    (told,) = found.bad
    assert told.startswith(f"{NAME}.req line 2: ")


def lines(*requests: Mapping[str, object]) -> bytes:
    return b"".join(json.dumps(request).encode() + b"\n" for request in requests)


def test_later_of_insert_and_deletion_counts_and_a_purge_wins(tmp_path: Path) -> None:
    delete, other = GOOD | {"op": "delete"}, GOOD | {"url": "http://b.example/"}
    found = read(tmp_path, lines(GOOD, delete, other))
    assert found.urls == ["http://b.example/"]
    assert found.edits["op"].tolist() == [Op.DELETE]
    found = read(tmp_path, lines(delete, GOOD))
    assert found.urls == ["http://a.example/"]
    assert len(found.edits) == 0
    found = read(tmp_path, lines(GOOD, delete, GOOD, delete | {"purge": True}))
    assert found.edits["op"].tolist() == [Op.DELETE, Op.PURGE]
    assert found.urls == []


def test_purge_wins_over_an_insert_beside_it(tmp_path: Path) -> None:
    purge = GOOD | {"op": "delete", "purge": True}
    for asked in ((purge, GOOD), (GOOD, purge)):
        found = read(tmp_path, lines(*asked))
        assert (found.edits["op"].tolist(), found.urls) == ([Op.PURGE], [])
        assert found.bad == ["http://a.example/ is not inserted: another request purges it"]


def test_root_pages_of_two_sites_are_two_documents(tmp_path: Path) -> None:
    found = read(tmp_path, lines(GOOD | {"op": "delete"}, GOOD | {"url": "https://a.example/"}))
    assert (len(found.urls), len(found.edits)) == (1, 1)
    page = {"url": "http://a.example/x"}
    found = read(tmp_path, lines(GOOD | page | {"op": "delete"}, GOOD | {"url": "https://www.a.example/x"}))
    assert (len(found.urls), len(found.edits)) == (1, 0)


def test_sites_of_one_class_are_one(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.req"
    path.write_bytes(lines(GOOD | {"op": "delete", "url": "http://b.example/x"}, GOOD | {"url": "http://a.example/x"}))
    found = inboxes.take([InboxItem(NAME, path)], parse_filter(""), equiv="a.example b.example\n")
    assert (len(found.urls), len(found.edits)) == (1, 0)


def test_set_becomes_one_edit_for_each_setting_with_its_time(tmp_path: Path) -> None:
    asked = GOOD | {"op": "set", "weight": 7, "section": 2, "frequency": 4, "pinned": False}
    found = read(tmp_path, lines(asked, GOOD | {"op": "refresh"}))
    said = found.edits[["op", "value", "time"]].tolist()
    assert said == [
        (Op.WEIGHT, 7, 1_790_000_000),
        (Op.SECTION, 2, 1_790_000_000),
        (Op.FREQUENCY, 4, 1_790_000_000),
        (Op.PINNED, 0, 1_790_000_000),
        (Op.REFRESH, 0, 1_790_000_000),
    ]
