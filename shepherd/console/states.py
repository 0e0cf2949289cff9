"""`--state` of the tools that look at any finished directory, not only at closed states."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.store.disk.names import StateName
    from shepherd.store.state.database import Database

R = TypeVar("R")


def state_name(default: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """--state NAME, as `state: str | None`; `default` says what is taken without it."""
    text = f"A state such as 12, or an unfinished one such as 12.reap.  [default: {default}]"
    return click.option("--state", metavar="NAME", help=text)


def find(database: Database, text: str) -> StateName:
    """The finished directory that an operator means by `12`, `12.reap` or `000012.reap`."""
    from shepherd.store.disk import names

    number, dot, phase = text.partition(".")
    name = names.parse_state(f"{number.zfill(6)}{dot}{phase}") or names.parse_state(text)
    states = database.states()
    if name is None or name not in states:
        raise UsageError(f"no state {text}; there are {', '.join(map(str, states)) or 'none'}")
    return name
