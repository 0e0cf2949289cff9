"""The closed states that can be leased, and those of which can be asked what is new since."""

from __future__ import annotations

import logging

from aiohttp import web

from shepherd.errors import Corruption, OldFormat
from shepherd.serve.answers import answer
from shepherd.serve.log import log_event
from shepherd.serve.service import Ask
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import keys
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.wire import api


async def list_all(ask: Ask) -> web.Response:
    ask.parameters()
    return answer(await ask.work(_list, ask.service.database))


def _list(database: Database) -> api.ClosedStates:
    closed = [name for name in database.states() if name.closed]
    with database.leases.locked():  # none is deleted while we look
        there = [name for name in closed if (database.states_path / str(name)).is_dir()]
        states = [state for name in there if (state := _row_if_sound(database, name)) is not None]
    remembered = {name.number for name in keys.SHELF.numbers(database.log_path)} | {state.state for state in states}
    return api.ClosedStates(states, sorted(remembered))


def _row_if_sound(database: Database, name: StateName) -> api.ClosedState | None:
    """None of a state that cannot be read: the others can be leased all the same."""
    try:
        return _row(database.open(name))
    except (Corruption, OldFormat) as error:
        log_event("failed", f"state {name} is left out: {error}", logging.ERROR)
        return None


def _row(state: State) -> api.ClosedState:
    files = state.control.files
    buckets = sum(entry.length for path, entry in files.items() if path.startswith(f"{names.OBJECTS}/"))
    return api.ClosedState(
        state=state.number, made_s=state.control.now, urls=state.index.rows, bucket_bytes=buckets, files=len(files)
    )
