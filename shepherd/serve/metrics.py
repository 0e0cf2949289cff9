"""/metrics for Prometheus. docs/metrics.md has every name: a test compares them.

Each server has a registry of its own. Figures of the database are collected when somebody reads them; only requests are
counted as they come. Labels have few values: no URL, host or state is one.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from shepherd import __version__
from shepherd.errors import ShepherdError
from shepherd.report.reports import number
from shepherd.serve.counters import DatabaseCounters
from shepherd.serve.log import log_event
from shepherd.serve.status import StatusFigures

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0)
OF_CYCLE: Final = ("planned", "pages", "errors", "new", "forgotten")


class Metrics:
    """Of one server."""

    def __init__(self, figures: StatusFigures, log: Path) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_OfDatabase(figures, DatabaseCounters(log)))
        self._requests = Counter(
            "shepherd_serve_requests", "Requests answered, by route and status.", ["route", "status"], registry=self._registry
        )
        self._sent_bytes = Counter("shepherd_serve_sent_bytes", "Bytes of answers, by route.", ["route"], registry=self._registry)
        self._seconds = Histogram(
            "shepherd_serve_request_seconds", "Time until an answer was made.", registry=self._registry, buckets=SECONDS
        )
        self._turned_away = Counter(
            "shepherd_serve_turned_away", "Connections refused, for there were too many.", registry=self._registry
        )
        self._displaced = Counter(
            "shepherd_serve_displaced", "Idle connections closed, for others wanted their seats.", registry=self._registry
        )

    def answered(self, route: str, status: int, bytes_sent: int, seconds: float) -> None:
        """A request was answered. `route` is as it stands in the list of routes."""
        self._requests.labels(route, str(status)).inc()
        self._sent_bytes.labels(route).inc(bytes_sent)
        self._seconds.observe(seconds)

    def turned_away(self) -> None:
        """A connection was refused, for there are too many."""
        self._turned_away.inc()

    def displaced(self) -> None:
        """An idle connection was closed, for another wanted its seat."""
        self._displaced.inc()

    def exposed(self) -> bytes:
        """What Prometheus reads. Looks at the database, so it is called in a thread."""
        return generate_latest(self._registry)


class _OfDatabase(Collector):
    def __init__(self, figures: StatusFigures, totals: DatabaseCounters) -> None:
        self._figures, self._totals = figures, totals

    def describe(self) -> list[Metric]:
        """Nothing, so that registering looks at no database."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield _gauge("shepherd_build_info", "The version that serves.", {__version__: 1}, "version")
        try:
            status, cycles = self._figures.status(), self._figures.history(1, 1)["cycles"]
        except (ShepherdError, OSError) as error:
            log_event("failed", str(error), logging.ERROR)
            yield _fault(True)  # nothing else is known, and alarms depend on it
            return
        self._totals.look(status["now"])
        yield from _state(status["totals"] or {})
        yield from _running(status)
        yield from _reaped(self._totals)
        yield from _last_cycle(cycles)
        yield from _disk(status)
        yield _fault(bool(status["fault"]))


