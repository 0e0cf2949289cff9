"""Header lines as every reader of them takes them apart."""

from __future__ import annotations

import pytest

from shepherd.formats import httphead


@pytest.mark.parametrize(
    ("headers", "pairs"),
    [
        (b'Content-Type: text/html\r\nETag: "1"\n', [("Content-Type", "text/html"), ("ETag", '"1"')]),
        (
            b"X-Name: \xc3\x85b: c\r\nX-Two: a\x0bb\x0cc\x1cd: e\r\n",
            [("X-Name", "\xc3\x85b: c"), ("X-Two", "a\x0bb\x0cc\x1cd: e")],
        ),
        (b"Name : value \t\r\nno colon\r\n: nameless\r\n", [("Name", "value"), ("", "nameless")]),
        (b"A: 1\r\n B: 2\r\n\tC: 3\r\n", [("A", "1")]),
        (b"A: \xa0\r\n", [("A", "\xa0")]),
        (b"", []),
    ],
)
def test_line_ends_at_a_line_feed_and_nowhere_else(headers: bytes, pairs: list[tuple[str, str]]) -> None:
    assert httphead.pairs(headers) == pairs
