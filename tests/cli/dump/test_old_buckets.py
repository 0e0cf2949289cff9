"""A database whose buckets are v2 and v3.0 looks to every tool like one of today."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from shepherd.store.check import check
from shepherd.urls import Footprints, Url
from tests.golden import segments
from tests.golden.segments import Document
from tests.support import page_states as conftest
from tests.support.page_states import GREETING, PAGES, Herd, Page, Run, stdout_of
from tests.worlds import NOW


def digested(page: Page) -> Page:
    """The page with a digest, in its bucket and in its row."""
    if page.body is None:
        return page
    digest = hashlib.sha256(page.body).digest()
    columns = page.columns | {"digest": int.from_bytes(digest[:8], "little")}
    return dataclasses.replace(page, attributes=page.attributes | {"D": digest}, columns=columns)


@pytest.fixture(params=[segments.v2, segments.v30], ids=["v2", "v3.0"])
def old_herd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Herd:
    def as_text(page: Page, url: Url, prints: Footprints) -> bytes:
        _, path, site = prints.of(url)
        flags = 1 if page.body is None else 0
        one = Document(url.href.encode(), page.attributes, page.body or b"", flags, site, path, NOW * 1_000, 2)
        written: bytes = request.param(one)
        return written

    monkeypatch.setattr(conftest, "_bucket", as_text)
    return conftest.make_herd(tmp_path, tuple(map(digested, PAGES)))


def test_old_buckets_are_as_sound_as_new_ones(old_herd: Herd) -> None:
    assert [str(fault) for fault in check.walk(old_herd.store)] == []


def test_old_bucket_with_another_digest_than_its_row_is_a_fault(old_herd: Herd) -> None:
    pages = [dataclasses.replace(page, columns=page.columns | {"digest": 7}) if page.body else page for page in PAGES]
    herd = conftest.make_herd(old_herd.db.parent / "other", pages)
    assert any("differs from the digest in its bucket" in str(fault) for fault in check.walk(herd.store))


def test_old_document_comes_out_byte_by_byte(old_herd: Herd, shep: Run) -> None:
    assert shep(old_herd, "cat", "http://a.example/").stdout == GREETING
    assert stdout_of(shep(old_herd, "cat", "--headers", "http://a.example/")).startswith(
        "HTTP/1.1 200 OK\nContent-Type: text/html\n"
    )


def test_old_rows_are_listed_with_their_urls(old_herd: Herd, herd: Herd, shep: Run) -> None:
    old, new = (stdout_of(shep(one, "list")).splitlines() for one in (old_herd, herd))
    assert [line.split()[-1] for line in old] == [line.split()[-1] for line in new]
