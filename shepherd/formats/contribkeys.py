"""What merge reads of a contrib block: its keys and the names of its sites, as arrays; no text is expanded, no object made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shepherd.errors import Corruption
from shepherd.formats.check import Bytes
from shepherd.formats.contrib import HEAD, KEYS, REST, BlockReader
from shepherd.formats.tables import I64, U8, U16, U32, U64
from shepherd.formats.texts import Texts

_READ: Final = ("norm", "path", "site", "parent_weight", "flags")


@dataclass(frozen=True)
class BlockKeys:
    """One value for each record; and the block's distinct sites with their norms and names.

    `lastmod` is 0 also where another site says it: a site speaks for its own documents only.
    """

    norm: U64
    path: U64
    site: U64
    parent_weight: U16
    flags: U16
    section: U8
    lastmod: U32
    sites: U64
    norms: U64
    names: Texts

    def __len__(self) -> int:
        return len(self.norm)

    def some(self, rows: I64) -> BlockKeys:
        """Some of the records; the sites are still those of all."""
        return replace(self, **{name: getattr(self, name)[rows] for name in (*_READ, "section", "lastmod")})


def decode_keys(payload: Bytes) -> BlockKeys:
    """The keys in a frame's payload."""
    if len(payload) < HEAD.size:
        raise Corruption("a contrib block has no header")
    records, sites, parents = HEAD.unpack_from(payload, 0)[:3]
    reader = BlockReader(payload, HEAD.size)
    keys = {name: reader.take(records, dtype) for name, dtype in (*KEYS, *REST)}
    section = reader.take(records, "u1")
    site, norm, lengths = reader.take(sites, "<u8"), reader.take(sites, "<u8"), reader.take(sites, "<u2")
    data = np.frombuffer(reader.bytes(int(lengths.sum(dtype=np.uint64))), np.uint8)
    if len(data) and int(data.max()) > 0x7F:
        raise Corruption("a name of a contrib block is not ASCII")
    parent, parent_site = keys["parent"], reader.take(parents, "<u8")
    if records and int(parent.max()) >= parents:
        raise Corruption("a contrib record names a parent that is not in its block")
    own = parent_site.take(parent) == keys["site"]
    read = {name: keys[name] for name in _READ}
    lastmod = np.where(own, keys["lastmod"], np.uint32(0))
    return BlockKeys(**read, section=section, lastmod=lastmod, sites=site, norms=norm, names=Texts.cut(data, lengths))
