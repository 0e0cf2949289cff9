"""/openapi.json, made of the routes and of the Structs that they answer with: there is no such file.

`Operation` is what a route says of itself beside its path, method and roles (routes.py). The rest is the same for all: who lacks
a token or a role, asks too often or sends what is not known is refused with an `error`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from shepherd.serve.tokens import ClientRole
from shepherd.wire import api

Schema: TypeAlias = dict[str, Any]
JSON: Final = "application/json"
BYTES: Final[Schema] = {"type": "string", "format": "binary"}
TEXT: Final[Schema] = {"type": "string"}
ANYTHING: Final[Schema] = {"type": "object"}
INFO: Final = {
    "title": "Shepherd, to readers",
    "version": "1",
    "description": "Lease a state of a web gatherer's database and pull its documents or files while gathering continues; send "
    "back weights. docs/serve.md has examples. Every GET has a HEAD. Every refusal is an object with `error`.",
}
IN_PATH: Final = {"lease": "The name that POST /v1/leases has given.", "path": "One of those, with its slashes."}
_REFS: Final = "#/components/schemas/{name}"
_REFUSED: Final = {"$ref": "#/components/responses/refused"}
_OPEN_REFUSALS: Final = (400, 429)
_REFUSALS: Final = (400, 401, 403, 429, 500)


def whole(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def word(words: Iterable[str]) -> Schema:
    return {"type": "string", "enum": list(words)}


def pattern(text: str) -> Schema:
    return {"type": "string", "pattern": text}


@dataclass(frozen=True)
class Parameter:
    """One of a query."""

    name: str
    description: str
    schema: Mapping[str, Any]
    is_required: bool = False

    def described(self) -> Schema:
        return {"name": self.name, "in": "query", "description": self.description, "required": self.is_required} | {
            "schema": dict(self.schema)
        }


@dataclass(frozen=True)
class Content:
    """A body, by its media types: a Struct, or a schema of what is no JSON of ours. `headers` are described by a text each."""

    description: str
    kinds: Mapping[str, type[msgspec.Struct] | Schema] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def described(self) -> Schema:
        content = {kind: {"schema": _schema(what)} for kind, what in self.kinds.items()}
        headers = {name: {"description": text, "schema": whole(0)} for name, text in self.headers.items()}
        fields = {"description": self.description, "content": content, "headers": headers}
        return {name: value for name, value in fields.items() if value}


def answers(struct: type[msgspec.Struct], description: str) -> Content:
    return Content(description, {JSON: struct})


@dataclass(frozen=True)
class Operation:
    """`refusals` are statuses beside those that every route has."""

    name: str
    summary: str
    contents: Mapping[int, Content]
    refusals: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, type[msgspec.Struct] | Schema] = field(default_factory=dict)


class DescribedRoute(Protocol):
    """A route."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def roles(self) -> tuple[ClientRole, ...]: ...
    @property
    def operation(self) -> Operation: ...


def document(routes: Iterable[DescribedRoute]) -> Schema:
    """The whole description."""
    all_routes = list(routes)
    structs = {what for route in all_routes for what in _contents(route.operation) if isinstance(what, type)} | {api.Refusal}
    _, schemas = msgspec.json.schema_components(sorted(structs, key=lambda struct: struct.__name__), ref_template=_REFS)
    for schema in schemas.values():
        schema.setdefault("additionalProperties", False)  # a client skips what it does not know, but nothing else is sent
    paths: dict[str, Schema] = {}
    for route in all_routes:
        shared = _in_path(route)
        item = paths.setdefault(_path(route), {"parameters": shared} if shared else {})
        item[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"refused": answers(api.Refusal, "Why not, and what to do.").described()},
            "schemas": schemas,
        },
    }


def _operation(route: DescribedRoute) -> Schema:
    operation = route.operation
    refusals = {*operation.refusals, *(_REFUSALS if route.roles else _OPEN_REFUSALS)}
    responses = {status: content.described() for status, content in operation.contents.items()}
    responses |= {status: dict(_REFUSED) for status in refusals}
    fields: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        **({"x-roles": [str(role) for role in route.roles]} if route.roles else {"security": []}),
        "parameters": [parameter.described() for parameter in operation.parameters],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    if operation.body:
        content = {kind: {"schema": _schema(what)} for kind, what in operation.body.items()}
        fields["requestBody"] = {"required": True, "content": content}
    return {name: value for name, value in fields.items() if value or name == "security"}


def _in_path(route: DescribedRoute) -> list[Schema]:
    names = re.findall(r"{(\w+)}", _path(route))
    return [{"name": name, "in": "path", "required": True, "schema": TEXT} | _about(name) for name in names]


def _about(name: str) -> Schema:
    return {"description": IN_PATH[name]} if name in IN_PATH else {}


def _path(route: DescribedRoute) -> str:
    """As OpenAPI has it, without the patterns of our router."""
    return re.sub(r":[^}]*}", "}", route.path)


def _contents(operation: Operation) -> Iterable[type[msgspec.Struct] | Schema]:
    for content in operation.contents.values():
        yield from content.kinds.values()
    yield from operation.body.values()


def _schema(what: type[msgspec.Struct] | Schema) -> Schema:
    return {"$ref": _REFS.format(name=what.__name__)} if isinstance(what, type) else what
