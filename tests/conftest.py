"""What all tests share: deterministic hypothesis, the public suites, and an account of every skipped test and every sweep.

bin/test sets SHEPHERD_TEST_STRICT (a skip is a failure) and SHEPHERD_TEST_CRASH (the full crash sweeps).
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["tests.support.fixtures"]

ROOT = Path(__file__).resolve().parents[1]

# The same examples in every run: a failure found today is found tomorrow. With the full sweeps there are more of them.
EXAMPLES = 200 if os.environ.get("SHEPHERD_TEST_CRASH") else 50
hypothesis.settings.register_profile("shepherd", derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
hypothesis.settings.load_profile("shepherd")

# The files that take longest, by the clock, in this order before all others: begun last, one alone would keep everybody waiting.
LONGEST = (
    "cli/shep/test_fetch.py", "cli/gather/test_end_to_end.py", "dispatch/test_reapers_lost.py", "cli/gather/test_urls.py",
    "crash/test_restart.py", "crash/test_replay.py", "crash/test_mutants.py", "crash/test_kill_phase.py", "master/test_run.py",
    "crash/test_full.py", "crash/test_politeness.py", "cli/test_launcher.py", "store/mirror/test_mirror.py",
    "crash/test_kill_reap.py", "cli/test_bad_input.py", "dispatch/test_reap_refresh.py", "crash/test_rebuild.py",
    "crash/test_strace.py", "crash/test_powercut.py", "cycle/select/test_properties.py", "formats/test_decoders.py",
    "cycle/cork/test_three_harvests.py", "serve/test_leases.py", "reaper/document/test_extract.py", "crash/test_kill_master.py",
    "reaper/process/test_wedged.py", "cycle/test_three_cycles.py", "crash/test_kill_cleanup.py", "dispatch/test_reap_stopped.py",
    "crash/test_three_reapers.py", "serve/test_indexer.py", "reaper/process/test_poison.py", "toyweb/test_zoo.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {ROOT / "tests" / name: number for number, name in enumerate(LONGEST)}
    if gone := [str(path) for path in rank if not path.is_file()]:
        raise pytest.UsageError(f"LONGEST in tests/conftest.py names what is not there: {', '.join(gone)}")
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(autouse=True)
def _our_logger_as_it_was() -> Iterator[None]:
    """A program that a test runs in this process sets up logging for good: what later tests hear must not depend on that."""
    logger = logging.getLogger("shepherd")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(scope="session")
def suites() -> Callable[[str], Path]:
    """suites("url") is the directory of that public suite; the test is skipped where the suites are not there."""
    base = Path(os.environ.get("SHEPHERD_SUITES") or ROOT.parent / "shared" / "suites")

    def find(name: str) -> Path:
        if not (base / name).is_dir():
            pytest.skip(f"public suite {name!r} is not there (set SHEPHERD_SUITES)")
        return base / name

    return find


@pytest.fixture(scope="session")
def crash_sweep() -> bool:
    """Whether the full crash sweeps were asked for, with `bin/test --crash`."""
    return bool(os.environ.get("SHEPHERD_TEST_CRASH"))


def _skips(config: pytest.Config) -> Counter[str]:
    """How many tests were skipped, by reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)


def _is_strict() -> bool:
    return bool(os.environ.get("SHEPHERD_TEST_STRICT"))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _is_strict() and _skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _scores(reporter: pytest.TerminalReporter) -> list[str]:
    """What sweeps have recorded of themselves, in this process or in those of xdist: one line a test, or with -v one a sweep."""
    reports = [*reporter.stats.get("passed", []), *reporter.stats.get("failed", [])]
    properties = [pair for report in reports if report.when == "call" for pair in report.user_properties]
    sums: dict[str, list[int]] = {}
    for name, counts in (value for key, value in properties if key == "score"):
        label = name if reporter.verbosity > 0 else name.partition("[")[0]
        sums[label] = [a + b for a, b in zip(sums.get(label, [0, 0, 0]), counts, strict=True)]
    return [f"{label}: {' / '.join(map(str, counts))}" for label, counts in sorted(sums.items())]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if scores := _scores(terminalreporter):
        terminalreporter.section("sweeps: points / violations / vacuous")
        for score in scores:
            terminalreporter.line(score)
    skips = _skips(config)
    if not skips:
        return
    terminalreporter.section("skipped, by reason" + (" (--strict: a failure)" if _is_strict() else ""))
    for reason, count in sorted(skips.items()):
        terminalreporter.line(f"{count:5d}  {reason}")
