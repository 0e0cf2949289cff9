"""URLs that wait in the inbox as contributions: frames of contrib blocks, and a trailer that says how many, and who left them.

Whoever leaves them has parsed, judged and footprinted each URL once; a merge takes the keys as they are. The trailer comes last,
so a file that was cut off is never taken for a whole one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.errors import Corruption
from shepherd.filters import Filter
from shepherd.formats import contrib
from shepherd.formats.block_builder import BlockBuilder
from shepherd.formats.check import Bytes
from shepherd.formats.frame import Frame, FrameKind, pack_frame
from shepherd.formats.vocabulary import ContribFlag
from shepherd.store.state.inbox import CONTRIB, Draft
from shepherd.store.state.inbox_files import item_frames
from shepherd.urls import SITE_CACHE, Footprints, are_paths, is_site

MOST_TRAILER_BYTES: Final = 1 << 16
_FLAGS: Final = ContribFlag.INSERTED | ContribFlag.PINNED | ContribFlag.HTTPS | ContribFlag.OWN_WEIGHT | ContribFlag.OWN_SECTION
_OTHER_FLAGS: Final = np.uint16(0xFFFF & ~int(_FLAGS))


def add_insert(
    blocks: BlockBuilder, filters: Filter, site: str, href: str, *, weight: int, section: int | None = None, pinned: bool = False
) -> None:
    """What it means to insert a URL of this site, already stripped; the filter gives the section where nobody says one."""
    flags = ContribFlag.INSERTED | ContribFlag.OWN_WEIGHT
    flags |= ContribFlag.PINNED if pinned else 0
    flags |= ContribFlag.HTTPS if site.startswith("https:") else 0
    if section is None:
        section = filters.section_of(href).section
    else:
        flags |= ContribFlag.OWN_SECTION
    blocks.add(site, href[len(site) :], weight, section, int(flags))


class InsertDraft(Draft):
    """Inserted URLs that are being written. One block of them is held, so their number does not matter."""

    def __init__(self, directory: Path, name: str, key: bytes, filters: Filter, by: str) -> None:
        super().__init__(directory, name, CONTRIB)
        self._filters, self._by = filters, by
        self._blocks = BlockBuilder(Footprints(key), filters.version)
        self._written = 0

    def add(self, site: str, href: str, *, weight: int, section: int | None = None, pinned: bool = False) -> None:
        """A URL of this site, in its normalised spelling, which the filter has stripped and accepts."""
        add_insert(self._blocks, self._filters, site, href, weight=weight, section=section, pinned=pinned)
        if self._blocks.is_full:
            self._write_block()

    def keep(self) -> Path:
        if len(self._blocks):
            self._write_block()
        self.write(pack_trailer(Trailer(self._written, self._by)))
        return super().keep()

    def _write_block(self) -> None:
        block = self._blocks.block()
        self._written += len(block)
        self.write(pack_frame(FrameKind.CONTRIB, len(block), contrib.encode(block)))


@dataclass(frozen=True)
class Trailer:
    """The last frame of an item."""

    urls: int
    by: str


def pack_trailer(trailer: Trailer) -> bytes:
    return pack_frame(FrameKind.TRAILER, trailer.urls, json.dumps({"by": trailer.by}).encode())


def _unpack_trailer(frame: Frame) -> Trailer:
    try:
        by = json.loads(bytes(frame.payload[:MOST_TRAILER_BYTES]))["by"]
    except (ValueError, KeyError, TypeError, RecursionError):
        by = None
    if not isinstance(by, str):
        raise Corruption("a trailer that does not say who left the item")
    return Trailer(frame.records, by)


def inspect(path: Path, key: bytes) -> Trailer:
    """The trailer of an item that is sound from front to end, and made under this key; Corruption says what is not."""
    prints, trailer, urls = Footprints(key), None, 0
    norm = lru_cache(SITE_CACHE)(partial(_norm, prints))  # most sites of a block are those of the block before
    for frame in item_frames(path):
        try:
            if trailer is not None:
                raise Corruption("something after the trailer")
            if frame.kind == FrameKind.TRAILER:
                trailer = _unpack_trailer(frame)
            elif frame.kind == FrameKind.CONTRIB:
                urls += _inspect_block(frame.payload, prints, norm)
            else:
                raise Corruption("neither a contrib block nor a trailer")
        except Corruption as error:
            raise Corruption(error.what, path, frame.offset) from error
    if trailer is None or trailer.urls != urls:
        end = trailer.urls if trailer else "no trailer"
        raise Corruption(f"cut off: it has {urls} URLs, and {end} at its end", path)
    return trailer


def _norm(prints: Footprints, name: bytes) -> int:
    """The footprint of the normalised site, if this is the name of a site."""
    if not is_site(name):
        raise Corruption(f"a URL of the site {name[:200]!r}, which is none")
    return prints.norm(name.decode())


def _inspect_block(payload: Bytes, prints: Footprints, norm: Callable[[bytes], int]) -> int:
    """How many records it has. Of the footprints of paths only the first is looked at: a foreign key shows in any of them."""
    block = contrib.decode(payload, with_texts=False)
    if not len(block):
        return 0
    norms = np.fromiter(map(norm, block.names), np.uint64, len(block.names))
    text, lengths = contrib.joined_texts(payload)
    if not are_paths(bytes(text), lengths):
        raise Corruption("a URL with a path that is none")
    if (block.flags & _OTHER_FLAGS).any():
        raise Corruption("a URL with flags that an inserted one does not have")
    first = bytes(text[: lengths[0]])
    sound = prints.halves(block.names) == block.sites.tobytes() and prints.halves([first]) == block.path[:1].tobytes()
    if not sound or not np.array_equal(norms, block.norms):
        raise Corruption("footprints of another key: it was made for another database")
    order = np.argsort(block.sites)
    if not np.array_equal(norms[order[np.searchsorted(block.sites[order], block.site)]], block.norm):
        raise Corruption("a record with the normalised site of another")
    return len(block)


def frames(path: Path) -> Iterator[Frame]:
    """The contrib frames of an item that was inspected."""
    return (frame for frame in item_frames(path) if frame.kind == FrameKind.CONTRIB)
