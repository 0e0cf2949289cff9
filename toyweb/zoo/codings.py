"""Exhibits that abuse content codings: bombs, layers, streams that are cut, damaged or something else."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache

from toyweb.http import Step, ToyRequest
from toyweb.zoo.exhibit import DECODING, STORED, Exhibit, Verdict, head

BOMB_BYTES = 200 * 1024 * 1024  # decoded: beyond any sensible limit, yet no harm to a machine that does decode it

_PAGE = b"<html><head><title>Packed</title></head><body>" + b"<p>Wool, well packed.</p>" * 100 + b"</body></html>"
_PIECE = 1024 * 1024
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def _gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(b"\0" * _PIECE) + packer.flush(zlib.Z_FULL_FLUSH)
    times = BOMB_BYTES // _PIECE
    check = 0
    for _ in range(times):
        check = zlib.crc32(b"\0" * _PIECE, check)
    return _GZIP_HEAD + piece * times + b"\x03\0" + check.to_bytes(4, "little") + BOMB_BYTES.to_bytes(4, "little")


def _brotli_bomb() -> bytes:
    import brotli

    packer = brotli.Compressor(quality=5)
    return b"".join([*(packer.process(b"\0" * _PIECE) for _ in range(BOMB_BYTES // _PIECE)), packer.finish()])


def _zstd_bomb() -> bytes:
    import zstandard

    frame = zstandard.ZstdCompressor(level=3).compress(b"\0" * (16 * _PIECE))
    return frame * (BOMB_BYTES // (16 * _PIECE))


def _brotli_page() -> bytes:
    import brotli

    return bytes(brotli.compress(_PAGE))


def _zstd_page() -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(_PAGE)


def _twice_packed_bomb() -> bytes:
    return gzip.compress(_gzip_bomb(), mtime=0)


def _many_members() -> bytes:
    return gzip.compress(b"<p>One more.</p>\n", mtime=0) * 20_000


def _wide_window() -> bytes:
    # Magic, a descriptor without content size, a window of 2^31 bytes, one last raw block of 5 bytes.
    return b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + (5 << 3 | 1).to_bytes(3, "little") + b"hello"


def _flat(data: bytes) -> Callable[[], bytes]:
    return lambda: data


def _packed(name: str, about: str, coding: str, body: Callable[[], bytes], *verdicts: Verdict, cut: bool = False) -> Exhibit:
    make_once = lru_cache(maxsize=1)(body)

    def play(_request: ToyRequest) -> Iterator[Step]:
        data = make_once()
        yield head(f"Content-Encoding: {coding}", f"Content-Length: {len(data)}")
        yield data

    return Exhibit(name, about, play, frozenset(verdicts), cut=cut)


_GZIP = gzip.compress(_PAGE, mtime=0)

EXHIBITS: tuple[Exhibit, ...] = (
    _packed("gzip-bomb", "200 MB in a small gzip stream", "gzip", _gzip_bomb, STORED, DECODING, cut=True),
    _packed("br-bomb", "200 MB in 200 bytes of brotli", "br", _brotli_bomb, STORED, DECODING, cut=True),
    _packed("zstd-bomb", "200 MB in a small row of zstd frames", "zstd", _zstd_bomb, STORED, DECODING, cut=True),
    _packed("zstd-wide-window", "a zstd frame that wants 4 GB of memory", "zstd", _wide_window, DECODING),
    _packed("gzip-many-members", "a row of 20,000 gzip streams", "gzip", _many_members, STORED, DECODING),
    _packed("gzip-cut-short", "a gzip stream without its end", "gzip", _flat(_GZIP[:-20]), DECODING, STORED),
    _packed("gzip-wrong-check", "a gzip stream whose checksum is wrong", "gzip", _flat(_GZIP[:-8] + b"\0" * 8), DECODING, STORED),
    _packed(
        "gzip-garbage-behind", "bytes behind the end of a gzip stream", "gzip", _flat(_GZIP + b"garbage" * 9), STORED, DECODING
    ),
    _packed("gzip-is-plain", "says gzip, and is not", "gzip", _flat(_PAGE), DECODING, STORED),
    _packed("br-is-plain", "says brotli, and is not", "br", _flat(_PAGE), DECODING, STORED),
    _packed("br-cut-short", "a brotli stream without its end", "br", lambda: _brotli_page()[:-9], DECODING, STORED),
    _packed("zstd-is-plain", "says zstd, and is not", "zstd", _flat(_PAGE), DECODING, STORED),
    _packed("zstd-cut-short", "a zstd stream without its end", "zstd", lambda: _zstd_page()[:-9], DECODING, STORED),
    _packed("coding-twice", "gzip in gzip", "gzip, gzip", _flat(gzip.compress(_GZIP, mtime=0)), DECODING, STORED),
    _packed("coding-bomb-twice", "a bomb of 275 bytes: gzip in gzip", "gzip, gzip", _twice_packed_bomb, DECODING, STORED),
    _packed("coding-many", "says 50 codings", ", ".join(50 * ["gzip"]), _flat(_GZIP), DECODING),
    _packed("coding-unknown", "a coding that nobody asked for", "rot13", _flat(_PAGE), DECODING, STORED),
    _packed(
        "coding-raw-deflate", "deflate without its zlib header", "deflate", _flat(zlib.compress(_PAGE, 9, -15)), STORED, DECODING
    ),
)
