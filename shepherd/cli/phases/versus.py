"""`--dry-run --cf DIR`: what a phase would do by another configuration, beside what it does by the present one.

Both on the same state. The present one is what --versus names, else the one that would be taken without --cf, if there is one and
it is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shepherd import config as configuration
from shepherd.config import Config
from shepherd.console import common, phase
from shepherd.errors import NothingToDo, ShepherdError, UsageError

if TYPE_CHECKING:
    from shepherd.console.phase import Drive

R = TypeVar("R")
OURS, THEIRS = "by --cf", "by --versus"
LABEL, COUNT = "{:<52}", "  {:>14}"


def option(function: Callable[..., R]) -> Callable[..., R]:
    """--versus DIR, read and checked, as `versus: Config | None`."""

    def load(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Config | None:
        if path is not None and not path.is_dir():
            raise click.BadParameter(f"{path} is not a directory")
        return None if path is None else configuration.load(path)

    text = f"With --dry-run: what --cf is compared with.  {common.CF_DEFAULT}"
    return click.option("--versus", type=common.DIRECTORY, callback=load, metavar="DIR", help=text)(function)


def run(program: str, drive: Drive, options: phase.PhaseOptions, versus: Config | None) -> None:
    """A phase; or dry runs of it, by one configuration or by both, printed as a table."""
    if not options.dry_run:
        if versus is not None:
            raise UsageError("--versus only compares, so it needs --dry-run")
        phase.run(program, drive, options)
        return
    versus = versus or _present(options.config, options.db)
    name, reports = _rehearsed(program, drive, options, [options.config, *([versus] if versus is not None else [])])
    table = _table(reports)
    if options.as_json:
        comparison: dict[str, Any] = {"program": program, "state": name, "dry_run": True, "report": reports[0]}
        if versus is not None:
            difference = {label: counts[0] - counts[1] for label, counts in table.items()}
            comparison |= {"versus": {"cf": versus.directory, "report": reports[1], "difference": difference}}
        common.emit_json(comparison)
        return
    beside = f" by {options.config.directory}, beside {versus.directory}" if versus is not None else ""
    click.echo(f"{program}: would make {name}{beside}")
    if versus is not None:
        click.echo(LABEL.format("") + "".join(map(COUNT.format, (OURS, THEIRS, "difference"))))
    for label, counts in table.items():
        changed = [f"{counts[0] - counts[1]:+,}"] if len(set(counts)) > 1 else []
        click.echo(LABEL.format(label) + "".join(map(COUNT.format, [*(f"{count:,}" for count in counts), *changed])))


def _present(config: Config, db: Path) -> Config | None:
    """The configuration without --cf, if it is another one; if it cannot be read, the first is shown alone."""
    directory = configuration.find_cf(None, db).directory
    if not directory.is_dir() or (config.directory.exists() and directory.samefile(config.directory)):
        return None
    try:
        return configuration.load(directory)
    except ShepherdError as error:
        common.LOG.warning("%s; so nothing is compared", error)
        return None


def _rehearsed(
    program: str, drive: Drive, options: phase.PhaseOptions, configs: list[Config]
) -> tuple[str, list[dict[str, Any]]]:
    """What would be made, and a report for each configuration: an empty one where there would be nothing to do."""
    from shepherd.store.state.database import Database

    reports: list[dict[str, Any]] = []
    name, nothing = "", None
    with phase.rehearsal(Database(options.db), program) as writer:
        for config in configs:
            with common.progress(writer.furthest().index.rows, program, "row") as bar:
                try:
                    state = drive(writer, config, options.now, bar.update, options.jobs)
                except NothingToDo as error:
                    reports.append({})
                    nothing = error
                    continue
            reports.append(state.report())
            name = str(state.name)
    if not name and nothing is not None:
        raise nothing
    return name, reports


def _table(reports: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Every number that a report has, under its name, beside those of the others; what belongs together stands together."""
    flat = [dict(_flat(report)) for report in reports]
    labels = list(dict.fromkeys(label for flat_report in flat for label in flat_report))
    groups = list(dict.fromkeys(label.partition(": ")[0] for label in labels))
    labels.sort(key=lambda label: groups.index(label.partition(": ")[0]))
    return {label: [flat_report.get(label, 0) for flat_report in flat] for label in labels}


def _flat(report: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, int]]:
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{within}{name}: ")
        elif isinstance(value, int):
            yield f"{within}{name}", value
