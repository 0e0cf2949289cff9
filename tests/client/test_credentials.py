"""What a user passes to the client: a slip is reported at once, as what it is, and never with the token in it."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from shepherd.client import Server, pull
from shepherd.errors import IoFailed, PeerLost, PeerRefused, ShepherdError, UsageError
from tests.support.liar import lying
from tests.support.programs import ROOT
from tests.support.serving import Serving, token_of

SECRET = "s3cret-t0ken"


def test_blanks_and_line_ends_around_a_token_are_ignored(served: Serving) -> None:
    for token in (token_of("reader") + "\n", f" {token_of('reader')}\r\n"):
        assert sum(1 for _ in pull(served.url, token, best=3)) == 3


@pytest.mark.parametrize("token", [f"{SECRET}\nX-Other: 1", f"{SECRET}\0", f"{SECRET}\u20ac", f"{SECRET} two", " \n", ""])
def test_token_that_cannot_be_sent_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(UsageError, match="token") as told:
        Server("http://127.0.0.1:1", token)
    assert SECRET not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{SECRET}@127.0.0.1:1",
        f"me:{SECRET}@127.0.0.1:1",
        f"http://127.0.0.1:1/?token={SECRET}",
        f"ftp://127.0.0.1/#token={SECRET}",
        f"http://a.example/#token={SECRET}",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:port",
        "http://[::1",
        "https://a..example",
        f"https://{'a' * 64}.example",
        "127.0.0.1:1",
        "",
    ],
)
def test_invalid_url_is_refused_and_its_token_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="https://HOST:PORT") as told:
        Server(url, SECRET).states()
    assert SECRET not in "".join(traceback.format_exception(told.value))


def test_missing_or_broken_file_of_authorities_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for ca in (tmp_path / "missing.pem", broken):
        with pytest.raises(UsageError, match=f"{ca.name}.*authorities"):
            Server("https://127.0.0.1:1", SECRET, ca=ca)


def test_file_of_authorities_that_vanishes_later_is_named(tmp_path: Path) -> None:
    ca = tmp_path / "vanishing"
    ca.write_bytes((ROOT / "tests" / "support" / "self-signed.pem").read_bytes())
    with Server("https://127.0.0.1:1", SECRET, ca=ca) as server:
        ca.unlink()
        with pytest.raises(IoFailed, match="vanishing"):
            server.states()


def test_request_that_cannot_be_sent_fails_at_once(tmp_path: Path, served: Serving) -> None:
    with served.as_client("mirror") as server, server.leased("x") as lease, pytest.raises(UsageError, match="InvalidHeader"):
        server.file(lease, "control", have="two\nlines")


def test_no_failure_shows_the_token(tmp_path: Path, served: Serving) -> None:
    def nothing(_handler: object) -> None:
        """The connection ends without an answer."""

    told: list[ShepherdError] = []
    with lying(tmp_path, {"/states": nothing}) as liar:
        for url in ("http://127.0.0.1:1", liar.url, served.url):
            with Server(url, SECRET, tries=1) as server, pytest.raises((PeerLost, PeerRefused)) as failed:
                server.states()
            told.append(failed.value)
    assert [type(one).__name__ for one in told] == ["PeerLost", "PeerLost", "PeerRefused"]
    assert all(SECRET not in "".join(traceback.format_exception(one)) for one in told)
