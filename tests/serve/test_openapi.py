"""/openapi.json and the server: the same routes, roles and parameters, and answers as it says."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from shepherd.serve import routes
from shepherd.serve.openapi import document
from shepherd.wire import api
from tests.support.serving import Serving

SPEC: dict[str, Any] = json.loads(json.dumps(document(routes.ROUTES)))


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    methods = ("get", "post", "put", "delete")
    return {(method.upper(), path): item[method] for path, item in SPEC["paths"].items() for method in methods if method in item}


def test_every_route_is_described() -> None:
    known = {(route.method, route.path.replace(":.+", "")): route for route in routes.ROUTES}
    assert set(operations()) == set(known)
    for key, operation in operations().items():
        assert operation.get("x-roles", []) == [str(role) for role in known[key].roles], key
        assert ("security" in operation) == (not known[key].roles), key
        assert operation["operationId"] and operation["summary"]


def test_documents_have_the_parameters_of_count_and_where_to_begin() -> None:
    found = {path: [one["name"] for one in operation.get("parameters", ())] for (_, path), operation in operations().items()}
    assert found["/v1/leases/{lease}/documents"] == [*found["/v1/leases/{lease}/count"], "after"]


def test_every_struct_of_the_api_is_described_and_nothing_else() -> None:
    structs = {name for name, one in vars(api).items() if isinstance(one, type) and one.__module__ == api.__name__}
    assert set(SPEC["components"]["schemas"]) == structs


def test_what_a_reader_sees_is_explained() -> None:
    for key, operation in operations().items():
        assert all(one.get("description") for one in operation.get("parameters", ())), key
        assert all("$ref" in one or one["description"] for one in operation["responses"].values()), key


def test_parameters_are_those_that_the_server_takes(served: Serving) -> None:
    with served.as_client("boss") as server, server.leased("kept") as lease:
        for (method, path), operation in operations().items():
            if method != "GET" or not operation.get("x-roles"):
                continue
            where = path.replace("{lease}", lease.name).replace("{path}", "control")
            refused = served.ask(f"{where}?nonsense=1", name="boss")
            names = refused.json()["error"].partition("allowed are ")[2]
            taken = [] if names == "none" else names.split(", ")
            assert (refused.status_code, taken) == (400, [one["name"] for one in operation.get("parameters", ())]), path


def test_served_description_is_that_of_the_routes(served: Serving) -> None:
    assert served.ask("/openapi.json", name="").json() == SPEC


def described(path: str, method: str, status: int) -> dict[str, Any]:
    answer: dict[str, Any] = operations()[method, path]["responses"][str(status)]
    if "$ref" in answer:
        answer = SPEC["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return answer


def test_answers_are_as_described(served: Serving) -> None:
    with served.as_client("boss") as server, server.leased("kept") as lease:
        one = f"/v1/leases/{lease.name}"
        asked: list[tuple[str, str, str, dict[str, Any], int]] = [
            ("GET", "/openapi.json", "/openapi.json", {}, 200),
            ("GET", "/v1/states", "/v1/states", {}, 200),
            ("GET", "/v1/states", "/v1/states", {"name": ""}, 401),
            ("GET", "/v1/states", "/v1/states", {}, 200),
            ("GET", "/v1/leases", "/v1/leases", {}, 200),
            ("POST", "/v1/leases", "/v1/leases", {"data": '{"purpose": "x"}'}, 201),
            ("POST", "/v1/leases", "/v1/leases", {"data": "{}"}, 400),
            ("POST", "/v1/leases", "/v1/leases", {"name": "weigher"}, 403),
            ("PUT", "/v1/leases/{lease}", one, {"data": "{}"}, 200),
            ("GET", "/v1/leases/{lease}/documents", one + "/documents", {}, 200),
            ("GET", "/v1/leases/{lease}/documents", one + "/documents?since=77", {}, 400),
            ("GET", "/v1/leases/{lease}/documents", one + "/documents?since=0", {}, 410),
            ("GET", "/v1/leases/{lease}/count", one + "/count", {}, 200),
            ("GET", "/v1/leases/{lease}/document", one + "/document?url=http://h1.example/1", {}, 200),
            ("GET", "/v1/leases/{lease}/document", one + "/document?url=http://h1.example/no", {}, 404),
            ("GET", "/v1/leases/{lease}/files", one + "/files", {}, 200),
            ("GET", "/v1/leases/{lease}/files/{path}", one + "/files/control", {}, 200),
            ("GET", "/v1/leases/{lease}/files/{path}", one + "/files/control", {"headers": {"Range": "bytes=0-1"}}, 206),
            ("POST", "/v1/feedback", "/v1/feedback", {"data": "nonsense"}, 400),
            ("POST", "/v1/feedback", "/v1/feedback", {"data": "http://h1.example/1 5"}, 202),
            ("DELETE", "/v1/leases/{lease}", one, {}, 200),
            ("DELETE", "/v1/leases/{lease}", one, {}, 410),
            ("GET", "/", "/", {"name": ""}, 200),
            ("GET", "/", "/?token=x", {"name": ""}, 400),
            ("GET", "/static/{name}", "/static/page.js", {"name": ""}, 200),
            ("GET", "/static/{name}", "/static/nothing", {"name": ""}, 404),
            ("GET", "/v1/status", "/v1/status", {}, 200),
            ("GET", "/v1/history", "/v1/history?cycles=5", {}, 200),
            ("GET", "/v1/servers", "/v1/servers", {}, 200),
            ("GET", "/v1/sites", "/v1/sites?sort=x", {}, 400),
            ("GET", "/v1/sites", "/v1/sites", {}, 200),
            ("GET", "/v1/explain", "/v1/explain?url=http://h1.example/1", {}, 200),
            ("GET", "/metrics", "/metrics", {}, 200),
        ]
        for method, path, where, how, status in asked:
            answer = served.ask(where, method, **({"name": "boss"} | how))
            assert answer.status_code == status, (method, where, answer.text)
            kinds = described(path, method, status)["content"]
            kind = answer.headers["Content-Type"].partition(";")[0]
            assert kind in kinds, (path, kind)
            if kind == "application/json":
                schema = kinds[kind]["schema"] | {"components": SPEC["components"]}
                jsonschema.Draft202012Validator(schema).validate(answer.json())
        assert {path for _, path, *_ in asked} == {path for _, path in operations()}
    for item in served.database.inbox.items("feedback"):
        item.path.unlink()


@pytest.mark.parametrize("name", sorted(SPEC["components"]["schemas"]))
def test_schema_is_valid(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SPEC["components"]["schemas"][name])
