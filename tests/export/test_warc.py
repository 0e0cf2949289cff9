"""WARC files against the tools that read them: warcio and FastWARC here, cdxj-indexer and pywb in test_replay.py."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from shepherd.formats import httphead, warc
from shepherd.formats.bucket import Codec
from tests.support.export_pages import LONG, TEXT, WARES, bodies, export, manifest, names, page, warcio_check
from tests.support.page_states import Herd, add_state, make_herd
from tests.worlds import DAY, NOW

RECORDS = {"response": 12, "resource": 1, "request": 12, "metadata": 13, "warcinfo": 1}


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    return make_herd(tmp_path_factory.mktemp("herd"), WARES, (), ())


@pytest.fixture(scope="module")
def file(herd: Herd, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    export(herd, out, "--format", "warc", "--cdxj")
    return out / "shepherd-000002-00000.warc.gz"


def read(file: Path) -> dict[tuple[str, str], tuple[dict[str, str], bytes]]:
    """Headers and block of every record, by type and URL, as FastWARC reads them; every digest is verified."""
    found = {}
    for record in ArchiveIterator(io.BytesIO(file.read_bytes()), parse_http=False, strict_mode=True):
        assert record.verify_block_digest(consume=False)
        headers = dict(record.headers.items())
        block = record.reader.read()
        assert len(block) == record.content_length
        key = (headers["WARC-Type"], headers.get("WARC-Target-URI", ""))
        assert key not in found
        found[key] = headers, block
    return found


def head_of(block: bytes) -> str:
    return block.partition(b"\r\n\r\n")[0].decode("latin-1")


def test_warcio_accepts_every_digest_and_length(file: Path) -> None:
    warcio_check(file)


def test_fastwarc_reads_the_records_that_were_written(file: Path) -> None:
    found = read(file)
    counts: dict[str, int] = {}
    for kind, _url in found:
        counts[kind] = counts.get(kind, 0) + 1
    assert counts == RECORDS
    for record in ArchiveIterator(io.BytesIO(file.read_bytes())):
        if record.headers["WARC-Type"] == "response":
            assert record.verify_payload_digest(), record.headers["WARC-Target-URI"]


def test_reader_gets_the_body_that_was_gathered(file: Path) -> None:
    """warcio undoes what Content-Encoding says, so a head that lies about the body would show here."""
    seen = {}
    for record in WarcioIterator(io.BytesIO(file.read_bytes())):
        if record.rec_type in ("response", "resource"):
            seen[record.rec_headers["WARC-Target-URI"]] = record.content_stream().read()
    zstd = "https://a.example/long"
    assert seen.keys() == bodies().keys()
    assert {url: body for url, body in seen.items() if url != zstd} == {u: b for u, b in bodies().items() if u != zstd}
    _headers, block = read(file)["response", zstd]  # which warcio does not know: the bytes are as they were sent
    import zstandard

    assert zstandard.decompress(block.partition(b"\r\n\r\n")[2]) == LONG


def test_head_describes_the_body_as_it_is_stored(file: Path) -> None:
    found = read(file)
    sent = head_of(found["response", "https://a.example/as-sent"][1])
    assert "\r\nContent-Encoding: gzip" in sent and "\r\nX-Archive-Orig-Transfer-Encoding: chunked" in sent
    headers, block = found["response", "https://a.example/cut"]
    assert headers["WARC-Truncated"] == "length"
    assert "\r\nX-Archive-Orig-Content-Encoding: gzip\r\nX-Archive-Orig-Content-Length: 4711" in head_of(block)
    assert f"\r\nContent-Length: {len(TEXT)}" in head_of(found["response", "https://www.b.example:8443/Path%20with/Blanks/"][1])
    headers, block = found["response", "https://a.example/h2?b=1&a=2"]
    assert block.startswith(b"HTTP/1.1 200\r\n") and headers["WARC-Protocol"] == "h2"
    assert head_of(found["response", "https://a.example/odd-head"][1]).endswith("A: 1\r\nB:\x002\r\nC: 3\r\nno colon here")
    headers, block = found["response", "https://a.example/moved"]
    assert block == b"HTTP/1.1 301 Moved Permanently\r\nLocation: https://www.b.example:8443/ Evil: yes\r\n\r\n"
    assert "WARC-IP-Address" not in headers
    headers, block = found["resource", "https://a.example/bare"]
    assert block == TEXT and headers["Content-Type"] == "text/html"


def test_records_contain_what_is_known_of_a_document(file: Path) -> None:
    found = read(file)
    headers = found["response", "https://a.example/"][0]
    assert headers["WARC-IP-Address"] == "192.0.2.7" and headers["WARC-Date"] == "2026-09-21T14:13:20Z"
    known = dict(line.split(": ", 1) for line in found["metadata", "https://a.example/"][1].decode().splitlines())
    assert (
        known["title"] == "Schafe" and known["language"] == "de" and known["weight"] == "50000" and known["fetchTimeMs"] == "250"
    )
    assert found["metadata", "https://a.example/"][0]["WARC-Concurrent-To"] == headers["WARC-Record-ID"]
    request = found["request", "https://www.b.example:8443/Path%20with/Blanks/"][1]
    assert request == b"GET /Path%20with/Blanks/ HTTP/1.1\r\nHost: www.b.example:8443\r\n\r\n"
    title = found["metadata", "https://a.example/odd-head"][1].decode()
    assert "\r\ntitle: two lines [2J\r\n" in title
    assert ("response", "https://a.example/robots.txt") in found and ("request", "https://a.example/bare") not in found


def test_same_state_gives_the_same_bytes(herd: Herd, file: Path, tmp_path: Path) -> None:
    export(herd, tmp_path, "--format", "warc", "--cdxj")
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (file.parent / path.name).read_bytes()


def test_split_files_have_every_record_and_their_warcinfo(herd: Herd, file: Path, tmp_path: Path) -> None:
    export(herd, tmp_path, "--format", "warc", "--split-bytes", "2000", "--digest", "sha256", "--prefix", "x")
    files = sorted(tmp_path.glob("*.warc.gz"))
    assert len(files) > 2
    warcio_check(*files)
    found: dict[tuple[str, str], object] = {}
    for one in files:
        records = list(read(one).items())
        (kind, _url), (headers, _block) = records[0]
        assert kind == "warcinfo" and headers["WARC-Filename"] == one.name
        found |= dict(records)
    assert found.keys() == read(file).keys()


def test_unchanged_document_is_written_as_a_revisit(tmp_path: Path) -> None:
    """In the next export of a cursor: one page was looked at and was the same, one changed, one is new, one is gone."""
    herd = make_herd(tmp_path / "h", WARES[:4], (), ())
    out = tmp_path / "out"
    out.mkdir()
    export(herd, out, "--format", "warc", "--cursor", "archive", "--cdxj")
    later = NOW + DAY
    checked = replace(WARES[0], columns=WARES[0].columns | {"checked": later - 60})
    changed = page(WARES[1].url, b"<p>new</p>", packed=Codec.GZIP_SENT, headers=b"Content-Encoding: gzip\r\n")
    add_state(herd, [checked, changed, WARES[2], page("https://a.example/new")], now=later)
    export(herd, out, "--format", "warc", "--cursor", "archive", "--cdxj")
    second = out / "shepherd-000003-00000.warc.gz"
    warcio_check(second)
    found = read(second)
    assert {url for kind, url in found if kind == "response"} == {WARES[1].url, "https://a.example/new"}
    headers, block = found["revisit", WARES[0].url]
    first, _block = read(out / "shepherd-000002-00000.warc.gz")["response", WARES[0].url]
    assert headers["WARC-Refers-To"] == first["WARC-Record-ID"] and headers["WARC-Refers-To-Date"] == first["WARC-Date"]
    assert headers["WARC-Payload-Digest"] == first["WARC-Payload-Digest"] and headers["WARC-Date"] == "2026-09-22T14:12:20Z"
    assert block.endswith(b"\r\n\r\n") and b'"mime": "warc/revisit"' in (out / "shepherd-000003.cdxj").read_bytes()
    gone = (out / "shepherd-000003.gone.jsonl").read_text()
    assert '"what": "gone"' in gone and gone.count("\n") == 1
    assert "revisit" not in {kind for kind, _url in read(out / "shepherd-000002-00000.warc.gz")}


def test_nothing_to_export_gives_a_valid_file(herd: Herd, tmp_path: Path) -> None:
    export(herd, tmp_path, "--format", "warc", "--weight", "65535..")
    assert manifest(tmp_path)["counts"]["present"] == 0 and names(tmp_path)[0].endswith(".warc.gz")
    warcio_check(*tmp_path.glob("*.gz"))


@pytest.mark.parametrize("line", [b"", b"200 OK", b"HTTP/1.1", b"HTTP/1.1 20", b"HTTP/1.1 2000 OK", b"ICY 200 OK"])
def test_line_without_a_status_is_no_status_line(line: bytes) -> None:
    assert httphead.head(line, b"", 0, False) is None


def test_record_ids_are_distinct_uuids() -> None:
    found = {warc.record_id(b"response", b"%d" % n) for n in range(1_000)}
    assert len(found) == 1_000
    import uuid

    assert {uuid.UUID(one.decode()[10:-1]).version for one in found} == {5}
