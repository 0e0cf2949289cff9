"""shep stats: a state in numbers, from one pass over a few columns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.cli import common
from shepherd.cli import shep_shared as shared

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state import State

STEP_ROWS = 500_000
BAR = 40
WEIGHT_SHIFT = 12  # sixteen bins of 4,096
AGES = (
    ("under an hour", 3_600),
    ("under a day", 86_400),
    ("under a week", 7 * 86_400),
    ("under 30 days", 30 * 86_400),
    ("under 90 days", 90 * 86_400),
    ("under a year", 365 * 86_400),
)
OLDER, NEVER = "a year or more", "never"
COLUMNS = ("type", "reason", "status", "flags", "weight", "checked", "size")

Counts = dict[str, int]


@click.command("stats")
@common.database
@common.unconfigured
@shared.state_number
@common.timed
@common.jsonable
@common.standard
def command(db: Path, number: int | None, now: int, as_json: bool) -> None:
    """Count what is known by type, HTTP status, reason, age and weight; and sites, servers and bytes.

    Robots files are counted by themselves and are in none of the other tables.
    """
    with shared.reading(db, number) as state:
        found = {"state": state.number, "made": shared.iso(state.control.now) or None} | _index(state, now) | _others(state)
    if as_json:
        common.emit_json(found)
    else:
        _show(found)


def _index(state: State, now: int) -> dict[str, Any]:
    """One pass over the index in partitions; what is kept is a few small arrays of counts."""
    import numpy as np

    from shepherd.formats.tables import REASON_TEXT, Flag, Reason, RowType

    types, reasons, statuses = np.zeros(256, np.int64), np.zeros(256, np.int64), np.zeros(1 << 16, np.int64)
    weights, ages = np.zeros(1 << 16 - WEIGHT_SHIFT, np.int64), np.zeros(len(AGES) + 2, np.int64)
    edges = np.array([seconds for _, seconds in AGES])
    robots = stored = 0
    with common.progress(state.index.rows, "counting", " rows") as bar:
        for start in range(0, state.index.rows, STEP_ROWS):
            part = state.index.slice(start, min(start + STEP_ROWS, state.index.rows), COLUMNS)
            stored += int(part["size"].sum(dtype=np.int64))
            pages = (part["flags"] & Flag.ROBOTS) == 0
            robots += len(pages) - int(np.count_nonzero(pages))
            one = {name: part[name][pages] for name in COLUMNS}
            types += np.bincount(one["type"], minlength=len(types))
            reasons += np.bincount(one["reason"], minlength=len(reasons))
            statuses += np.bincount(one["status"], minlength=len(statuses))
            weights += np.bincount(one["weight"] >> WEIGHT_SHIFT, minlength=len(weights))
            age = np.digitize(now - one["checked"].astype(np.int64), edges)
            ages += np.bincount(np.where(one["checked"] == 0, len(AGES) + 1, age), minlength=len(ages))
            bar.update(len(pages))
    return {
        "rows": state.index.rows,
        "pages": state.index.rows - robots,
        "robots_files": robots,
        "stored_bytes": stored,
        "types": {kind.name.lower(): int(types[kind]) for kind in RowType if types[kind]},
        "reasons": {REASON_TEXT[reason]: int(reasons[reason]) for reason in Reason if reasons[reason]},
        "statuses": {str(n) if n else "none": int(statuses[n]) for n in np.flatnonzero(statuses).tolist()},
        "checked": _named([*(name for name, _ in AGES), OLDER], ages[:-1]) | _named([NEVER], ages[-1:]),
        "weights": _named([f"{n << WEIGHT_SHIFT}-{(n + 1 << WEIGHT_SHIFT) - 1}" for n in range(len(weights))], weights),
    }


def _named(names: Iterable[str], counts: I64) -> Counts:
    """A histogram, from its first bin that is not empty to its last."""
    import numpy as np

    filled = np.flatnonzero(counts)
    bins = list(zip(names, counts.tolist(), strict=True))
    return dict(bins[int(filled[0]) : int(filled[-1]) + 1]) if len(filled) else {}


def _others(state: State) -> dict[str, Any]:
    import numpy as np

    from shepherd.formats.tables import QKEY_NONE
    from shepherd.store import names

    resolved = unasked = unreachable = backing_off = 0
    for start in range(0, state.sites.rows, STEP_ROWS):
        part = state.sites.slice(start, min(start + STEP_ROWS, state.sites.rows), ("qkey", "qkey_checked", "robots_since"))
        nowhere = part["qkey"] >> np.uint64(56) == QKEY_NONE
        resolved += int(np.count_nonzero(~nowhere))
        unasked += int(np.count_nonzero(nowhere & (part["qkey_checked"] == 0)))
        unreachable += int(np.count_nonzero(part["robots_since"]))
    for start in range(0, state.servers.rows, STEP_ROWS):
        backing_off += int(np.count_nonzero(state.servers["backoff"][start : min(start + STEP_ROWS, state.servers.rows)]))
    entries = state.control.files.items()
    return {
        "segment_bytes": sum(entry.length for path, entry in entries if path.startswith(f"{names.OBJECTS}/")),
        "sites": state.sites.rows,
        "sites_resolved": resolved,
        "sites_not_looked_up": unasked,
        "sites_robots_unreachable": unreachable,
        "servers": state.servers.rows,
        "servers_backing_off": backing_off,
    }


def _show(found: dict[str, Any]) -> None:
    click.echo(f"state {found['state']}, made {found['made'] or 'without a clock'}")
    many = shared.many
    click.echo(f"{many(found['rows'], 'row')}: {many(found['pages'], 'page')} and {many(found['robots_files'], 'robots file')}")
    unasked, unreachable = found["sites_not_looked_up"], found["sites_robots_unreachable"]
    nowhere = found["sites"] - found["sites_resolved"] - unasked
    click.echo(
        f"{many(found['sites'], 'site')}: {unasked:,} not looked up yet, {nowhere:,} without an address that may be asked, "
        f"{unreachable:,} with an unreachable robots.txt"
    )
    click.echo(f"{many(found['servers'], 'server')}: {found['servers_backing_off']:,} backing off")
    click.echo(f"{shared.size(found['stored_bytes'])} stored, in {shared.size(found['segment_bytes'])} of segments")
    titles = {"types": "type", "statuses": "HTTP status", "reasons": "reason", "checked": "last checked", "weights": "weight"}
    for key, title in titles.items():
        _bars(title, found[key])


def _bars(title: str, counts: Counts) -> None:
    if not counts:
        return
    total, most = sum(counts.values()), max(counts.values())
    width = max(map(len, counts))
    click.echo(f"\n{title}")
    for name, count in counts.items():
        bar = "#" * -(-count * BAR // most)
        click.echo(f"  {name:<{width}}  {count:>13,}  {count / total:>6.1%}  {bar}".rstrip())
