"""WARC files for tests, written by warcio as other programs write theirs."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass, field

from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

HTML = "text/html; charset=utf-8"
PAGE = b'<html><head><title>One</title></head><body><a href="/two">two</a> <a href="https://other.example/x">x</a></body></html>'


@dataclass
class Warc:
    """A file that grows; its bytes are `data`."""

    packed: bool = True
    version: str = "1.0"
    _out: io.BytesIO = field(default_factory=io.BytesIO)

    def __post_init__(self) -> None:
        self._writer = WARCWriter(self._out, gzip=self.packed, warc_version=self.version)

    @property
    def data(self) -> bytes:
        return self._out.getvalue()

    def response(
        self,
        url: str,
        body: bytes = PAGE,
        date: str = "2020-02-03T04:05:06Z",
        status: str = "200 OK",
        headers: tuple[tuple[str, str], ...] = (("Content-Type", HTML),),
        address: str = "192.0.2.7",
        **more: str,
    ) -> int:
        """Where it begins."""
        at = len(self.data)
        http = StatusAndHeaders(status, list(headers), protocol="HTTP/1.1")
        told = {"WARC-Date": date, "WARC-IP-Address": address} | {name.replace("_", "-"): value for name, value in more.items()}
        record = self._writer.create_warc_record(
            url, "response", payload=io.BytesIO(body), http_headers=http, warc_headers_dict=told
        )
        self._write(record)
        return at

    def revisit(self, url: str, date: str, refers_to: str, refers_date: str) -> int:
        at = len(self.data)
        http = StatusAndHeaders("200 OK", [("Content-Type", HTML)], protocol="HTTP/1.1")
        record = self._writer.create_revisit_record(
            url, digest="sha1:AAAA", refers_to_uri=refers_to, refers_to_date=refers_date, http_headers=http
        )
        record.rec_headers.replace_header("WARC-Date", date)
        self._write(record)
        return at

    def other(self, kind: str, url: str = "http://a.example/one") -> int:
        at = len(self.data)
        if kind == "warcinfo":
            record = self._writer.create_warcinfo_record("x.warc", {"software": "test"})
        else:
            record = self._writer.create_warc_record(url, kind, payload=io.BytesIO(b"GET / HTTP/1.1\r\n\r\n"))
        self._write(record)
        return at

    def _write(self, record: ArcWarcRecord) -> None:
        self._writer.write_record(record)
        record.raw_stream.close()  # a temporary file that warcio would leave to be collected

    def raw(self, data: bytes) -> int:
        """Bytes as they stand, as a member of their own where the file has members."""
        at = len(self.data)
        self._out.write(gzip.compress(data) if self.packed else data)
        return at

    def broken(self, url: str) -> int:
        """A record of which a byte has changed."""
        at = self.response(url)
        view = self._out.getbuffer()
        view[at + 60] ^= 255
        view.release()
        return at
