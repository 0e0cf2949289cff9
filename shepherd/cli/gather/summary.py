"""What `gather` has to show at the end: a state in a few lines, and what to try next.

All figures but the time are read from the newest closed state, so they are true for a run that was stopped or continued, too.
"""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.cli.gather import cf as gather_cf
from shepherd.config import Config
from shepherd.console import cf_files, common
from shepherd.console.shared import many, size, span
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.formats.tables import Array, Bools
    from shepherd.store.state.directory import State


@dataclass(frozen=True)
class GatherSummary:
    state: int
    pages: int  # gathered, redirects and robots files not counted
    redirects: int
    sites: int  # normalised, with at least one of these pages
    urls_linked: int  # URLs that links led to
    unchanged: int  # pages whose last check found them as they were
    ungathered: int  # that could be asked for now
    shut: int  # ungathered, too, but the robots.txt of the site cannot be reached
    nameless: int  # likewise, but the host of the site has no address
    sleeping: int
    errors: dict[str, int]  # by reason, most first
    guarded: int  # of these, the ones that the guard refused
    stored_bytes: int
    rest_s: float  # what the ungathered pages take at the delays of their servers
    example: str  # a gathered page
    failed: str  # a page that is an error


def requests(state: State) -> int:
    """What all servers were ever asked, robots files included."""
    import numpy as np

    return int(state.servers["fetches"][0 : state.servers.rows].sum(dtype=np.int64))


def checked_since(state: State, start_s: int) -> int:
    """Pages that were answered, or given up, at or after this time."""
    import numpy as np

    return int(np.count_nonzero(_pages(state) & (_column(state, "checked") >= start_s)))


def measure(state: State, config: Config) -> GatherSummary:
    import numpy as np

    from shepherd.formats.tables import Flag, Reason, RowType, in_bucket

    pages, type_, reason = _pages(state), _column(state, "type"), _column(state, "reason")
    flags, norm, oid = _column(state, "flags"), _column(state, "norm"), _column(state, "oid")
    gathered = pages & (type_ == RowType.GATHERED)
    redirect = (flags & Flag.REDIRECT) != 0
    body = gathered & ~redirect
    failed = pages & (type_ == RowType.ERROR)
    queues_s, shut, nameless = _queues(state, pages & (type_ == RowType.UNGATHERED), config)
    counts = np.bincount(reason[failed], minlength=256)
    return GatherSummary(
        state=state.number,
        pages=int(np.count_nonzero(body)),
        redirects=int(np.count_nonzero(gathered & redirect)),
        sites=len(np.unique(norm[body])),
        urls_linked=int(np.count_nonzero(pages & ((flags & Flag.INITIAL) == 0))),
        unchanged=int(np.count_nonzero(body & (reason == Reason.UNCHANGED))),
        ungathered=int(np.count_nonzero(pages & (type_ == RowType.UNGATHERED))) - shut - nameless,
        shut=shut,
        nameless=nameless,
        sleeping=int(np.count_nonzero(pages & (type_ == RowType.SLEEPING))),
        errors={kinds.REASON.text(r): int(counts[r]) for r in sorted(Reason, key=lambda r: (-counts[r], r)) if counts[r]},
        guarded=int(counts[Reason.GUARD]),
        stored_bytes=int(_column(state, "size").sum(dtype=np.int64)),
        rest_s=queues_s,
        example=_best_url(state, body & in_bucket(oid)),
        failed=_best_url(state, failed & in_bucket(oid)),
    )


def _column(state: State, name: str) -> Array:
    return state.index[name][0 : state.index.rows]


def _pages(state: State) -> Bools:
    from shepherd.formats.tables import Flag

    pages: Bools = (_column(state, "flags") & Flag.ROBOTS) == 0
    return pages


def _best_url(state: State, rows: Bools) -> str:
    """The URL of the row with the highest weight, the first of them; nothing if there is none."""
    import numpy as np

    candidates = np.flatnonzero(rows)
    if not len(candidates):
        return ""
    best = candidates[np.argmax(_column(state, "weight")[candidates])]
    return state.objects.head(state.index["oid"].value(int(best))).url


