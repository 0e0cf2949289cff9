"""shep states: the directories of a database, what they were made from, what they take, and who holds them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd import config as configuration
from shepherd.cli.shep import lease_rows
from shepherd.console import cf_place, common, shared
from shepherd.console import rows as console_rows
from shepherd.errors import Corruption, IoFailed, UsageError
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.store.disk.names import StateName
    from shepherd.store.state.database import Database
    from shepherd.store.state.lease import Lease
    from shepherd.store.state.usage import Usage

TITLES = ("state", "made", "from", ">rows", ">segments", ">journals", ">own", ">shared", "held by")
UNFINISHED_NOTE = "being built or deleted, or left by a program that was killed"


@click.command("states")
@common.database
@common.examined
@common.jsonable
@common.standard
def command(db: Path, cf: Path, as_json: bool) -> None:
    """List every state, the furthest last. Unfinished ones have a suffix: 12 is closed, 13.reap is being gathered.

    `own` counts bytes of files that no other directory has, `shared` those that others have, too: they are on the disk once. A
    copy that lost its hard links has them in each state; the last line then says what that costs.
    `held by` lists the leases, which `shep lock` shows in full, and the cursors of export.cursors that have not exported the
    state. The last line says which configuration programs take for this database, and why that one.

    \b
    Examples:
      shep states
      shep states --json | jq 'select(.leases != [] or .cursors != [])'
    """
    from shepherd.store.state.database import Database
    from shepherd.store.state.usage import copied, usage

    database = Database(db)
    used, copies = usage(database), copied(database)
    records = list(_states(database, used, lease_rows.valid(database, int(time.time())), _cursors(database, cf)))
    records = [record | {"copied_bytes": copies.get(record["state"], 0)} for record in records]
    if as_json:
        for record in records:
            common.emit_json(record)
        return
    for line in console_rows.table(TITLES, map(_row, records)):
        click.echo(line)
    if not records:
        click.echo(f"{database.states_path}: no state is there; copy one back from a mirror")
    total_bytes = sum(directory.pinned for directory in used.values())  # each file counts for the newest that has it
    click.echo(f"{shared.size(total_bytes)} on the disk")
    if copies_bytes := sum(copies.values()):
        click.echo(
            f"{shared.size(copies_bytes)} of it are there more than once: a copy of the database lost its hard links; "
            "they go with the older states"
        )
    click.echo(f"configuration: {common.escape(cf_place.in_words(db))}")


def _cursors(database: Database, cf: Path) -> dict[str, int]:
    """Those that the configuration names, and the state that each of them has come to."""
    from shepherd.store.state import cursors

    config, complaints = configuration.examine(cf)
    for complaint in complaints:
        common.LOG.warning("%s", common.escape(complaint))
    return {name: cursors.come_to(database.log_path, name) for name in config.export.cursors}


def _states(
    database: Database, used: Mapping[str, Usage], leases: list[Lease], cursors: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    from shepherd.store.disk import names

    for text, bytes_ in used.items():
        name = names.parse_state(text)
        identity = {
            "state": text,
            "number": int(text.partition(".")[0]),
            "phase": name.phase if name else text.rpartition(".")[2],
        }
        facts = _facts_of(database, name) if name else {"note": UNFINISHED_NOTE}
        if facts is None:
            continue
        closed = name.number if name is not None and name.closed else 0  # nobody holds what is not
        yield (
            identity
            | facts
            | {
                "own_bytes": bytes_.own,
                "shared_bytes": bytes_.shared,
                "pinned_bytes": bytes_.pinned,
                "leases": [lease_rows.as_object(lease, None) for lease in leases if lease.state == closed],
                "cursors": [cursor for cursor, number in cursors.items() if number < closed],
            }
        )


def _facts_of(database: Database, name: StateName) -> dict[str, Any] | None:
    """What its control says; None if it has been deleted meanwhile."""
    try:
        state = database.open(name)
        rows, sites = state.index.rows, state.sites.rows
    except (Corruption, UsageError, IoFailed) as error:
        if not (database.states_path / str(name)).exists():
            return None
        return {"note": str(error)}
    return {
        "made": kinds.TIME_S.json(state.control.now),
        "from": state.control.parent if state.control.parent != "-" else None,
        "rows": rows,
        "sites": sites,
        "segments": len(state.segments()),
        "journals": len(state.numbered("journal")),
        "contributions": len(state.numbered("contrib")),
        "harvests": [path.name for path in state.harvests()],
    }


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    leases = [f"{lease['owner']} ({lease['purpose']}) until {lease['until']}" for lease in record["leases"]]
    holders = ", ".join([*leases, *(f"cursor {name}" for name in record["cursors"])])
    numbers = [None if record.get(name) is None else f"{record[name]:,}" for name in ("rows", "segments", "journals")]
    return (
        record["state"],
        record.get("made"),
        record.get("from"),
        *numbers,
        shared.size(record["own_bytes"]),
        shared.size(record["shared_bytes"]),
        record.get("note") or holders,
    )