def _gauge(name: str, text: str, values: Mapping[str, float], label: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for of, value in values.items():
        family.add_metric([of], value)
    return family


def _plain(name: str, text: str, value: Any) -> GaugeMetricFamily:
    """One value, or none where it is unknown."""
    family = GaugeMetricFamily(name, text)
    if value is not None:
        family.add_metric([], number(value))
    return family


def _counter(name: str, text: str, values: Mapping[str, float], label: str) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for of, value in values.items():
        family.add_metric([of], value)
    return family


# --- what there is ----------------------------------------------------------------------------------------------


def _state(totals: dict[str, Any]) -> Iterator[Metric]:
    yield _plain("shepherd_state_number", "The newest closed state.", totals.get("state"))
    yield _plain("shepherd_state_made_timestamp_seconds", "When it was made.", totals.get("made"))
    yield _plain("shepherd_urls", "URLs that are known, robots files included.", totals.get("rows"))
    yield _plain("shepherd_documents", "Documents that are gathered.", totals.get("gathered"))
    yield _plain("shepherd_sites", "Sites that are known.", totals.get("sites"))
    backoffs = {str(backoff["times"]): backoff["servers"] for backoff in totals.get("backoffs", ())}
    yield _gauge("shepherd_servers", "Servers, by what their delay is multiplied with since they failed.", backoffs, "backoff")


def _running(status: dict[str, Any]) -> Iterator[Metric]:
    now, reap, speed = status["now"] or {}, status["reap"] or {}, status["speed"] or {}
    running = status["running"] is not None
    yield _plain("shepherd_running", "1 while a program holds the lock of the database.", int(running))
    program = str(now.get("program"))
    yield _gauge("shepherd_phase_info", "The program that is at work.", {program: 1} if now else {}, "program")
    total = number(now.get("total"))
    share = min(number(now.get("done")) / total, 1.0) if total > 0 else None
    yield _plain("shepherd_phase_progress_ratio", "How far it is, from 0 to 1.", share)
    yield _plain("shepherd_phase_since_timestamp_seconds", "When it began.", now.get("since"))
    yield _plain("shepherd_reap_pages_per_second", "Pages that the reap that runs settles in a second.", speed.get("pages_per_s"))
    yield _plain("shepherd_reap_bytes_per_second", "Bytes that it receives in a second.", speed.get("bytes_per_s"))
    yield _plain("shepherd_reap_servers_active", "Servers that have something to give or are being asked.", reap.get("active"))


def _reaped(totals: DatabaseCounters) -> Iterator[Metric]:
    yield CounterMetricFamily("shepherd_reaped_pages", "Pages settled since the server began.", value=totals.reaped["pages"])
    yield CounterMetricFamily("shepherd_received_bytes", "Bytes received from the web.", value=totals.reaped["wire_bytes"])
    yield _counter("shepherd_reap_results", "Settled records of reaps that have ended, by result.", totals.results, "result")
    yield _counter("shepherd_reap_errors", "Failures in reaps that have ended, by class.", totals.errors, "class")
    yield _counter("shepherd_cycles", "Cycles that have ended, by exit status.", totals.cycles, "status")


def _last_cycle(cycles: list[dict[str, Any]]) -> Iterator[Metric]:
    last = cycles[-1] if cycles else {}
    yield _plain("shepherd_cycle_start_timestamp_seconds", "When the last cycle began.", last.get("start"))
    yield _plain("shepherd_cycle_seconds", "How long it took.", last.get("seconds"))
    yield _plain("shepherd_cycle_status", "Its exit status: 0 is well.", last.get("status"))
    steps: dict[str, float] = {}
    for name, seconds in last.get("steps", ()):
        steps[name] = steps.get(name, 0) + seconds
    yield _gauge("shepherd_cycle_step_seconds", "How long each of its programs took.", steps, "step")
    urls = {name: last[name] for name in OF_CYCLE if last.get(name) is not None}
    yield _gauge("shepherd_cycle_urls", "What it did: planned, pages, errors, new, forgotten.", urls, "what")


def _disk(status: dict[str, Any]) -> Iterator[Metric]:
    disk = status["disk"]
    yield _plain("shepherd_states_bytes", "What all states take on the disk.", disk["states_bytes"])
    yield _plain("shepherd_segments_bytes", "What the buckets of the newest closed state take.", disk["segments_bytes"])
    yield _plain("shepherd_disk_free_bytes", "What is free there.", disk["free_bytes"])
    owners = collections.Counter(lease["owner"] for lease in status["leases"] if not lease["expired"])
    yield _gauge("shepherd_leases", "Leases that hold states, by owner.", owners, "owner")
    yield _gauge("shepherd_inbox_items", "What waits in the inbox, by kind.", status["inbox"], "kind")


def _fault(is_there: bool) -> Metric:
    return _plain("shepherd_fault", "1 if the furthest state cannot be opened, or none is there.", int(is_there))
