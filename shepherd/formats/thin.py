"""Thin buckets, many at a time: the same bytes as `bucket.thin` makes one by one, in a fifth of the time.

Headers are made as columns; what is left for each bucket is to lay its pieces together and to take its checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import mmh3
import numpy as np

from shepherd.formats.bucket import HEAD, HEADER, MAGIC, UNCHECKED, V33, BucketFlag
from shepherd.formats.check import SEED, check64
from shepherd.formats.tables import U64

# The fixed header without its checksums, and the length of the first attribute, which follows them.
_FRONT: Final = np.dtype([*((name, HEADER[name].str) for name in UNCHECKED), ("url_bytes", "<u4")])
_NO_BODY: Final = check64(b"").to_bytes(8, "little")
_ATTRIBUTE: Final = 5  # bytes beside its contents: length and letter


def pack_thin(site: U64, path: U64, time_ms: int, state: int, names: Sequence[bytes], texts: Sequence[bytes]) -> list[bytes]:
    """One bucket for each footprint; its URL is the name of a site and a path."""
    front = np.zeros(len(site), _FRONT)
    front["magic"], front["type"], front["flags"] = MAGIC, V33, BucketFlag.THIN
    front["state"], front["time_ms"], front["site"], front["path"] = state, time_ms, site, path
    url_bytes = np.fromiter(map(len, names), np.uint32, len(site)) + np.fromiter(map(len, texts), np.uint32, len(site))
    front["url_bytes"], front["attribute_bytes"] = url_bytes, url_bytes + _ATTRIBUTE
    fronts, digest, head, buckets = front.tobytes(), mmh3.mmh3_x64_128_digest, HEAD.size, []
    width = _FRONT.itemsize
    for start, name, text in zip(range(0, len(fronts), width), names, texts, strict=True):
        checked = fronts[start : start + width] + name + text + b"U"
        buckets.append(checked[:head] + digest(checked, SEED)[:8] + _NO_BODY + checked[head:])
    return buckets
