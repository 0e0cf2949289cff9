"""shep audit politeness: was any server asked sooner than its delay? Recomputed from the journals that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.cli import common
from shepherd.cli import shep_shared as shared
from shepherd.config import Config
from shepherd.errors import Corruption, Impolite, NothingToDo

if TYPE_CHECKING:
    from shepherd.formats.tables import Records
    from shepherd.phases.politeness import Held, Verdict
    from shepherd.store.database import Database
    from shepherd.store.state import State

SHOWN: Final = 10  # servers with the least to spare


@click.group("audit")
def command() -> None:
    """Check what was done against what was promised."""


@command.command("politeness")
@click.option("--slack", type=click.IntRange(0), default=20, metavar="MS", help="What clocks may differ by.  [default: 20]")
@click.option("--limit", type=click.IntRange(0), default=20, metavar="N", help="Tell the first N violations.  [default: 20]")
@common.database
@common.configured
@click.option(
    "--state", "number", type=click.IntRange(1), metavar="N", help="Read this closed state alone.  [default: all closed states]"
)
@common.jsonable
@common.standard
def politeness(slack: int, limit: int, db: Path, config: Config, number: int | None, as_json: bool) -> None:
    """Recompute from the journals how close contacts with servers and sites were, over all reapers.

    Read are the journals of all closed states (or of one, with --state), those that were kept of deleted ones
    (store.keep_journals), and that of a reap under way, up to its last checkpoint.

    Per server, groups of the filter counting as one, and per site: contacts must not overlap beyond its slots,
    nor follow closer than the delay that held: filter or default, Crawl-delay, back-off, Retry-After. Shown are the servers with
    the least to spare. Exit status 30 if there is a violation; each is told with its server, times and footprints. Exit status 4
    if no journal has a contact.

    \b
    Examples:
      shep audit politeness
      shep audit politeness --json | jq .violations
    """
    from shepherd.store.database import Database

    found = list(_journals(Database(db), config, number))
    epochs = _epochs(found)
    if not epochs:
        raise NothingToDo("no journal that is kept has a contact with a server")
    told = [_Told(part, _judge(part, slack, limit)) for part in epochs]
    if as_json:
        common.emit_json(_json(told, found))
    else:
        for one in told:
            _show(one, len(told) > 1)
    count = sum(one.verdict.count for one in told)
    if count:
        raise Impolite(f"{shared.many(count, 'contact')} came too soon; shep-dump journal -u has their URLs")
    contacts = sum(int(one.verdict.contacts.sum()) for one in told)
    common.LOG.info("%s in %s: none came too soon", shared.many(contacts, "contact"), shared.many(len(found), "journal"))


@dataclass(frozen=True)
class _Journal:
    """The contacts of one journal, and their records' footprints."""

    name: str
    held: Held
    norm: Any
    path: Any


@dataclass(frozen=True)
class _Told:
    journals: list[_Journal]
    verdict: Verdict

    def footprint(self, contact: int) -> str:
        """Of the URL of a contact, counted through all journals."""
        for one in self.journals:
            if contact < len(one.norm):
                return f"{int(one.norm[contact]):016x} {int(one.path[contact]):016x}"
            contact -= len(one.norm)
        raise IndexError(contact)

    def times(self, contact: int) -> tuple[int, int]:
        for one in self.journals:
            if contact < len(one.norm):
                return int(one.held.start[contact]), int(one.held.end[contact])
            contact -= len(one.norm)
        raise IndexError(contact)


# --- reading ----------------------------------------------------------------------------------------------------


def _journals(database: Database, config: Config, number: int | None) -> Iterator[_Journal]:
    """Oldest first. A state that is deleted meanwhile is passed over."""
    closed = [name.number for name in database.states() if name.closed]
    from shepherd.store import journals

    with common.progress(None, "audit", "record") as bar:
        for name in journals.kept(database.log_path) if number is None else []:
            if name.number not in closed:  # else a prune was killed before it deleted the state
                state = journals.opened(database.log_path, name)
                for one in state.numbered("journal"):
                    records = state.journal(one)
                    bar.update(len(records))
                    yield _held(f"state {state.number}", state, records, config)
        for state_number in closed if number is None else [number]:
            with database.reading("shep audit politeness", shared.clock_ms(), state_number) as state:
                for one in state.numbered("journal"):
                    records = state.journal(one)
                    bar.update(len(records))
                    yield _held(f"state {state.number}", state, records, config)
        furthest = database.furthest()
        if number is None and furthest.name.phase == "reap":
            records = _of_harvests(furthest)
            bar.update(len(records))
            yield _held(str(furthest.name), furthest, records, config)


def _of_harvests(state: State) -> Records:
    """All harvests of a reap, up to their newest checkpoints, as cork joins them: dispatchers may have worked side by side."""
    import numpy as np

    from shepherd.formats.tables import JOURNAL

    return np.concatenate([np.zeros(0, JOURNAL), *(part for path in state.harvests() for part in _of_harvest(path))])


