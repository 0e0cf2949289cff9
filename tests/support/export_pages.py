"""Documents of every kind that an export may meet, in a database, and a way to run the real shep-export on it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from shepherd.formats.bucket import Codec
from shepherd.formats.tables import Flag, Reason, RowType
from tests.support.page_states import GATHERED, Herd, Page
from tests.support.programs import call_bytes
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
READERS = ROOT / ".venv-readers" / "bin"
TEXT = ("<!DOCTYPE html><title>Schafe</title><p>" + "Grüße von der Weide. " * 200).encode()
LONG = bytes(range(256)) * 800  # more than one stored block


def page(url: str, body: bytes = TEXT, headers: bytes = b"", packed: Codec | None = None, **more: bytes) -> Page:
    digest = hashlib.sha256(body).digest()
    stored = {Codec.GZIP_SENT: _gzip, Codec.ZSTD_SENT: zstandard.compress}[packed](body) if packed else b""
    attributes = {
        "S": b"HTTP/1.1 200 OK",
        "H": b"Content-Type: text/html; charset=utf-8\r\n" + headers,
        "T": b"text/html",
        "C": b"utf-8",
        "D": digest,
        "t": b"Schafe",
        "l": b"de",
        "A": b"192.0.2.7",
        "m": (250).to_bytes(4, "little"),
        "h": digest[:8],
    } | more
    columns = GATHERED | {"digest": int.from_bytes(digest[:8], "little")}
    return Page(
        url,
        RowType.GATHERED,
        Reason.GATHERED,
        body,
        {letter: text for letter, text in attributes.items() if text},
        columns,
        packed=(packed, stored) if packed else None,
    )


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, 9, wbits=31)


WARES = (
    page("https://a.example/"),
    page(
        "https://a.example/as-sent", headers=b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", packed=Codec.GZIP_SENT
    ),
    page("https://a.example/long", LONG, b"Content-Encoding: zstd\r\n", Codec.ZSTD_SENT, T=b"application/octet-stream", C=b""),
    page("https://a.example/cut", TEXT[:100], b"Content-Encoding: gzip\r\nContent-Length: 4711\r\n", X=b"length"),
    page("https://a.example/thai", b"\xa1\xa2", C=b"windows-874"),
    page("https://a.example/code", b"abc-1", C=b"punycode"),
    page("https://a.example/h2?b=1&a=2", headers=b"x-robots: all\r\n", S=b"HTTP/2 200 "),
    page("https://a.example/empty", b"", b"Content-Length: 0\r\n"),
    page("https://a.example/odd-head", headers=b"A: 1\nB:\x002\r\n\r\nC: 3\nno colon here\n", t=b"two\r\nlines\x1b[2J"),
    page("https://www.b.example:8443/Path%20with/Blanks/", headers=b"Content-Length: %d\r\n" % len(TEXT)),
    page("https://a.example/bare", S=b"", H=b"", A=b"", m=b""),
    Page(
        "https://a.example/robots.txt",
        RowType.GATHERED,
        Reason.GATHERED,
        b"User-agent: *\nDisallow:\n",
        {"S": b"HTTP/1.1 200 OK", "H": b"Content-Type: text/plain\r\n", "T": b"text/plain"},
        GATHERED | {"flags": Flag.ROBOTS, "digest": 5},
    ),
    Page(
        "https://a.example/moved",
        RowType.GATHERED,
        Reason.REDIRECT,
        None,
        {"S": b"HTTP/1.1 301 Moved Permanently", "E": b"https://www.b.example:8443/\r\nEvil: yes"},
        {"status": 301, "checked": GATHERED["checked"], "gathered": GATHERED["gathered"], "flags": Flag.REDIRECT},
    ),
    Page("https://a.example/asleep", RowType.SLEEPING, Reason.SITE_SOFT),
)


def bodies() -> dict[str, bytes]:
    """What every gathered document must come out as, by URL; redirects have none."""
    return {ware.url: ware.body or b"" for ware in WARES if ware.type == RowType.GATHERED}


def export(
    herd: Herd, out: Path | str, *arguments: str, status: int = 0, fail: str = "", cf: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"SHEPHERD_DB": str(herd.db), "SHEPHERD_CF": str(cf or herd.cf), "SHEPHERD_FAIL": fail}
    done = call_bytes(["shep-export", "-o", str(out), *arguments], ROOT, environment | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == status, done
    return done


def manifest(out: Path) -> dict[str, Any]:
    (found,) = (path for path in out.glob("*.json"))
    told: dict[str, Any] = json.loads(found.read_text())
    return told


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir())


def lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def reader(program: str, *arguments: str | Path) -> str:
    """Run a program that reads archives, from the venv that has them."""
    place = READERS / program
    stamp = READERS.parent / "shepherd-readers.lock"
    if (
        not place.exists()
        or not stamp.exists()
        or stamp.read_bytes() != (ROOT / stamp.name.replace("shepherd", "requirements")).read_bytes()
    ):
        pytest.skip(f"{program} is not there: `bin/test --readers` installs what reads archives")
    done = subprocess.run([place, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done
    return done.stdout


def warcio_check(*files: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warcio.cli", "check", "-v", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    assert "digest pass" in done.stdout, done
