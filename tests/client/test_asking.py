"""Requests that are slightly off, and HEAD requests: how they are answered."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shepherd.client import pull
from shepherd.errors import UsageError
from shepherd.serve import routes
from tests.client.test_stream import succeed
from tests.support.segment_states import fill
from tests.support.serving import Serving, flock, serving, token_of
from tests.support.waiting import PATIENCE_S

WHERE = "a token goes into the header Authorization: Bearer TOKEN"
VARYING = {"Date"}


@pytest.fixture(scope="module")
def lease(served: Serving) -> Iterator[str]:
    with served.as_client("boss") as server, server.leased("test") as one:
        yield one.name


def request(served: Serving, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    connection.request(method, path, headers={"Authorization": f"Bearer {token_of('boss')}", **headers})
    answer = connection.getresponse()
    found = answer.status, {name: value for name, value in answer.getheaders() if name not in VARYING}, answer.read()
    connection.close()
    return found


# --- HEAD -------------------------------------------------------------------------------------------------------


GETS = [route.path for route in routes.ROUTES if route.method == "GET"]


@pytest.mark.parametrize("path", GETS)
def test_head_has_the_status_and_headers_of_get(served: Serving, lease: str, path: str) -> None:
    where = path.replace("{lease}", lease).replace("{path:.+}", "index/weight").replace("{name}", "page.js")
    where += {"/document": "?url=http://h1.example/1", "/v1/explain": "?url=http://h1.example/1"}.get(
        where.removeprefix(f"/v1/leases/{lease}"), ""
    )
    (status, headers, body), (got, with_body, _) = request(served, "HEAD", where), request(served, "GET", where)
    assert (status, body) == (got, b"") == (200, b"")
    if path in ("/metrics", "/v1/status", "/v1/explain"):  # what moves may have another length by now
        assert headers.pop("Content-Length").isdecimal() and with_body.pop("Content-Length")
    assert headers == with_body


def test_head_of_a_file_and_its_parts_has_no_body(served: Serving, lease: str) -> None:
    file = f"/v1/leases/{lease}/files/index/weight"
    status, headers, body = request(served, "HEAD", file, Range="bytes=2-5")
    assert (status, headers["Content-Range"].partition("/")[0], headers["Content-Length"], body) == (206, "bytes 2-5", "4", b"")
    assert request(served, "HEAD", file, **{"If-None-Match": headers["ETag"]})[0] == 304
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    for method, path, expected in (
        ("HEAD", file, 200),
        ("HEAD", "/nowhere", 404),
        ("HEAD", "/v1/states", 401),
        ("GET", "/", 200),
    ):
        bare = {} if expected == 401 else {"Authorization": f"Bearer {token_of('boss')}"}
        connection.request(method, path, headers=bare)
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (expected, method == "GET")
    connection.close()
    assert request(served, "HEAD", "/v1/feedback")[0] == 405


def test_head_does_not_remember_a_state_as_read(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served:
        with served.as_client() as server, server.leased("x") as lease:
            assert request(served, "HEAD", f"/v1/leases/{lease.name}/documents")[1]["Shepherd-Items"] == "4"
        succeed(tmp_path, 3, flock(4))
        assert served.as_client().states()["since"] == [3]
        (told,) = (event for event in served.events() if event.get("method") == "HEAD")
        assert told["bytes"] == 0


# --- since ------------------------------------------------------------------------------------------------------


def test_since_a_newer_state_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    succeed(tmp_path, 3, flock(4), keep=9)
    with serving(tmp_path) as served:
        assert len(list(pull(served.url, token_of("reader")))) == 5
        with pytest.raises(UsageError, match="400: `since`: state 3 is newer than state 2"):
            list(pull(served.url, token_of("reader"), state=2, since=3))
        assert list(pull(served.url, token_of("reader"), state=3, since=3)) == []


# --- tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/static/page.js", "/v1/states", "/v1/leases", "/metrics"])
@pytest.mark.parametrize("name", ["", "boss"])
def test_token_in_a_query_is_refused_with_advice_and_not_repeated(served: Serving, path: str, name: str) -> None:
    answer = served.ask(f"{path}?token={token_of('boss')}", name=name)
    assert (answer.status_code, WHERE in answer.json()["error"]) == (400, True)
    assert token_of("boss") not in answer.text
    assert served.ask(f"/?access_token={token_of('boss')}", name=name).status_code == 400


def test_wrong_token_and_missing_token_have_different_messages(served: Serving) -> None:
    none, wrong = (served.ask("/v1/states", name="", headers=headers) for headers in ({}, {"Authorization": "Bearer wrong"}))
    assert none.status_code == wrong.status_code == 401
    assert WHERE in none.json()["error"] and "this token is unknown" in wrong.json()["error"]
    assert none.headers["WWW-Authenticate"].startswith("Bearer") and wrong.headers["WWW-Authenticate"].startswith("Bearer")