def _of_harvest(path: Path) -> Iterator[Records]:
    from shepherd.formats.frame import FrameKind
    from shepherd.formats.tables import JOURNAL
    from shepherd.store import harvest, logs, names

    found = harvest.inspect(path)
    if found.damage:
        raise Corruption(f"{path}: {found.damage}; shep-check names the place")
    length = found.checkpoint.journal.length
    yield from logs.records(path / names.JOURNAL, FrameKind.JOURNAL, JOURNAL, length) if length else ()


def _held(name: str, state: State, records: Records, config: Config) -> _Journal:
    from shepherd.phases import politeness

    sites = _some(state, "sites", "site", records["answered"], politeness.SITE_COLUMNS)
    servers = _some(state, "servers", "qkey", records["qkey"], politeness.SERVER_COLUMNS)
    held = politeness.held(records, sites, servers, config.politeness, before=not state.name.closed)
    return _Journal(name, held, records["norm"][held.row], records["path"][held.row])


def _some(state: State, name: str, key: str, wanted: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    """The rows of a table that a journal speaks of."""
    import numpy as np

    table = getattr(state, name)
    known = table[key][0 : table.rows]
    keys = np.unique(wanted)
    rows = np.flatnonzero(np.isin(known, keys, assume_unique=True)).astype(np.int64)
    return {column: table[column].take(rows) for column in columns}


def _epochs(found: list[_Journal]) -> list[list[_Journal]]:
    """Journals that belong together: where one begins before an older one has ended, the clock was set back between them."""
    epochs: list[list[_Journal]] = []
    last_ms = 0
    for one in found:
        if not len(one.held.start):
            continue
        if not epochs or int(one.held.start.min()) < last_ms:
            if epochs:
                common.LOG.warning("%s begins before what came earlier has ended; it is judged by itself", one.name)
            epochs.append([])
        epochs[-1].append(one)
        last_ms = int(one.held.end.max())
    return epochs


def _judge(journals: list[_Journal], slack_ms: int, limit: int) -> Verdict:
    from shepherd.phases import politeness

    return politeness.judge(politeness.join([one.held for one in journals]), slack_ms, limit)


# --- telling ----------------------------------------------------------------------------------------------------


def _tightest(verdict: Verdict) -> list[dict[str, Any]]:
    """The servers that were asked more than once, those with the least to spare first."""
    import numpy as np

    more = np.flatnonzero(verdict.gap_ms != -1)
    order = more[np.argsort(verdict.spare_ms[more], kind="stable")][:SHOWN]
    return [
        {
            "server": _name(int(verdict.key[at])),
            "contacts": int(verdict.contacts[at]),
            "smallest_gap_ms": int(verdict.gap_ms[at]),
            "to_spare_ms": int(verdict.spare_ms[at]),
        }
        for at in order.tolist()
    ]


def _name(key: int) -> str:
    from shepherd.filters.settings import GROUP_BIT
    from shepherd.formats.tables import show_qkey

    return f"group {key:016x}" if key & GROUP_BIT else show_qkey(key)


def _faults(told: _Told) -> list[dict[str, Any]]:
    return [
        {
            "what": fault.what,
            "server" if fault.what != "site" else "site": _name(fault.key) if fault.what != "site" else f"{fault.key:016x}",
            "gap_ms": fault.gap_ms,
            "needed_ms": fault.needed_ms,
            "before": _contact(told, fault.before),
            "after": _contact(told, fault.after),
        }
        for fault in told.verdict.faults
    ]


def _contact(told: _Told, contact: int) -> dict[str, Any]:
    start_ms, end_ms = told.times(contact)
    return {"start": _moment(start_ms), "end": _moment(end_ms), "footprint": told.footprint(contact)}


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show(told: _Told, several: bool) -> None:
    if several:
        click.echo(f"{', '.join(one.name for one in told.journals)}:")
    verdict = told.verdict
    click.echo(f"{shared.many(int(verdict.contacts.sum()), 'contact')} with {shared.many(len(verdict.key), 'server')}")
    for row in _tightest(verdict):
        spare = f"{row['to_spare_ms'] / 1000:.3f} s to spare"
        gap = f"smallest gap {row['smallest_gap_ms'] / 1000:.3f} s"
        click.echo(f"  {row['server']:<24}  {shared.many(row['contacts'], 'contact'):<16}  {gap}, {spare}")
    for fault in _faults(told):
        where = fault.get("server") or f"site {fault['site']}"
        click.echo(f"violation ({fault['what']}): {where}: {fault['gap_ms']} ms, where {fault['needed_ms']} ms were due")
        for name in ("before", "after"):
            click.echo(f"  {name:<6}  {fault[name]['start']} to {fault[name]['end']}  {fault[name]['footprint']}")


def _json(told: list[_Told], found: list[_Journal]) -> dict[str, Any]:
    return {
        "journals": [one.name for one in found],
        "contacts": sum(int(one.verdict.contacts.sum()) for one in told),
        "servers": sum(len(one.verdict.key) for one in told),
        "tightest": [row for one in told for row in _tightest(one.verdict)],
        "violation_count": sum(one.verdict.count for one in told),
        "violations": [fault for one in told for fault in _faults(one)],
    }
