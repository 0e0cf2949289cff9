"""What all tests share: examples and samples of the day, the public suites, and an account of every skip and every sweep.

bin/test sets SHEPHERD_TEST_STRICT (a skip is a failure); tests/support/sampling.py knows what it sets for the size of samples.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import sampling, schedule, waiting

# Every program that a test starts imports numpy, and a third of that time goes into threads of OpenBLAS that none of them uses.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

pytest_plugins = ["tests.support.fixtures"]

ROOT = Path(__file__).resolve().parents[1]

# The same examples all day: what failed is repeated with the seed that the run has printed.
hypothesis.settings.register_profile("shepherd", deadline=None, database=None, max_examples=sampling.EXAMPLES)
hypothesis.settings.load_profile("shepherd")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.option.hypothesis_seed = config.option.hypothesis_seed or str(sampling.SEED)
    waiting.heed_interrupts()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(schedule.Plugin(), "shepherd-schedule")


def pytest_report_header() -> str:
    return f"samples of the day: bin/test --seed {sampling.SEED} repeats them; {sampling.EXAMPLES} examples of each property"


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
    return sampling.IS_SWEEP


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
