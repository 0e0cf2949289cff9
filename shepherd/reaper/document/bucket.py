"""The bucket that an answer becomes.

Invariant: the body of a bucket always decodes whole; a body that was cut is stored as far as it was decoded, marked as truncated.
"""

from __future__ import annotations

from typing import Final

from shepherd import urls
from shepherd.formats import bucket
from shepherd.formats.bucket import BucketFlag, Codec
from shepherd.reaper.fetch.exchange import Body, Context, Exchange

_SENT_CODECS: Final = {
    "gzip": Codec.GZIP_SENT,
    "x-gzip": Codec.GZIP_SENT,
    "br": Codec.BR_SENT,
    "zstd": Codec.ZSTD_SENT,
    "deflate": Codec.DEFLATE_SENT,
}
_NO_LINE_ENDS: Final = str.maketrans("\r\n\0", "   ")


def redirect_bucket(context: Context, exchange: Exchange, target: str) -> bytes:
    """The bucket of a redirect, wherever it leads; what a server said in place of a URL is kept as one line."""
    line = target.translate(_NO_LINE_ENDS).encode("utf-8", "replace")[: urls.MAX_URL_BYTES]
    return bucket_of(context, exchange, [("E", line)], None)


def bucket_of(context: Context, exchange: Exchange, attributes: list[tuple[str, bytes]], body: Body | None) -> bytes:
    """The bucket of a document, or of a redirect where `body` is None."""
    fetch, response = exchange.fetch, exchange.response
    entries = [
        ("U", fetch.url.encode("ascii")),
        ("S", response.status_line),
        ("H", response.headers if body is not None else b""),
        *attributes,
        ("A", response.address.encode("ascii")),
        ("m", exchange.download_ms.to_bytes(4, "little") if response.total_s else b""),
        ("P", response.provenance.encode()),
    ]
    flags = BucketFlag(0)
    codec, stored = Codec.NONE, b""
    if body is not None:
        sent_codec = _SENT_CODECS.get(response.encoding)
        if body.truncated:
            entries.append(("X", body.truncated.encode("ascii")))
            flags = BucketFlag.TRUNCATED
        if sent_codec is not None and not body.truncated and body.data:
            codec, stored = sent_codec, response.body
        else:
            codec, stored = bucket.compress(body.data, context.compress)
    return bucket.pack(
        site=fetch.site,
        path=fetch.path,
        time_ms=exchange.end_ms,
        state=context.state,
        attributes=[(letter, text) for letter, text in entries if text],
        body=stored,
        codec=codec,
        plain_bytes=len(body.data) if body is not None else 0,
        flags=flags,
    )
