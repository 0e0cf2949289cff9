"""shep-export from a shep-serve on another machine: the same bytes as from the database itself, or a refusal that says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.formats.control import CLOSED
from shepherd.store.disk.names import StateName
from tests.support.programs import call
from tests.support.segment_states import fill, publish
from tests.support.serving import Serving, flock, serving, token_of
from tests.worlds import NOW


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with two states, the newer one with some other documents."""
    home = tmp_path_factory.mktemp("remote")
    database = fill(home, flock(120))
    with database.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(3, CLOSED), NOW)
        publish(builder, flock(140, size=41)[30:], 9_000)
        writer.publish(builder, {"phase": "test"})
    token = home / "token"
    token.touch(0o600)
    token.write_text(token_of("reader") + "\n")
    with serving(home) as one:
        yield one


def export(served: Serving, to: Path, *arguments: str, remote: bool = True, status: int = 0) -> str:
    place = ["--from", served.url, "--token-file", str(served.home / "token")] if remote else ["--db", str(served.home / "db")]
    done = call("shep-export", *place, "--cf", str(served.home / "cf"), "-o", str(to), *arguments)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


CHOICES = (
    ("--format", "warc", "--cdxj"),
    ("--format", "jsonl", "--part", "2/3"),
    ("--format", "stream", "--since", "2"),
    ("--format", "jsonl", "--best", "20", "--section", "html", "--robots", "--redirects", "--weight", "4.."),
    ("--format", "tar.gz", "--state", "2"),
    ("--format", "jsonl", "--site", "www.h3.example"),
    ("--format", "stream", "--weight", "9..40", "--since", "2", "--robots"),
)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: " ".join(choice[1:3]))
def test_export_from_a_server_is_that_of_the_database(served: Serving, tmp_path: Path, choice: tuple[str, ...]) -> None:
    told = [json.loads(export(served, tmp_path / str(remote), *choice, "--json", remote=remote)) for remote in (True, False)]
    assert told[0] == told[1] and sum(told[0]["counts"].values()) > 10
    here, there = ({file.name: file.read_bytes() for file in (tmp_path / str(remote)).iterdir()} for remote in (True, False))
    assert here == there
    assert served.database.leases.all() == []


@pytest.mark.parametrize("url", ["http://h0.example/", "https://www.h0.example/"])
def test_url_of_another_row_of_a_document_exports_the_document(served: Serving, tmp_path: Path, url: str) -> None:
    told = json.loads(export(served, tmp_path / "out", "--format", "jsonl", "--json", url, remote=False))
    assert told["counts"]["present"] == 1
    assert b'"https://www.h0.example/"' in (tmp_path / "out" / told["files"][0]["name"]).read_bytes()


def test_dry_run_counts_documents_and_writes_nothing(served: Serving, tmp_path: Path) -> None:
    told = json.loads(export(served, tmp_path / "out", "--format", "stream", "--since", "2", "--dry-run", "--json"))
    assert told["counts"]["documents"] > 10 < told["counts"]["gone"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--format", "parquet-urls"), "run shep-export there"),
        (("--format", "buckets"), "run shep-export there"),
        (("--format", "jsonl", "--type", "error"), "chooses by --site"),
        (("--format", "jsonl", "http://h1.example/1"), "chooses by --site"),
        (("--format", "jsonl", "--cursor", "../x"), "not a name for a cursor"),
    ],
)
def test_what_a_server_cannot_be_asked_is_refused(served: Serving, tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    assert why in export(served, tmp_path / "out", *arguments, status=2)
    assert not (tmp_path / "out").exists()


def test_cursor_of_a_server_exports_what_is_new_and_moves(served: Serving, tmp_path: Path) -> None:
    kind = ("--format", "jsonl", "--robots", "--json")
    out, local = tmp_path / "out", tmp_path / "local"
    export(served, out, *kind, "--cursor", "daily", "--state", "2")
    export(served, local, *kind, "--state", "2", remote=False)
    would = json.loads(export(served, out, *kind, "--cursor", "daily", "--dry-run"))
    told = json.loads(export(served, out, *kind, "--cursor", "daily"))
    assert (told["state"], told["since"]) == (would["state"], would["since"]) == (3, 2)
    export(served, local, *kind, "--since", "2", remote=False)
    files = {path.name: path.read_bytes() for path in out.iterdir() if not path.name.startswith(".")}
    assert files == {path.name: path.read_bytes() for path in local.iterdir()}
    assert "nothing is new since state 3" in export(served, out, *kind, "--cursor", "daily", status=4)
    for other in (("--format", "stream", "--robots"), ("--format", "jsonl", "--robots", "--site", "h1.example")):
        assert "the cursor daily continues" in export(served, out, *other, "--cursor", "daily", status=2)
    (out / ".daily.cursor").write_text("{}")
    assert "this is not a cursor; remove it" in export(served, out, *kind, "--cursor", "daily", status=11)


def test_export_without_a_token_or_with_a_readable_one_is_refused(served: Serving, tmp_path: Path) -> None:
    done = call("shep-export", "--from", served.url, "--format", "jsonl", "-o", str(tmp_path / "out"))
    assert done.returncode == 2 and "--token-file" in done.stderr
    readable = tmp_path / "token"
    readable.write_text("x")
    readable.chmod(0o644)
    done = call(
        "shep-export", "--from", served.url, "--token-file", str(readable), "--format", "jsonl", "-o", str(tmp_path / "out")
    )
    assert done.returncode == 2 and "chmod 600" in done.stderr
