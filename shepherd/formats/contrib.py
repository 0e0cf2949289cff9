"""Contrib blocks: newly found URLs, keys first and texts last (docs/formats.md).

Merge reads keys and names; only record expands the texts, in one scan.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import lz4.block
import numpy as np

from shepherd.errors import Corruption
from shepherd.formats.check import Bytes
from shepherd.formats.tables import I64, U8, U16, U32, U64, Array

HEAD: Final = struct.Struct("<IIIIIIQ")
MAX_TEXT: Final = 1 << 28
_LZ4_MOST: Final = 255  # bytes that one byte can expand to


@dataclass(frozen=True)
class Block:
    """`texts[i]` is the path and query of record i; its site's name stands in `names`, at the place of site[i] in `sites`."""

    norm: U64
    path: U64
    site: U64
    lastmod: U32
    parent: U32
    parent_weight: U16
    flags: U16
    section: U8
    texts: list[bytes]
    sites: U64
    norms: U64
    names: list[bytes]
    parents_site: U64
    parents_path: U64
    filter_version: int

    def __len__(self) -> int:
        return len(self.norm)


KEYS: Final = (("norm", "<u8"), ("path", "<u8"), ("site", "<u8"), ("lastmod", "<u4"), ("parent", "<u4"))
REST: Final = (("parent_weight", "<u2"), ("flags", "<u2"), ("text_bytes", "<u2"))
_DTYPES: Final = {code: (np.dtype(code), np.dtype(code).itemsize) for code in ("<u8", "<u4", "<u2", "u1")}
_BEFORE_LENGTHS: Final = sum(np.dtype(dtype).itemsize for _name, dtype in (*KEYS, *REST[:-1]))  # of each record


def encode(block: Block) -> bytes:
    text = b"".join(block.texts)
    packed = lz4.block.compress(text, store_size=False)
    squeezed = len(packed) < len(text)
    stored = packed if squeezed else text
    sizes = (len(block), len(block.sites), len(block.parents_site), int(squeezed), len(text), len(stored))
    lengths = {"text_bytes": np.array([len(t) for t in block.texts], "<u2")}
    columns: list[Array] = [np.asarray(getattr(block, name), dtype) for name, dtype in KEYS]
    columns += [np.asarray(lengths[n] if n in lengths else getattr(block, n), dtype) for n, dtype in REST]
    columns.append(np.asarray(block.section, "u1"))
    tail: list[Array] = [np.asarray(a, "<u8") for a in (block.sites, block.norms)]
    parents: list[Array] = [np.asarray(a, "<u8") for a in (block.parents_site, block.parents_path)]
    return b"".join(
        (
            HEAD.pack(*sizes, block.filter_version),
            *(column.tobytes() for column in (*columns, *tail)),
            np.array([len(n) for n in block.names], "<u2").tobytes(),
            *block.names,
            *(column.tobytes() for column in parents),
            stored,
        )
    )


class BlockReader:
    """Takes arrays off the front of a payload; running over the end is Corruption."""

    def __init__(self, data: Bytes, offset: int) -> None:
        self.data, self.offset = data, offset

    def take(self, count: int, dtype: str) -> Array:
        numpy_type, size = _DTYPES[dtype]
        return np.frombuffer(self.data, numpy_type, count, self._pass(size * count))

    def bytes(self, size: int) -> memoryview:
        start = self._pass(size)
        return memoryview(self.data)[start : self.offset]

    def _pass(self, size: int) -> int:
        """Where that many bytes begin."""
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self.data):
            raise Corruption("a contrib block is shorter than it says")
        return start


