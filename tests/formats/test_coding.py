"""Content decoding: honest bodies, broken ones, and bombs."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.formats.coding import DecodeError, decode
from tests.support import sampling

TEXT = b"<html>" + bytes(range(256)) * 200 + b"</html>"
LIMIT = 1 << 20
ROOT = Path(__file__).resolve().parents[2]


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def brotli_quickly(data: bytes) -> bytes:
    compressed: bytes = brotli.compress(data, quality=3)
    return compressed


def gzip_quickly(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=1)


def zstd_without_size(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip_quickly),
    "x-gzip": ("x-gzip", gzip_quickly),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", brotli_quickly),
    "zstd": ("zstd", zstandard.ZstdCompressor().compress),
    "zstd without a size": ("zstd", zstd_without_size),
}
each_encoder = pytest.mark.parametrize(("encoding", "encode"), ENCODERS.values(), ids=ENCODERS)


@each_encoder
def test_an_honest_body_comes_back_whole(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    assert decode(encode(TEXT), encoding, LIMIT) == (TEXT, False)
    assert decode(encode(TEXT), f" {encoding.upper()} , identity", LIMIT) == (TEXT, False)


@each_encoder
def test_the_limit_is_exact(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    assert decode(encode(TEXT), encoding, len(TEXT)) == (TEXT, False)
    assert decode(encode(TEXT), encoding, len(TEXT) - 1) == (TEXT[:-1], True)
    assert decode(encode(TEXT), encoding, 0) == (b"", True)


@each_encoder
def test_a_stream_cut_anywhere_is_truncated_not_whole(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    packed = encode(TEXT)
    for cut in range(1, len(packed), 7):
        data, truncated = decode(packed[:cut], encoding, LIMIT)
        assert truncated
        assert TEXT.startswith(data)


@each_encoder
def test_an_empty_body_is_empty_whatever_it_is_said_to_be(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    assert decode(b"", encoding, LIMIT) == (b"", False)
    assert decode(encode(b""), encoding, LIMIT) == (b"", False)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_a_body_that_was_never_encoded_is_an_error(encoding: str) -> None:
    with pytest.raises(DecodeError):
        decode(b"<html>just text, and more of it</html>" * 10, encoding, LIMIT)


def test_a_wrong_checksum_is_an_error() -> None:
    with pytest.raises(DecodeError):
        decode(gzip.compress(TEXT)[:-8] + b"12345678", "gzip", LIMIT)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br,gzip", "compress", "GZIP2", "\x00", "gzip;q=1"])
def test_layers_and_unknown_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(DecodeError):
        decode(gzip.compress(gzip.compress(TEXT)), encoding, LIMIT)


def test_identity_is_cut_at_the_limit() -> None:
    assert decode(TEXT, "", LIMIT) == (TEXT, False)
    assert decode(TEXT, "identity", 10) == (TEXT[:10], True)


def test_all_members_of_a_gzip_body_are_read_and_padding_ignored() -> None:
    assert decode(gzip.compress(b"one ") + gzip.compress(b"two") + bytes(100), "gzip", LIMIT) == (b"one two", False)
    assert decode(zstd_without_size(b"one ") + zstd_without_size(b"two"), "zstd", LIMIT) == (b"one two", False)


def test_a_million_empty_members_do_not_keep_us_busy() -> None:
    for encoding, part in (("gzip", gzip.compress(b"")), ("zstd", zstd_without_size(b""))):
        assert decode(part * 100_000, encoding, LIMIT) == (b"", True)


def test_a_zstd_window_beyond_the_web_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(DecodeError):
        decode(stream.compress(TEXT) + stream.flush(), "zstd", LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
@settings(max_examples=sampling.examples(150), deadline=None)
@given(data=st.binary(max_size=200))
def test_noise_is_a_value_or_a_decode_error(encoding: str, data: bytes) -> None:
    for noise in (data, ENCODERS[encoding][1](b"x" * 500)[: len(data)] + data):
        try:
            decoded, _ = decode(noise, encoding, 1_000)
        except DecodeError:
            continue
        assert len(decoded) <= 1_000


BOMB = """
import resource, sys
from shepherd.formats.coding import decode
import brotli, isal.isal_zlib, zstandard
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data, truncated = decode(bomb, sys.argv[1], 1 << 20)
print(len(data), truncated, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@each_encoder
def test_a_bomb_stops_at_the_limit_with_bounded_memory(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    bomb = encode(bytes(200_000_000))
    run = subprocess.run([sys.executable, "-c", BOMB, encoding], input=bomb, capture_output=True, check=True, cwd=ROOT)
    size, truncated, grown_mib = run.stdout.decode().split()
    assert (int(size), truncated) == (1 << 20, "True")
    assert int(grown_mib) < 40
