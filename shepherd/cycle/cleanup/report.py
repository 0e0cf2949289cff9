"""What a cleanup reports: how large documents are against what was expected, what leases hold, and what it has judged before."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from shepherd.config import Config
from shepherd.cycle.cleanup.rules import Look
from shepherd.errors import IoFailed, ShepherdError
from shepherd.formats.tables import I64
from shepherd.sections import section_name
from shepherd.store.disk import fsio, names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.state import cursors
from shepherd.store.state.database import Database

LOG_FILE: Final = "cleanups.jsonl"
_LOG: Final = logging.getLogger(__name__)


def averages(look: Look, plain: I64 | None, config: Config) -> dict[str, dict[str, int]]:
    """Of each section with gathered documents: their number, mean bytes stored and decoded, and the configured estimate."""
    by_section = {}
    for section in np.flatnonzero(look.documents).tolist():
        count = int(look.documents[section])
        mean = {"documents": count, "stored bytes": int(look.stored[section]) // count}
        mean |= {"body bytes": int(plain[section]) // count} if plain is not None else {}
        by_section[section_name(section)] = mean | {"expected bytes": config.select.average_bytes}
    return by_section


def pinned(database: Database, config: Config, staying: Collection[int], purged: Collection[int], now: int) -> dict[str, int]:
    """Bytes of segments that only older closed states hold, those of leased ones, and leased states with purged bytes.

    Of the states that are there, the newest ones that the next deletion leaves are counted, and the leased ones; what a cursor of
    the configuration has not come to is held as by a lease.
    """
    stay = config.store.keep_states - 1
    leased_numbers = database.leases.states_in_use(now) | cursors.behind(database, config.export.cursors)
    older: dict[int, int] = {}
    leased: dict[int, int] = {}
    exposed = 0
    closed = [name for name in database.states() if name.closed]
    for name in closed:
        if name.number not in leased_numbers and name not in closed[len(closed) - stay :]:
            continue
        try:
            state = database.open(name)
        except IoFailed:
            raise
        except ShepherdError:
            continue  # an older format, or damaged: whatever it holds, it is not for us to say
        segments = {n: state.control.files[f"{names.OBJECTS}/{names.segment(n)}"].length for n in state.segments()}
        only = {n: length for n, length in segments.items() if n not in staying}
        older |= only
        if name.number in leased_numbers:
            leased |= only
            exposed += not segments.keys().isdisjoint(purged)
    return {
        "bytes of older states": sum(older.values()),
        "bytes of leased states": sum(leased.values()),
        "leased states with purged bytes": exposed,
    }


# --- the last cleanup of everything ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastFullCleanup:
    """By which filter all URLs were judged, and the first segment not yet searched for purged documents.

    None and 0 where that is unknown: then it is time to look at everything.
    """

    filter: int | None = None
    unseen: int = 0


def last_full_cleanup(database: Database, cleaned: int) -> LastFullCleanup:
    """The log may be deleted at any time. Its lines are of this chain of states only if they name the same last cleanup."""
    try:
        lines = opening.read_file(database.log_path / LOG_FILE).decode().splitlines()
        entries = [json.loads(line) for line in lines if line.strip()]
        last = next((entry for entry in reversed(entries) if entry["cleaned"] == cleaned), None)
        return LastFullCleanup() if last is None else LastFullCleanup(int(last["filter"], 16), int(last.get("unseen", 0)))
    except (OSError, IoFailed, ValueError, KeyError, TypeError):
        return LastFullCleanup()


def remember(database: Database, state: StateName, cleaned: int, last: LastFullCleanup, totals: dict[str, Any]) -> None:
    """Append a line: up to this cleanup everything has been seen."""
    line = {"state": state.number, "cleaned": cleaned, "filter": f"{last.filter:016x}", "unseen": last.unseen, **totals}
    try:
        with fsio.open_to_append(database.log_path / LOG_FILE) as file:
            file.write(json.dumps(line, sort_keys=True).encode() + b"\n")
    except OSError as error:
        _LOG.warning("the cleanup could not be logged: %s; the next one looks at everything again", error)
