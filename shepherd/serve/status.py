"""What the status page and /metrics show: what runs and how fast, past cycles, servers, sites, disk, leases.

All is read from what is there anyway: db/log, the directories, and the tables of sites and servers of the newest closed state.
Never a pass over its index; a pass over a table once for each state. Every function here blocks: it is called in a thread.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from shepherd import text as words
from shepherd.config import OWN_CF, CfPlace, Config, last_cf
from shepherd.errors import ShepherdError
from shepherd.report import explain, logbook, reports, servers, sites
from shepherd.report import status as status_report
from shepherd.serve.cache import Cache
from shepherd.serve.reap_rate import ReapSpeed
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.lease import SERVED

PURPOSE: Final = "status page"
NOW_S: Final = 1.0  # how long things are kept: what moves,
LOG_S: Final = 5.0  # what a cycle or a minute adds to,
STATE_S: Final = 3_600.0  # and what only a new state changes
MOST_POINTS: Final = 500  # of a plot


class StatusFigures:
    """Of one database. `now` is the clock of the wall, in seconds."""

    def __init__(self, database: Database, config: Config, now: Callable[[], float] = time.time) -> None:
        self._database, self._config, self._now = database, config, now
        self._cache = Cache()
        self._speed = ReapSpeed()

    # --- what is going on

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._cache.get("status", NOW_S, self._status)
        return status

    def _status(self) -> dict[str, Any]:
        now = self._now()
        self._database.states()  # where they have gone nobody asked for what makes no sense, as who names a database may have
        status = status_report.find(self._database.path, int(now), 0)
        home = status.pop("db")
        del status["cycles"]
        status["fault"] = status["fault"].replace(f"{home}/", "")  # where it is on this machine is not for readers
        status["leases"] = [_lease(lease) for lease in status["leases"]]
        status["reap"] = _reap(status["now"])
        status["speed"] = self._speed.of(status["now"], now)
        return {"time": round(now, 3), **status, "configuration": self._configuration(), "totals": self._totals()}

    def _configuration(self) -> dict[str, Any]:
        """Which one answers here, what tells it from others, and whether the database was last run with it."""
        home, place = self._database.path, CfPlace(self._config.directory, "")
        is_own = place.directory.resolve() == (home / OWN_CF).resolve()
        last = last_cf.read(home)
        return {
            "place": "cf of the database" if is_own else place.directory.resolve().name,
            "digest": place.digest,
            "is_last": None if last is None else not last.is_other(place),
        }

    def _totals(self) -> dict[str, Any] | None:
        """What the newest closed state has; None where it cannot be read: `fault` says so then, or shep-check."""
        try:
            return self._cached_of_state(("totals",), _state_totals)
        except ShepherdError:
            return None

    # --- what was

    def history(self, cycles: int, hours: int) -> dict[str, Any]:
        """The last cycles, the newest last; pages and bytes by the minute; and errors by class, of those cycles together."""
        key = ("history", cycles, hours)
        history: dict[str, Any] = self._cache.get(key, LOG_S, lambda: self._history(cycles, hours))
        return history

    def _history(self, count: int, hours: int) -> dict[str, Any]:
        log = self._database.log_path
        cycles = [reports.figures(cycle) for cycle in itertools.islice(reports.cycles(log, float("-inf")), count)][::-1]
        classes: Counter[str] = Counter()
        for cycle in cycles:
            classes.update(cycle["error_classes"])
        minutes = logbook.minutes(log, self._now() - 3_600 * hours)
        return {"cycles": cycles, "errors": dict(classes.most_common()), "rates": _thinned(minutes, MOST_POINTS)}

    # --- what the newest state knows

    def servers(self, sort: str, limit: int, backing_off: bool) -> dict[str, Any]:
        def find(state: State) -> dict[str, Any]:
            rows = servers.largest(state, sort, limit, (), backing_off)
            return {"state": state.number, **servers.spread(state), "top": list(servers.as_objects(state, rows))}

        return self._cached_of_state(("servers", sort, limit, backing_off), find)

    def sites(self, sort: str, limit: int) -> dict[str, Any]:
        def find(state: State) -> dict[str, Any]:
            rows = sites.largest(state, (), None, None, None, sites.SORTS[sort], limit).tolist()
            top = [sites.as_object(state, row) | {"gathered": state.sites["gathered"].value(row)} for row in rows]
            return {"state": state.number, **sites.totals(state), "top": top}

        return self._cached_of_state(("sites", sort, limit), find)

    def explain(self, url: str) -> dict[str, Any]:
        """The whole story of one URL; UsageError if it is none. Paths are shown without their directories on this machine."""
        now = self._now()
        asker = explain.Asker(PURPOSE, int(now), round(now * 1_000))
        story = explain.as_object(explain.explain(self._database, self._config, url, asker))
        story["filter"]["file"] = self._config.filter_path.name
        story["equivalence"]["path"] = self._config.equiv_path.name
        story["verdict"] = story["verdict"].replace(str(self._config.filter_path), self._config.filter_path.name)
        plain_story: dict[str, Any] = json.loads(json.dumps(story, default=words.plain))
        return plain_story

    # --- the state

    def _newest(self) -> int | None:
        closed = [name.number for name in self._database.states() if name.closed]
        return closed[-1] if closed else None

    def _cached_of_state(self, key: tuple[Any, ...], find: Callable[[State], dict[str, Any]]) -> dict[str, Any]:
        figures: dict[str, Any] = self._cache.get(key, STATE_S, lambda: self._of_state(find), self._newest())
        return figures

    def _of_state(self, find: Callable[[State], dict[str, Any]]) -> dict[str, Any]:
        with self._database.reading(PURPOSE, round(self._now() * 1_000)) as state:
            return find(state)


def _state_totals(state: State) -> dict[str, Any]:
    spread = servers.spread(state)
    return {
        "state": state.number,
        "made": state.control.now,
        "rows": state.index.rows,
        **sites.totals(state),
        "servers": spread["servers"],
        "backing_off": spread["backing_off"],
        "backoffs": spread["backoffs"],
    }


def _lease(lease: dict[str, Any]) -> dict[str, Any]:
    """As others may see it."""
    fields = {key: lease[key] for key in ("state", "owner", "purpose", "since", "expires", "expired")}
    return fields | {"purpose": fields["purpose"].removeprefix(SERVED)}


def _reap(now: dict[str, Any] | None) -> dict[str, Any] | None:
    """The figures of the reap that runs, if one does."""
    figures = (now or {}).get("figures")
    if not isinstance(figures, dict) or "wire_bytes" not in figures:
        return None
    return {name: reports.number(figures.get(name)) for name in ("pages", "wire_bytes", "errors", "active", "seconds")}


def _thinned(minutes: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many points: neighbours are taken together."""
    step = -(-len(minutes) // most) or 1
    return [_joined(minutes[first : first + step]) for first in range(0, len(minutes), step)]


def _joined(part: list[dict[str, Any]]) -> dict[str, Any]:
    sums = {name: sum(minute[name] for minute in part) for name in ("seconds", "pages", "wire_bytes", "errors")}
    return {"time": part[-1]["time"], **sums, "active": part[-1]["active"]}
