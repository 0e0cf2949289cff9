"""Which test runs where and when: two pools of processes, and the longest first.

Half of the slowest tests only wait, for a delay or a deadline to pass. Beside the busy ones they cost nothing: so the processes
above the number of cores take what is marked `waits`, the others all else, and who has nothing left helps the others.

A test is a unit of its own, so that no file keeps one process waiting; a file whose tests share what was made for the file is one
unit, and so is one that is done in a moment. How long each takes is kept in .pytest_cache from run to run.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[2]
CACHE_KEY = "shepherd/seconds"
SHORT_S = 2.0  # a file that takes no longer is not divided
WAITS = "pytest.mark.waits"
SHARED = re.compile(r'^@pytest\.fixture\(scope="module".*\)\ndef (\w+)', re.MULTILINE)


@cache
def _source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def _names_of_shared_fixtures() -> re.Pattern[str]:
    """A parameter that is a fixture of a whole file, made elsewhere than in the file."""
    places = [*(ROOT / "tests").rglob("conftest.py"), ROOT / "tests" / "support" / "fixtures.py"]
    names = [name for place in places for name in SHARED.findall(place.read_text(encoding="utf-8"))]
    return re.compile(rf"[(,]\s*({'|'.join(names)}): ")


@cache
def is_shared(path: str) -> bool:
    """Whether tests of the file share what is made once for all of them."""
    return bool(SHARED.search(_source(path)) or _names_of_shared_fixtures().search(_source(path)))


@cache
def is_waiting(path: str) -> bool:
    return WAITS in _source(path)


class Seconds:
    """How long each test took when it ran last, by its id without parameters; kept from run to run."""

    def __init__(self, kept: dict[str, float]) -> None:
        self._by_test = dict(kept)
        self._now: dict[str, float] = {}

    def add(self, nodeid: str, seconds: float) -> None:
        self._now[nodeid] = self._now.get(nodeid, 0.0) + seconds

    def of_test(self, nodeid: str) -> float:
        """What is not known comes first: it may be long."""
        return self._by_test.get(_plain(nodeid), SHORT_S)

    def to_keep(self) -> dict[str, float]:
        longest: dict[str, float] = {}
        for nodeid, seconds in self._now.items():
            longest[_plain(nodeid)] = max(round(seconds, 2), longest.get(_plain(nodeid), 0.0))
        return self._by_test | longest


def _plain(nodeid: str) -> str:
    return nodeid.partition("[")[0]


class Schedule(LoadScopeScheduling):
    """The longest unit first, and one that waits to the processes that have no core of their own."""

    def __init__(self, config: pytest.Config, seconds: Seconds, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._seconds = seconds
        self._busy = os.cpu_count() or 1
        self._units: dict[str, str] = {}

    def schedule(self) -> None:
        if self.collection is None and self.registered_collections:
            self._divide(next(iter(self.registered_collections.values())))
        super().schedule()

    def _divide(self, nodeids: list[str]) -> None:
        by_path: dict[str, list[str]] = {}
        for nodeid in nodeids:
            by_path.setdefault(nodeid.partition("::")[0], []).append(nodeid)
        for path, members in by_path.items():
            whole = is_shared(path) or sum(map(self._seconds.of_test, members)) <= SHORT_S
            self._units |= {nodeid: path if whole else nodeid for nodeid in members}

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def _length_s(self, unit: str) -> float:
        return sum(map(self._seconds.of_test, self.workqueue[unit]))

    def _assign_work_unit(self, node: WorkerController) -> None:
        """The longest that is for this process, or the longest of all."""
        if not isinstance(self.workqueue, Queue):
            self.workqueue = Queue(sorted(self.workqueue.items(), key=lambda item: -self._length_s(item[0])))
        self.workqueue.for_waiting = int(str(node.gateway.id).removeprefix("gw")) >= self._busy
        super()._assign_work_unit(node)


class Queue(OrderedDict[str, dict[str, bool]]):
    """Units, the longest first."""

    for_waiting = False  # which pool the next unit is for

    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        for unit in self:
            if is_waiting(unit.partition("::")[0]) == self.for_waiting:
                return unit, self.pop(unit)
        return super().popitem(last)


# --- the hooks --------------------------------------------------------------------------------------------------


class Plugin:
    """For the process that hands tests out, or the only one."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._cache: pytest.Cache | None = getattr(session.config, "cache", None)  # none with -p no:cacheprovider
        self._seconds = Seconds(self._cache.get(CACHE_KEY, {}) if self._cache else {})

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Schedule:
        return Schedule(config, self._seconds, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds.add(report.nodeid, report.duration)

    def pytest_sessionfinish(self) -> None:
        if self._cache:
            self._cache.set(CACHE_KEY, self._seconds.to_keep())
