"""Which documents a query means: the parameters of /documents and /count, and the state that `since` names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from shepherd import sections
from shepherd.errors import UsageError
from shepherd.readers.choice import WEIGHTS, Choice, read_part
from shepherd.report.narrow import Narrowing
from shepherd.serve.answers import Refused
from shepherd.store.state import keys
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State

_NUMBER: Final = re.compile(r"[0-9]{1,15}")


def choice_of(parameters: Mapping[str, str]) -> Choice:
    """The parameters as a choice, but for `since`; Refused says what is wrong with them."""
    best, weight = number(parameters, "best"), _weight(parameters, "weight", 0)
    part, parts = _part(parameters)
    robots, redirects = _flag(parameters, "robots"), _flag(parameters, "redirects")
    return Choice(part, parts, best, weight, _sections(parameters), robots, redirects)


def narrowed_of(parameters: Mapping[str, str]) -> Narrowing:
    """What else the documents are narrowed by."""
    return Narrowing(parameters.get("site"), _weight(parameters, "most_weight", WEIGHTS - 1))


def _weight(parameters: Mapping[str, str], name: str, default: int) -> int:
    weight = number(parameters, name)
    if weight is not None and weight >= WEIGHTS:
        raise Refused(400, f"`{name}` is from 0 to {WEIGHTS - 1}")
    return default if weight is None else weight


def number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise Refused(400, f"`{name}` is a number, not {text[:40]!r}")
    return int(text)


def _part(parameters: Mapping[str, str]) -> tuple[int, int]:
    text = parameters.get("part", "1/1")
    try:
        return read_part(text)
    except ValueError as error:
        raise Refused(400, f"`part` {text[:40]!r}: {error}") from None


def _sections(parameters: Mapping[str, str]) -> tuple[int, ...]:
    try:
        return (
            tuple(sections.section_number(name) for name in parameters["section"].split(",")) if "section" in parameters else ()
        )
    except ValueError as error:
        raise Refused(400, f"`section`: {error}") from None


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    if parameters.get(name, "0") not in ("0", "1"):
        raise Refused(400, f"`{name}` is 0 or 1")
    return parameters.get(name) == "1"


def since_of(parameters: Mapping[str, str], database: Database, state: State) -> State | None:
    """What is known of the state that the reader had before, which may be deleted since."""
    since_number = number(parameters, "since")
    if since_number is None:
        return None
    if since_number > state.number:
        raise Refused(
            400, f"`since`: state {since_number} is newer than state {state.number}, which is leased; lease a newer one"
        )
    try:
        since = keys.remembered(database, since_number)
    except UsageError as error:
        raise Refused(410, str(error)) from None
    if since.control.key != state.control.key:
        raise Refused(410, f"state {since_number} was made under another footprint key; read everything, and continue from there")
    return since
