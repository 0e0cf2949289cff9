"""Terminal and log injection, and secrets: a web that tries to steer the terminal wherever its bytes can be shown.

One site has control bytes in its status line, headers, title, links, redirects and robots.txt. A cycle gathers it with every word
of its logs, and then every program that shows what came from the web is run. No control byte comes out, and no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.store.disk import opening
from shepherd.store.state.database import Database
from tests.crash.test_politeness import Garden, garden
from tests.support.origin import Answer, ok

STEER = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
RAW = STEER.encode()
LATIN = "\x1b]0;owned\x07\x9b2J"
HTML = b"<html><head><title>" + RAW + b"</title></head><a href='/\x1b[5m'>x</a><a href='//b.example/" + RAW + b"'>y</a></html>"
ROUTES: dict[str, Answer] = {
    "a.example/robots.txt": ok(b"User-agent: *\nDisallow: /no" + RAW + b"\nSitemap: http://a.example/" + RAW + b"\n"),
    "a.example/": ok(HTML, f"Content-Type: text/html; x={LATIN}", f"X-{LATIN}: {LATIN}", f"Set-Cookie: {LATIN}"),
    "a.example/moved": ok(b"", f"Location: http://b.example/{LATIN}", status=f"302 {LATIN}"),
    "a.example/broken": ok(b"no gzip", "Content-Encoding: gzip", "Content-Type: text/html"),
    "a.example/odd": ok(RAW, f"Content-Type: {LATIN}/{LATIN}", f"ETag: {LATIN}", f"Retry-After: {LATIN}"),
}
URLS = tuple(f"http://{route}" for route in ROUTES if not route.endswith("robots.txt"))
SHOWING: tuple[tuple[str, ...], ...] = (
    ("shep", "list"),
    ("shep", "list", "--json"),
    ("shep", "stats"),
    *(("shep", command, url) for command in ("explain", "robots", "url") for url in URLS),
    *(("shep", "cat", "--headers", url) for url in URLS),
    *(("shep", "cat", "--json", url) for url in URLS),
    ("shep", "filter", "check", *URLS),
    ("shep", "audit", "politeness"),
    ("shep", "fetch", "--wait", "http://a.example/odd"),
    ("shep", "fetch", "--wait", "--json", "http://a.example/moved"),
    ("shep-dump", "index", "-u"),
    ("shep-dump", "sites"),
    ("shep-dump", "servers"),
    ("shep-dump", "buckets"),
    ("shep-dump", "control"),
    ("shep-dump", "inbox"),
    ("shep-dump", "leases"),
    *(("shep-dump", "bucket", url) for url in URLS),
    *(("shep-dump", "bucket", "--json", url) for url in URLS),
    ("shep-check",),
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Garden, list[tuple[str, str]]]]:
    """What every program said, by its call."""
    with garden(tmp_path_factory.mktemp("hostile"), ROUTES, delay_s=0.1) as one:
        said = []
        for call in (("shep-init",), ("shep", "insert", *URLS)):
            said.append(run(one, *call))
        for phase in ("merge", "select", "record", "plan", "reap", "cork"):
            said.append(run(one, f"shep-{phase}", "-v"))
        for kind in ("journal", "contrib"):
            said.append(run(one, "shep-dump", kind, "-u"))
            said.append(run(one, "shep-dump", kind, "--json"))
        said.append(run(one, "shepherd", "cycle", "-v", "--seconds", "10"))
        said += [run(one, *call) for call in SHOWING]
        logs = Database(one.home / "db").log_path
        said += [(f"log/{path.name}", path.read_text()) for path in logs.iterdir() if path.is_file()]
        yield one, said


def run(one: Garden, *call: str) -> tuple[str, str]:
    done = one.run(*call)
    assert done.returncode in (0, 4), f"{call}: {done.returncode}: {done.stdout}{done.stderr}"
    return " ".join(call), done.stdout + done.stderr


def test_no_control_byte_reaches_a_terminal_or_a_log(outputs: tuple[Garden, list[tuple[str, str]]]) -> None:
    one, said = outputs
    assert {f"/{url.partition('/')[2]}" for url in ROUTES} <= set(one.origin.paths()), "it was not all gathered"
    raw = [name for name, text in said if any(not c.isprintable() and c != "\n" for c in text)]
    assert raw == []
    assert sum("owned" in text for _name, text in said) >= 8, "the bytes that steer were not shown at all"


def test_key_of_the_footprints_is_never_shown(outputs: tuple[Garden, list[tuple[str, str]]]) -> None:
    one, said = outputs
    state = Database(one.home / "db").closed()
    key = state.control.key.hex()
    assert re.search(rf"^key {key}$", opening.read_file(state.path / "control").decode(), re.MULTILINE)
    assert [name for name, text in said if key in text.lower() or repr(state.control.key) in text] == []


def test_password_in_a_url_is_never_shown_or_stored(outputs: tuple[Garden, list[tuple[str, str]]]) -> None:
    one, _said = outputs
    secret, url = "hunter2", "http://user:hunter2@a.example/"
    for call in (("insert", url), ("url", url), ("robots", url), ("fetch", url), ("explain", url), ("cat", url)):
        done = one.run("shep", *call)
        assert done.returncode == 2 and secret not in done.stdout + done.stderr, call
    assert not [path for path in (one.home / "db").rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_names_in_the_inbox_that_lead_elsewhere_are_ignored(
    outputs: tuple[Garden, list[tuple[str, str]]], tmp_path: Path
) -> None:
    """Path traps: only names that are built by the store are ever opened or removed."""
    one, _said = outputs
    inbox, outside = one.home / "db" / "inbox", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (inbox / "1790000000000-host-1-1.harvest").symlink_to(outside)
    (inbox / "..%2f..%2fescape.req").write_text("{}")
    (inbox / "1790000000000-host-1-2.contact").symlink_to(outside / "kept")
    run(one, "shepherd", "cycle", "-q", "--seconds", "5")
    assert (outside / "kept").read_text() == "kept" and [path.name for path in outside.iterdir()] == ["kept"]
    assert (inbox / "..%2f..%2fescape.req").exists()
    for path in inbox.iterdir():
        path.unlink()
