"""Content-Encoding undone, under a limit: a bomb costs no more memory than the limit, whatever it claims to hold.

Invariant: at most `limit` bytes come back. One layer only: whoever packs twice packs a bomb. A stream that ends too early gives
what it holds so far, marked as truncated, because a body cut by our own limit is such a stream; a wrong one is a DecodeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shepherd.errors import ShepherdError

_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_WINDOW: Final = 8 * 1024 * 1024  # RFC 9659: what a decoder must offer for the web, and all that ours offers
_ZSTD_INPUT: Final = 256  # bytes given at a time: 4 of them can hold a block of 128 KiB, so a step makes at most 8 MiB
_BROTLI_OUTPUT: Final = 256 * 1024
_MAX_PARTS: Final = 100  # members of a gzip file or frames of a zstd one; each is a new decoder, and empty ones cost 20 bytes


class DecodeError(ShepherdError):
    """A body that is not what its Content-Encoding says, or that is encoded in a way we do not know."""


def decode(data: bytes, encoding: str, limit: int) -> tuple[bytes, bool]:
    """The decoded bytes, and whether they are only the beginning: `limit` was reached, or the stream ends too early."""
    layers = [layer for layer in (part.strip().lower() for part in encoding.split(",")) if layer not in ("", "identity")]
    if not layers or not data:
        return data[:limit], len(data) > limit
    if len(layers) > 1:
        raise DecodeError(f"Content-Encoding {encoding[:80]!r} has {len(layers)} layers; only one is undone")
    decoder = _DECODERS.get(layers[0])
    if decoder is None:
        raise DecodeError(f"Content-Encoding {encoding[:80]!r} is unknown")
    decoded, truncated = decoder(data, limit)
    return (decoded[:limit], True) if len(decoded) > limit else (decoded, truncated)


def _gzip(data: bytes, limit: int) -> tuple[bytes, bool]:
    """All members; what follows the last one and is no member is ignored, as browsers do."""
    decoded, ended, rest = _inflate(data, 31, limit)
    members = [decoded]
    size = len(decoded)
    while ended and rest.startswith(_GZIP_MAGIC) and size <= limit:
        if len(members) == _MAX_PARTS:
            return b"".join(members), True
        decoded, ended, rest = _inflate(rest, 31, limit - size)
        members.append(decoded)
        size += len(decoded)
    return b"".join(members), not ended


def _deflate(data: bytes, limit: int) -> tuple[bytes, bool]:
    """zlib's wrapping, as the standard says, or none, as some servers send."""
    wrapped = data[0] & 0x0F == 8 and len(data) > 1 and (data[0] << 8 | data[1]) % 31 == 0
    if wrapped:
        try:
            decoded, ended, _ = _inflate(data, 15, limit)
        except DecodeError:
            wrapped = False  # two bytes of a raw stream looked like a header
    if not wrapped:
        decoded, ended, _ = _inflate(data, -15, limit)
    return decoded, not ended


def _inflate(data: bytes, wbits: int, limit: int) -> tuple[bytes, bool, bytes]:
    """At most limit + 1 bytes, whether the stream ended, and what follows it."""
    from isal import isal_zlib

    stream = isal_zlib.decompressobj(wbits=wbits)
    try:
        decoded = stream.decompress(data, limit + 1)
    except isal_zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
        raise DecodeError(f"broken {'gzip' if wbits == 31 else 'deflate'} stream: {error}") from error
    return decoded, stream.eof, stream.unused_data


def _brotli(data: bytes, limit: int) -> tuple[bytes, bool]:
    import brotli

    stream = brotli.Decompressor()
    parts: list[bytes] = []
    size = 0
    piece = data
    try:
        while size <= limit:
            part = stream.process(piece, output_buffer_limit=min(_BROTLI_OUTPUT, limit + 1 - size))
            piece = b""
            parts.append(part)
            size += len(part)
            if stream.is_finished() or (not part and stream.can_accept_more_data()):
                break
    except brotli.error as error:
        raise DecodeError(f"broken br stream: {error}") from error
    return b"".join(parts), not stream.is_finished()


def _zstd(data: bytes, limit: int) -> tuple[bytes, bool]:
    import zstandard

    parts: list[bytes] = []
    size = offset = frames = 0
    stream = None
    view = memoryview(data)
    try:
        while offset < len(view) and size <= limit:
            if stream is None or stream.eof:
                if frames == _MAX_PARTS:
                    return b"".join(parts), True
                frames += 1
                stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            piece = view[offset : offset + _ZSTD_INPUT]
            part = stream.decompress(piece)
            offset += len(piece) - len(stream.unused_data)
            parts.append(part)
            size += len(part)
    except zstandard.ZstdError as error:
        raise DecodeError(f"broken zstd stream: {error}") from error
    return b"".join(parts), stream is None or not stream.eof


_DECODERS: Final[dict[str, Callable[[bytes, int], tuple[bytes, bool]]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