def _queues(state: State, waiting: Bools, config: Config) -> tuple[float, int, int]:
    """How long the longest queue of a server takes, for they are emptied side by side; and how many rows are in none, because of
    their robots.txt, and because of their name."""
    import numpy as np

    from shepherd.arrays.keys import find_sites
    from shepherd.filters import ignore_robots
    from shepherd.politeness.delays import default_delay_ms, site_delays_ms
    from shepherd.politeness.quota import servers_of, unresolved

    sites, servers = state.sites.slice(0, state.sites.rows), state.servers.slice(0, state.servers.rows)
    site_row = find_sites(sites["site"], _column(state, "site")[waiting])
    if not len(sites["site"]):
        return 0.0, 0, 0
    nameless = (unresolved(sites["qkey"]) & (sites["qkey_checked"] > 0))[site_row]
    shut = ((sites["robots_since"] > 0) & ~ignore_robots(sites["policy"]))[site_row] & ~nameless
    open_ = site_row[~(shut | nameless)]
    if not len(open_):
        return 0.0, int(shut.sum()), int(nameless.sum())
    groups = servers_of(sites, servers, now_s=state.control.now, plan=config.plan, politeness=config.politeness)
    delays_ms = site_delays_ms(sites, default_delay_ms(config.politeness))
    queues_ms = np.bincount(groups.of_site[open_], weights=delays_ms[open_])
    return float(queues_ms.max()) / 1000, int(shut.sum()), int(nameless.sum())


# --- as text ----------------------------------------------------------------------------------------------------


def show(summary: GatherSummary, cf: Path, why: str, requests: int, elapsed_s: float, refreshed: bool) -> None:
    """A few aligned lines on stdout."""
    pages, sites = many(summary.pages, "page"), many(summary.sites, "site")
    lines = [("gathered", f"{pages} of {sites}; redirects: {summary.redirects:,}")]
    lines.append(("found", f"{many(summary.urls_linked, 'URL')} by links"))
    errors = ", ".join(f"{count:,} {reason}" for reason, count in summary.errors.items())
    lines.append(("errors", errors or "none"))
    if summary.guarded:
        allow = f"set allow in [network] of {_near(cf / cf_files.TOML)} to let Shepherd reach it"
        lines.append(("guard", f"{many(summary.guarded, 'page')} at an address that is not public: {allow}"))
    if refreshed:
        lines.append(("refresh", f"{summary.unchanged:,} of the pages had not changed: nothing was stored for them again"))
    lines.append(("stored", f"{size(summary.stored_bytes)} in state {summary.state}"))
    requests_text = f"{many(requests, 'request')} in {elapsed_s:.1f} s, robots files included"
    lines.append(("speed", f"{requests / max(elapsed_s, 0.001):,.1f} requests/s: {requests_text}"))
    if summary.ungathered:
        rest = f"{many(summary.ungathered, 'page')}: at the delays of their servers about {span(math.ceil(summary.rest_s))}"
        lines.append(("to come", rest))
    if blocked := _blocked(summary):
        lines.append(("blocked", blocked))
    if summary.sleeping:
        lines.append(("sleeping", f"{many(summary.sleeping, 'URL')}, known but over a limit"))
    lines.append(("ended", why))
    for name, text in lines:
        click.echo(f"{name:<9} {common.escape(text)}")


def _blocked(summary: GatherSummary) -> str:
    counts = ((summary.shut, "whose robots.txt cannot be reached"), (summary.nameless, "whose host has no address"))
    return ", ".join(f"{many(count, 'page')} {what}" for count, what in counts if count)


def why_none(summary: GatherSummary) -> str:
    """What became of the pages that were asked for, where none came; nothing where none was asked for."""
    from shepherd.formats.vocabulary import Reason, reason_text

    reasons = {name: reason_text(Reason[name.upper().replace("-", "_")]) for name in summary.errors}
    errors = [f"{many(count, 'page')}: {reasons[name]}" for name, count in summary.errors.items()]
    return ", ".join([*errors, *([blocked] if (blocked := _blocked(summary)) else [])])


def show_next(summary: GatherSummary, db: Path, cf: Path, url: str) -> None:
    """Commands that work as they stand; a URL that was asked for can be explained even where nothing is known of it."""
    shep = _program("shep")
    where = ["--db", _near(db)]
    by_rules = [*where, *(["--cf", _near(cf)] if os.environ.get("SHEPHERD_CF") else [])]  # else the database's own is taken
    commands = [[shep, "stats", *where]]
    if example := summary.failed or summary.example or url:
        commands.append([shep, "explain", *by_rules, example])
    if summary.example:
        commands.append([shep, "cat", *by_rules, summary.example])
    click.echo("\nTry next:")
    for command in commands:
        click.echo(f"  {common.escape(shlex.join(command))}")


def _program(name: str) -> str:
    path = gather_cf.source_root() / "bin" / name
    return _near(path) if path.exists() else name


def _near(path: Path) -> str:
    """The path as one would type it from here."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else os.path.abspath(path)  # links stay: a program is known by its name
