"""shep audit politeness: was any server asked sooner than its delay? Recomputed from the journals that are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.config import Config
from shepherd.console import common, shared
from shepherd.errors import Impolite, NothingToDo
from shepherd.formats import kinds
from shepherd.text import iso_ms

if TYPE_CHECKING:
    from shepherd.formats.tables import Records
    from shepherd.politeness.audit import AuditVerdict
    from shepherd.politeness.obligations import Journal
    from shepherd.store.state.database import Database
    from shepherd.store.state.directory import State

MOST_SERVERS: Final = 10  # servers with the least to spare
STEP: Final = 1 << 20  # keys looked up at a time


@click.group("audit")
def command() -> None:
    """Check what was done against what is promised."""


@command.command("politeness")
@click.option("--slack", type=click.IntRange(0), default=20, metavar="MS", help="How much clocks may differ.  [default: 20]")
@click.option("--limit", type=click.IntRange(0), default=20, metavar="N", help="Show the first N violations.  [default: 20]")
@common.database
@common.configured
@click.option(
    "--state", "number", type=click.IntRange(1), metavar="N", help="Read this closed state alone.  [default: all closed states]"
)
@common.jsonable
@common.standard
def politeness(slack: int, limit: int, db: Path, config: Config, number: int | None, as_json: bool) -> None:
    """Compute from the journals how closely contacts with servers and sites followed each other, over all reapers.

    It reads the journals of all closed states (or of one, with --state), those kept from deleted states (store.keep_journals),
    and that of a running reap, up to its last checkpoint.

    Per server, groups of the filter counting as one, and per site: contacts must not overlap beyond its slots, nor follow closer
    than the delay that held: filter or default, Crawl-delay, back-off, Retry-After. It shows the servers with the least time to
    spare. Exit status 30 if there is a violation; each is shown with its server, times and footprints. Exit status 4 if no
    journal has a contact.

    \b
    Examples:
      shep audit politeness
      shep audit politeness --json | jq .violations
    """
    from shepherd.store.state.database import Database

    with contextlib.ExitStack() as open_states:
        sources = list(_sources(Database(db), number, open_states))
        with common.progress(3 * sum(source.records for source in sources), "audit", "record") as bar:
            journals = [_Read(source, source.read(config, bar.update)) for source in sources]
            groups = _epochs(journals)
            if not groups:
                raise NothingToDo("no journal that is kept has a contact with a server")
            epochs = [_Epoch(group, _judge(group, slack, limit, bar.update)) for group in groups]
        if as_json:
            common.emit_json(_json(epochs, journals))
        else:
            for epoch in epochs:
                _show(epoch, len(epochs) > 1)
    count = sum(epoch.verdict.count for epoch in epochs)
    if count:
        raise Impolite(f"{shared.many(count, 'contact')} came too soon; shep-dump journal -u has their URLs")
    contacts = sum(int(epoch.verdict.contacts.sum()) for epoch in epochs)
    common.LOG.info("%s in %s: none came too soon", shared.many(contacts, "contact"), shared.many(len(journals), "journal"))


@dataclass(frozen=True)
class _Source:
    """One journal: its state, its files, and how far each counts."""

    name: str
    state: State
    files: list[tuple[Path, int]]

    @property
    def records(self) -> int:
        """At most: frames have heads, too."""
        from shepherd.formats.tables import JOURNAL

        return sum(length for _path, length in self.files) // JOURNAL.itemsize

    def parts(self) -> Iterator[Records]:
        from shepherd.formats.frame import FrameKind
        from shepherd.formats.tables import JOURNAL
        from shepherd.store.state import logs

        for path, length in self.files:
            yield from logs.records(path, FrameKind.JOURNAL, JOURNAL, length)

    def read(self, config: Config, tick: Callable[[int], object]) -> Journal:
        """What the audit needs of it: the rest is not kept."""
        from shepherd.politeness import obligations as owed

        def slim() -> Iterator[tuple[Records, Records]]:
            row = 0
            for records in self.parts():
                yield owed.slim(records, row)
                row += len(records)
                tick(len(records))

        contacts, rules = owed.joined(slim(), self.records)
        sites = _some(self.state, "sites", "site", contacts["answered"], owed.SITE_COLUMNS)
        servers = _some(self.state, "servers", "qkey", contacts["qkey"], owed.SERVER_COLUMNS)
        return owed.journal(contacts, rules, sites, servers, config.politeness, before=not self.state.name.closed)

    def footprints(self, rows: set[int]) -> dict[int, str]:
        """Of the URLs of some records."""
        texts, first = {}, 0
        for records in self.parts() if rows else ():
            for row in [row for row in rows if first <= row < first + len(records)]:
                record = records[row - first]
                texts[row] = f"{kinds.FOOTPRINT.text(int(record['norm']))} {kinds.FOOTPRINT.text(int(record['path']))}"
            first += len(records)
        return texts


@dataclass(frozen=True)
class _Read:
    source: _Source
    journal: Journal


@dataclass(frozen=True)
class _Epoch:
    journals: list[_Read]
    verdict: AuditVerdict

    def footprints(self) -> dict[tuple[int, int], str]:
        """Of the contacts that came too soon and of those they came too soon after, by journal and row."""
        places = {place for fault in self.verdict.faults for place in (fault.before, fault.after)}
        return {
            (number, row): text
            for number, journal_read in enumerate(self.journals)
            for row, text in journal_read.source.footprints({row for journal, row in places if journal == number}).items()
        }


# --- reading ----------------------------------------------------------------------------------------------------


def _sources(database: Database, number: int | None, open_states: contextlib.ExitStack) -> Iterator[_Source]:
    """Oldest first. A state is held by a lease until the end: what came too soon is looked up in it."""
    from shepherd.store.state import journals

    closed = {name.number for name in database.states() if name.closed} if number is None else {number}
    kept_names = {name.number: name for name in journals.numbers(database.log_path)} if number is None else {}
    for state_number in sorted({*kept_names, *closed}):  # an old state that somebody leases stands among them
        if state_number in closed:  # also where a prune was killed after it had kept the journal
            state = open_states.enter_context(database.reading("shep audit politeness", shared.clock_ms(), state_number))
        else:
            state = journals.open_state(database.log_path, kept_names[state_number])
        yield from _of_state(state)
    furthest = database.furthest()
    if number is None and furthest.name.phase == "reap":
        from shepherd.report.history import of_harvest

        files = [of_harvest(path) for path in furthest.harvests()]
        yield _Source(str(furthest.name), furthest, [file for file in files if file[1]])


def _of_state(state: State) -> Iterator[_Source]:
    from shepherd.store.disk import names

    for journal_number in state.numbered("journal"):
        path = state.path / names.journal(journal_number)
        yield _Source(f"state {state.number}", state, [(path, path.stat().st_size)])


def _some(state: State, name: str, key: str, keys: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    """The rows of a table that a journal speaks of."""
    import numpy as np

    table = getattr(state, name)
    table_keys = table[key][0 : table.rows]
    there = np.zeros(len(table_keys), bool)
    for first in range(0, len(keys), STEP) if len(table_keys) else ():
        place = np.searchsorted(table_keys, keys[first : first + STEP])
        there[np.minimum(place, len(table_keys) - 1)] = True  # a neighbour of a key that is not there does no harm
    rows = np.flatnonzero(there).astype(np.int64)
    return {column: table[column].take(rows) for column in columns}


def _epochs(journals: list[_Read]) -> list[list[_Read]]:
    """Journals that belong together: where one begins before an older one has ended, the clock was set back between them."""
    epochs: list[list[_Read]] = []
    last_ms = 0
    for journal_read in journals:
        contacts = journal_read.journal.contacts
        if not len(contacts):
            continue
        if not epochs or int(contacts["start_ms"].min()) < last_ms:
            if epochs:
                common.LOG.warning(
                    "%s begins before what came earlier has ended; it is judged by itself", journal_read.source.name
                )
            epochs.append([])
        epochs[-1].append(journal_read)
        last_ms = int(contacts["end_ms"].max())
    return epochs


def _judge(journals: list[_Read], slack_ms: int, limit: int, tick: Callable[[int], object]) -> AuditVerdict:
    from shepherd.politeness import audit as politeness

    return politeness.judge([journal_read.journal for journal_read in journals], slack_ms, limit, tick)


# --- telling ----------------------------------------------------------------------------------------------------


def _tightest(verdict: AuditVerdict) -> list[dict[str, Any]]:
    """The servers that were asked more than once, those with the least to spare first."""
    import numpy as np

    more = np.flatnonzero(verdict.gap_ms != -1)
    order = more[np.argsort(verdict.spare_ms[more], kind="stable")][:MOST_SERVERS]
    return [
        {
            "server": _name(int(verdict.key[index])),
            "contacts": int(verdict.contacts[index]),
            "smallest_gap_ms": int(verdict.gap_ms[index]),
            "to_spare_ms": int(verdict.spare_ms[index]),
        }
        for index in order.tolist()
    ]


def _name(key: int) -> str:
    from shepherd.filters.settings import GROUP_BIT

    return f"group {kinds.GROUP.text(key)}" if key & GROUP_BIT else kinds.QUEUE_KEY.text(key)


def _faults(epoch: _Epoch) -> list[dict[str, Any]]:
    footprints = epoch.footprints()
    return [
        {
            "what": fault.what,
            **({"site": kinds.FOOTPRINT.json(fault.key)} if fault.what == "site" else {"server": _name(fault.key)}),
            "gap_ms": fault.gap_ms,
            "needed_ms": fault.needed_ms,
            "before": _contact(*fault.times[:2], footprints[fault.before]),
            "after": _contact(*fault.times[2:], footprints[fault.after]),
        }
        for fault in epoch.verdict.faults
    ]


def _contact(start_ms: int, end_ms: int, footprint: str) -> dict[str, Any]:
    return {"start": iso_ms(start_ms), "end": iso_ms(end_ms), "footprint": footprint}


def _show(epoch: _Epoch, several: bool) -> None:
    if several:
        click.echo(f"{', '.join(journal_read.source.name for journal_read in epoch.journals)}:")
    verdict = epoch.verdict
    click.echo(f"{shared.many(int(verdict.contacts.sum()), 'contact')} with {shared.many(len(verdict.key), 'server')}")
    for row in _tightest(verdict):
        spare = f"{row['to_spare_ms'] / 1000:.3f} s to spare"
        gap = f"smallest gap {row['smallest_gap_ms'] / 1000:.3f} s"
        click.echo(f"  {row['server']:<24}  {shared.many(row['contacts'], 'contact'):<16}  {gap}, {spare}")
    for fault in _faults(epoch):
        where = fault.get("server") or f"site {fault['site']}"
        click.echo(f"violation ({fault['what']}): {where}: {fault['gap_ms']} ms, where {fault['needed_ms']} ms were due")
        for name in ("before", "after"):
            click.echo(f"  {name:<6}  {fault[name]['start']} to {fault[name]['end']}  {fault[name]['footprint']}")


def _json(epochs: list[_Epoch], journals: list[_Read]) -> dict[str, Any]:
    return {
        "journals": [journal_read.source.name for journal_read in journals],
        "contacts": sum(int(epoch.verdict.contacts.sum()) for epoch in epochs),
        "servers": sum(len(epoch.verdict.key) for epoch in epochs),
        "tightest": [row for epoch in epochs for row in _tightest(epoch.verdict)],
        "violation_count": sum(epoch.verdict.count for epoch in epochs),
        "violations": [fault for epoch in epochs for fault in _faults(epoch)],
    }
