"""shepherd: the master, which runs the other programs in their order.

`cycle` runs one cycle and exits, for cron; `run` runs cycles for ever, as a daemon; `status` shows how far they are. The
decisions are in master/cycle_table.py, one cycle is in cycle_run.py, the daemon in daemon.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from shepherd.cli import check_config
from shepherd.config import LOG_FORMATS, Config
from shepherd.console import cf_place, common, phase
from shepherd.console.shared import many, moment, size
from shepherd.errors import NothingToDo


@click.group()
@common.versioned
def command() -> None:
    """Run the programs of the cycle in their order, and show how far they are."""


command.add_command(check_config.command)


@command.command("cycle")
@common.database
@common.configured
@click.option("--seconds", type=click.IntRange(min=0), metavar="N", help="End the reap after N seconds.  [default: plan.reap_s]")
@click.option(
    "--pages", type=click.IntRange(min=1), metavar="N", help="Plan at most N pages for a reap.  [default: plan.max_pages]"
)
@common.standard
def cycle_command(db: Path, config: Config, seconds: int | None, pages: int | None) -> int:
    """Run one cycle and exit. It runs feedback, plan, reap, cork, merge, equiv, select, record, and, if due, cleanup and rank.

    It first merges what was inserted. After a crash it continues from what is there. The first Ctrl-C or SIGTERM ends the running
    program in good order, and then the cycle; the second, or SIGQUIT, kills the program: the database is still intact. Exit
    status 4 if there was nothing to do; else that of the program that failed.

    \b
    Examples:
      shepherd cycle
      shepherd cycle --seconds 600
    """
    from shepherd.master import cycle_run as cycling
    from shepherd.master.children import Signals
    from shepherd.store.disk import locks, names
    from shepherd.store.state.database import Database

    database = Database(db)
    inherited = phase.inherited_lock()
    lock = locks.lock(db / names.LOCK, "shepherd cycle").fd if inherited is None else inherited
    with database.writing("shepherd cycle", inherited=lock, tidy=False) as writer:
        cf_place.require(db, config)
        on_line = None if sys.stderr.isatty() else cycling.echo
        options = cycling.CycleOptions(
            config, Signals(), lock, lambda: cf_place.note_taken(db, config), seconds=seconds, pages=pages, on_line=on_line
        )
        cycle = cycling.CycleRun(writer, options)
        status = cycle.run()
    if status == NothingToDo.exit_status and not cycle.message and inherited is None:  # else `gather` says so
        raise NothingToDo("nothing is due, and neither requests nor contributions nor harvests wait that could be taken in")
    return status


@command.command("run")
@common.database
@common.configured
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Append to FILE, not to stderr.")
@click.option(
    "--log-format", type=click.Choice(LOG_FORMATS), help="Lines of key=value, or of JSON.  [default: master.log_format]"
)
@common.standard
def run_command(db: Path, config: Config, log: Path | None, log_format: str | None) -> int:
    """Run cycles for ever; pause while nothing is due.

    At SIGTERM or Ctrl-C it lets the running program end, a reap in good order at once, and exits with status 0; a second one, or
    SIGQUIT, kills the program. SIGHUP opens the log again and reads cf/ again, which otherwise stays as at the start; if it has
    mistakes they are logged, and the old one stays. SIGUSR1 requests a cleanup now and cuts a reap short for it. Exit status 3 if
    another master runs; after a failure that lasts, that of the program that failed.

    \b
    Examples:
      shepherd run
      shepherd run --log /var/log/shepherd.log --log-format json
    """
    from shepherd.master import daemon as running

    return running.run(db, config, log, log_format)


@command.command("status")
@common.database
@common.unconfigured
@click.option("--cycles", "count", type=click.IntRange(min=0), default=5, metavar="N", help="How many past cycles.  [default: 5]")
@common.jsonable
@common.standard
def status_command(db: Path, count: int, as_json: bool) -> None:
    """Show what runs and how far it is. It also shows the last cycles, states and disk, leases, and what waits in the inbox.

    It needs no lock, and works while nothing runs. --json prints one object, whose fields docs/operations.md describes.

    \b
    Examples:
      shepherd status
      shepherd status --json | jq .now
    """
    from shepherd.report.status import find
    from shepherd.store.state.database import Database

    if Database(db).is_open_to_others:
        common.LOG.warning("%s: every user of this machine may read it, and the secret key in it; close it with chmod o-rwx", db)
    facts = find(db, int(time.time()), count)
    if as_json:
        common.emit_json(facts)
    else:
        for line in _lines(facts, int(time.time())):
            click.echo(common.escape(line))


# --- the status in words ----------------------------------------------------------------------------------------


def _lines(facts: dict[str, Any], now: int) -> Iterator[str]:
    running, disk = facts["running"], facts["disk"]
    yield f"running    {_who(running, now)}" if running else "running    nothing"
    if running and facts["now"]:
        yield f"now        {_progress(facts['now'], now)}"
    yield f"states     {', '.join(facts['states']) or 'none'}"
    if facts["fault"]:
        yield f"fault      {facts['fault']}"
    yield f"disk       {size(disk['states_bytes'])} in all states, {size(disk['free_bytes'])} free"
    yield f"buckets    {size(disk['segments_bytes'])}; cleaned up: {moment(facts['cleaned'], now)}"
    yield f"inbox      {', '.join(f'{count} {kind}' for kind, count in sorted(facts['inbox'].items())) or 'empty'}"
    yield from (f"lease      {_claim(lease, now)}" for lease in facts["leases"])
    yield from (f"cycle      {_past(cycle, now)}" for cycle in facts["cycles"])


def _who(running: dict[str, Any], now: int) -> str:
    who = running["who"] or "a program that has not said its name"
    what = f"a program that {who} has started (that process itself has ended)" if running["orphaned"] else who
    return f"{what}, since {moment(running['since'], now)}"


def _progress(notice: dict[str, Any], now: int) -> str:
    text = f"{notice['program']}, pid {notice['pid']}, {notice['phase']}, since {moment(int(notice['since']), now)}"
    if notice.get("total"):
        text += f": {notice['done']} of {many(notice['total'], notice['unit'])} ({100 * notice['done'] // notice['total']} %)"
    figures = ", ".join(f"{key} {value}" for key, value in notice.get("figures", {}).items())
    return f"{text}; {figures}" if figures else text


def _claim(lease: dict[str, Any], now: int) -> str:
    who = f"{lease['purpose']}, pid {lease['pid']}, {lease['owner']}"
    until = f"{'expired' if lease['expired'] else 'until'} {moment(lease['expires'], now)}"
    over = "over, because that process has ended" if lease["orphaned"] else until
    return f"state {lease['state']}: {who}, since {moment(lease['since'], now)}, {over}"


def _past(cycle: dict[str, Any], now: int) -> str:
    steps_text = ", ".join(f"{step['step'].removeprefix('shep-')} {step['seconds']:.1f}" for step in cycle["steps"])
    how = f", exit status {cycle['status']}" if cycle["status"] else ""
    return f"{moment(cycle['start'], now)}, {cycle['seconds']:.1f} s{how}: {cycle['state']} ({steps_text})"


def main() -> None:
    common.run(command)
