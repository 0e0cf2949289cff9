"""bin/lock and bin/advisories: which hashes are locked, and which advisories speak of what is locked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shepherd.cli import advisories, lock_files
from shepherd.cli.lock_files import LockedPackage, LockError, hashes_of, index_files, is_for_us, parse

DIGESTS = [f"{number:064x}" for number in range(9)]
NAMES = [
    "a_b-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "a_b-1.0-cp39-abi3-musllinux_1_2_aarch64.whl",
    "a_b-1.0-py3-none-any.whl",
    "a_b-1.0-cp310-cp310-manylinux_2_17_x86_64.whl",
    "a_b-1.0-cp314-cp314t-manylinux_2_17_x86_64.whl",
    "a_b-1.0-cp312-cp312-win_amd64.whl",
    "a_b-1.0.tar.gz",
    "a_b-1.1-py3-none-any.whl",
    "a_b_c-1.0-py3-none-any.whl",
]
PAGE = "".join(
    f'<a href="https://files.example/x/{name}#sha256={digest}" data-requires-python="&gt;=3">{name}</a>'
    for name, digest in zip(NAMES, DIGESTS, strict=True)
)
LOCK = f"# What is locked.\na-b==1.0 \\\n    --hash=sha256:{DIGESTS[0]} \\\n    --hash=sha256:{DIGESTS[1]}\nz==2\n"


def test_wheels_for_our_pythons_and_machines_are_locked() -> None:
    assert [name for name in NAMES if is_for_us(name)] == [*NAMES[:3], *NAMES[7:]]
    assert hashes_of(LockedPackage("a-b", "1.0"), index_files(PAGE)) == tuple(DIGESTS[:3])


def test_source_is_locked_only_where_the_lock_file_says_so() -> None:
    package, only_source = LockedPackage("a-b", "1.0"), [file for file in index_files(PAGE) if file.name.endswith(".gz")]
    assert hashes_of(package, only_source, from_source=True) == (DIGESTS[6],)
    with pytest.raises(LockError, match="no wheel for us"):
        hashes_of(package, only_source)


def test_withdrawn_version_is_refused() -> None:
    with pytest.raises(LockError, match="was withdrawn"):
        hashes_of(LockedPackage("a-b", "1.0"), index_files(PAGE.replace("data-requires-python", "data-yanked")))


def test_lock_file_is_read_and_written_alike() -> None:
    lock = parse(LOCK)
    assert lock.text() == LOCK
    assert lock.packages == (LockedPackage("a-b", "1.0", tuple(DIGESTS[:2])), LockedPackage("z", "2"))
    assert lock_files.from_source(parse("--no-binary A_b\na-b==1\n")) == {"a-b"}


@pytest.mark.parametrize(
    "line", ["a>=1", "a==1 --hash=md5:00", "a @ https://x.example/a.whl", "-e .", "--index-url https://x.example"]
)
def test_line_that_locks_nothing_is_refused(line: str) -> None:
    with pytest.raises(LockError, match="is not `name==version`"):
        parse(line + "\n")


@pytest.fixture
def index() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = PAGE.encode() if self.path == "/a-b/" else b""
            self.send_response(200 if body else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_hashes_come_from_the_index_and_changes_are_reported(index: str) -> None:
    before = parse(f"# A comment.\nA-b==1.0 --hash=sha256:{DIGESTS[8]}\n".lower())
    after = lock_files.relocked(before, index)
    assert after.packages == (LockedPackage("a-b", "1.0", tuple(DIGESTS[:3])),)
    assert list(lock_files.changes(before, after)) == ["a-b 1.0: 3 hashes added, 1 dropped"]
    with pytest.raises(LockError, match=r"/z/: .*404"):
        lock_files.relocked(parse("z==2\n"), index)


# --- advisories -----------------------------------------------------------------------------------------------------


def advisory(name: str = "A_b", **affected: Any) -> dict[str, Any]:
    return {"id": "X-1", "summary": "bad\x1b[2J", "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **affected}]}


def ranges(*events: dict[str, str]) -> list[dict[str, Any]]:
    return [{"type": "ECOSYSTEM", "events": [*events]}]


@pytest.mark.parametrize(
    ("affected", "is_hit"),
    [
        ({"versions": ["0.9", "1.0"]}, True),
        ({"versions": ["0.9"]}, False),
        ({"ranges": ranges({"introduced": "0"})}, True),
        ({"ranges": ranges({"introduced": "0"}, {"fixed": "1.0"})}, False),
        ({"ranges": ranges({"introduced": "0"}, {"fixed": "1.0.1"})}, True),
        ({"ranges": ranges({"introduced": "0"}, {"fixed": "1.0.0"})}, False),
        ({"ranges": ranges({"introduced": "1.0rc1"}, {"fixed": "1.0.post1"})}, True),
        ({"ranges": ranges({"introduced": "1.0.post1"})}, False),
        ({"ranges": ranges({"introduced": "0.1"}, {"last_affected": "1.0"})}, True),
        ({"ranges": ranges({"introduced": "0.1"}, {"last_affected": "0.10"})}, False),
        ({"ranges": ranges({"introduced": "0"}, {"fixed": "0.5"}, {"introduced": "0.9"}, {"fixed": "2"})}, True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_version_is_found_in_the_ranges_of_an_advisory(affected: dict[str, Any], is_hit: bool) -> None:
    assert bool(list(advisories.advisories_of(advisory(**affected), {"a-b": {"1.0"}}))) is is_hit


def test_advisory_of_another_package_and_a_withdrawn_one_are_skipped() -> None:
    packages = {"a-b": {"1.0"}}
    assert not list(advisories.advisories_of(advisory("other", versions=["1.0"]), packages))
    assert not list(advisories.advisories_of(advisory(versions=["1.0"]) | {"withdrawn": "2026-01-01T00:00:00Z"}, packages))


@pytest.mark.parametrize(
    "broken", [b"{", b"[]", b'{"affected": [1]}', json.dumps(advisory(ranges=ranges({"introduced": "x"}))).encode()]
)
def test_advisory_that_cannot_be_read_is_an_error(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "bad.json").write_bytes(broken)
    (tmp_path / "good.json").write_text(json.dumps(advisory(versions=["1.0"])))
    found = list(advisories.search(tmp_path, {"a-b": {"1.0"}}))
    assert [is_unread for _line, is_unread in found] == [True, False]


def test_locked_packages_of_the_tree_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["advisories", str(tmp_path)])
    assert advisories.main() == 0
    (tmp_path / "one.json").write_text(json.dumps(advisory("NumPy", ranges=ranges({"introduced": "0"}))))
    assert advisories.main() == 1
    printed = capsys.readouterr().out
    assert printed.startswith("NumPy 2.") and "\x1b" not in printed
    (tmp_path / "two.json").write_text("{")
    assert advisories.main() == 2
