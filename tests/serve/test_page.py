"""The page and its data over HTTP: who gets what, with which headers, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from shepherd.serve.openapi import document
from shepherd.serve.page import FILES
from shepherd.serve.routes import ROUTES
from tests.support.page_states import make_herd
from tests.support.serving import Serving, serving

DATA = ("/v1/status", "/v1/history", "/v1/servers", "/v1/sites", "/v1/explain?url=http://a.example/", "/metrics")
MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=")
OTHERS = ("", "nothing.js", "../app.py", "..%2fapp.py", "%2e%2e/openapi.json", "/etc/passwd", "index.html%00")
API = document(ROUTES)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    home = tmp_path_factory.mktemp("page")
    make_herd(home)
    with serving(home) as one:
        yield one


def test_page_has_no_data_and_allows_only_its_own_files(served: Serving) -> None:
    answer = served.ask("/", name="")
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "a.example" not in answer.text
    policy = {part.split()[0]: part.split()[1:] for part in answer.headers["Content-Security-Policy"].split(";")}
    assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == policy["base-uri"] == ["'none'"]
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == ["'self'"]
    assert (answer.headers["X-Content-Type-Options"], answer.headers["Referrer-Policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize("name", FILES)
def test_file_of_the_page_does_not_reach_elsewhere(served: Serving, name: str) -> None:
    answer = served.ask(f"/static/{name}", name="")
    assert answer.status_code == 200 and "script-src 'self'" in answer.headers["Content-Security-Policy"]
    text = answer.text.replace("http://www.w3.org/2000/svg", "").replace("https://example.org/", "")
    assert "http:" not in text and "https:" not in text and "//cdn" not in text
    assert not [
        word for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=") if word in text
    ]


@pytest.mark.parametrize(
    "name", ["", "nothing.js", "../app.py", "..%2fapp.py", "%2e%2e/openapi.json", "/etc/passwd", "index.html%00"]
)
def test_only_files_of_the_page_are_served(served: Serving, name: str) -> None:
    assert served.ask(f"/static/{name}", name="").status_code == 404


@pytest.mark.parametrize("path", DATA)
def test_data_needs_the_right_token(served: Serving, path: str) -> None:
    assert [served.ask(path, name=name).status_code for name in ("", "nobody", "mirror", "weigher", "reader", "boss")] == [
        401, 401, 403, 403, 200, 200,
    ]  # fmt: skip


@pytest.mark.parametrize("path", DATA[:-1])
def test_answer_with_rows_of_every_table_is_as_described(served: Serving, path: str) -> None:
    [content] = API["paths"][path.partition("?")[0]]["get"]["responses"]["200"]["content"].values()
    schema: dict[str, Any] = {"components": API["components"], **content["schema"]}
    answer = served.ask(path).json()
    jsonschema.Draft202012Validator(schema).validate(answer)
    assert answer


@pytest.mark.parametrize(
    "path",
    [
        "/v1/status?x=1", "/v1/history?cycles=0", "/v1/history?cycles=1001", "/v1/history?hours=x",
        "/v1/history?cycles=1&cycles=2",
        "/v1/servers?sort=qkey", "/v1/servers?limit=-1", "/v1/servers?limit=٣", "/v1/servers?backing_off=yes", "/v1/sites?sort=",
        "/v1/sites?limit=99999999999999999999", "/v1/explain", "/v1/explain?url=", "/v1/explain?url=nothing",
        "/v1/explain?url=ftp://a.example/", "/v1/explain?url=http://", "/v1/explain?url=http://a%00b/", "/v1/explain?url=%ff%fe",
        "/v1/explain?url=http://u:secret@a.example:x/", "/v1/explain?url=http://a.example/%20%0d%0aX: y%0a", "/metrics?name[]=x",
    ],
)  # fmt: skip
def test_bad_query_is_refused(served: Serving, path: str) -> None:
    answer = served.ask(path)
    assert answer.status_code == 400 and answer.json()["error"], answer.text
    assert "secret" not in answer.text


def test_overlong_url_is_refused_and_does_not_stop_the_server(served: Serving) -> None:
    assert served.ask("/v1/explain?url=http://a.example/" + "x" * 3_000).status_code == 400
    assert served.ask("/v1/explain?url=http://a.example/" + "x" * 30_000).status_code in (400, 414)
    assert served.ask("/v1/status").status_code == 200


def test_requests_are_counted_by_route(served: Serving) -> None:
    for path in ("/v1/leases/a", "/v1/leases/b", "/nowhere", "/static/x"):
        served.ask(path, method="DELETE" if "leases" in path else "GET")
    text = served.ask("/metrics").text
    assert 'shepherd_serve_requests_total{route="/v1/leases/{lease}",status="404"} 2.0' in text
    assert 'route="none",status="404"' in text and "nowhere" not in text
    assert served.ask("/metrics").headers["Content-Type"].startswith("text/plain; version=0.0.4")