def decode(payload: Bytes, with_texts: bool = True, only: I64 | None = None) -> Block:
    """The block in a frame's payload. Without texts, `texts` is empty and nothing is expanded.

    With `only`, `texts` has those of these records alone, in their order: cutting out a text costs more than all else.
    """
    if len(payload) < HEAD.size:
        raise Corruption("a contrib block has no header")
    n, m, k, squeezed, plain_bytes, stored_bytes, version = HEAD.unpack_from(payload, 0)
    if plain_bytes > MAX_TEXT:
        raise Corruption(f"a contrib block claims {plain_bytes} bytes of text")
    reader = BlockReader(payload, HEAD.size)
    keys = {name: reader.take(n, dtype) for name, dtype in (*KEYS, *REST)}
    text_bytes = keys.pop("text_bytes")
    section = reader.take(n, "u1")
    sites, norms = reader.take(m, "<u8"), reader.take(m, "<u8")
    name_bytes = reader.take(m, "<u2")
    names = _split(reader.bytes(sum(name_bytes.tolist())), name_bytes)
    parents_site, parents_path = reader.take(k, "<u8"), reader.take(k, "<u8")
    stored = reader.bytes(stored_bytes)
    if reader.offset != len(payload) or int(text_bytes.sum(dtype=np.uint64)) != plain_bytes:
        raise Corruption("a contrib block's lengths do not add up")
    if n and int(keys["parent"].max()) >= k:
        raise Corruption("a contrib record names a parent that is not in its block")
    if not set(keys["site"].tolist()) <= set(sites.tolist()):  # of a page's links this takes a tenth of numpy's time
        raise Corruption("a contrib record names a site that is not in its block")
    texts = _split(_expand(stored, squeezed, plain_bytes), text_bytes, only) if with_texts else []
    return Block(
        **keys,
        section=section,
        texts=texts,
        sites=sites,
        norms=norms,
        names=names,
        parents_site=parents_site,
        parents_path=parents_path,
        filter_version=version,
    )


def filter_version(payload: Bytes) -> int:
    """Of the filter that the URLs of a block have passed."""
    if len(payload) < HEAD.size:
        raise Corruption("a contrib block has no header")
    return int(HEAD.unpack_from(payload, 0)[-1])


def texts_of(payload: Bytes, only: I64) -> list[bytes]:
    """The texts of some records of a block that was decoded without; most readers want few of them."""
    return _split(*joined_texts(payload), only)


def joined_texts(payload: Bytes) -> tuple[memoryview, U16]:
    """All texts of a block that was decoded without, one behind the other, and their lengths."""
    n, _m, _k, squeezed, plain_bytes, stored_bytes, _version = HEAD.unpack_from(payload, 0)
    lengths = np.frombuffer(payload, "<u2", n, HEAD.size + n * _BEFORE_LENGTHS)
    return _expand(memoryview(payload)[len(payload) - stored_bytes :], squeezed, plain_bytes), lengths


def _expand(stored: memoryview, squeezed: int, plain_bytes: int) -> memoryview:
    if squeezed and plain_bytes > _LZ4_MOST * len(stored):  # looked at first: lz4 takes the memory before it reads
        raise Corruption(f"{len(stored)} bytes of a contrib block cannot expand to {plain_bytes}")
    if squeezed > 1:
        raise Corruption(f"the texts of a contrib block are stored in an unknown way, {squeezed}")
    try:
        text = lz4.block.decompress(stored, uncompressed_size=plain_bytes) if squeezed else stored
    except lz4.block.LZ4BlockError as error:
        raise Corruption(f"the texts of a contrib block do not expand: {error}") from error
    if len(text) != plain_bytes:
        raise Corruption("the texts of a contrib block are not as long as it says")
    return memoryview(text)


def _split(text: memoryview, lengths: Array, only: I64 | None = None) -> list[bytes]:
    whole = bytes(text)
    if not whole.isascii():
        raise Corruption("a name or text of a contrib block is not ASCII")
    if only is None:
        return [whole[a:b] for a, b in pairwise(accumulate(lengths.tolist(), initial=0))]
    ends = np.cumsum(lengths, dtype=np.int64)
    begins = ends - lengths
    return [whole[a:b] for a, b in zip(begins[only].tolist(), ends[only].tolist(), strict=True)]
