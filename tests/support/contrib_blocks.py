"""Small values of the formats, for tests that only need some."""

from __future__ import annotations

import numpy as np

from shepherd.formats.contrib import Block


def a_block(count: int = 5) -> Block:
    numbers = np.arange(count, dtype="<u8")
    return Block(
        norm=numbers + 100,
        path=numbers + 200,
        site=numbers % 2 + 300,
        lastmod=np.zeros(count, "<u4"),
        parent=np.zeros(count, "<u4"),
        parent_weight=np.full(count, 7, "<u2"),
        flags=np.zeros(count, "<u2"),
        section=np.zeros(count, "u1"),
        texts=[b"/page/%d" % n for n in range(count)],
        sites=np.array([300, 301], "<u8"),
        norms=np.array([100, 101], "<u8"),
        names=[b"http://a.example", b"http://b.example"],
        parents_site=np.array([9], "<u8"),
        parents_path=np.array([8], "<u8"),
        filter_version=77,
    )
