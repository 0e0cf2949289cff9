"""shep delete: have documents forgotten; with --purge for ever, and no byte of them left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.cli.shep import edit_requests
from shepherd.cli.shep.edit_requests import FORGOTTEN, ROBOTS, EditOptions, EditRequest
from shepherd.console import common, selectors, shared
from shepherd.console.selectors import Selection

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State
    from shepherd.store.state.lease import Lease

FEW = 1_000  # rows that are looked for one by one
PURGED = f"{edit_requests.NEXT_CYCLE}, and their bytes erased by the next cleanup"


@click.command("delete")
@selectors.selecting
@click.option("--purge", is_flag=True, help="Erase every byte of them, and keep their URLs out for ever, known or not.")
@click.option("--yes", is_flag=True, help=f"Do not ask before more than {edit_requests.ASKED_FROM:,} URLs go that are not named.")
@edit_requests.edit_options
def command(selection: Selection, purge: bool, yes: bool, options: EditOptions) -> None:
    """Delete documents: their URLs become forgotten.

    It needs no lock, and takes effect at the start of the next cycle. A deleted URL may come back if a page still links to it
    after the next cleanup: a line of the filter, or --purge, keeps it out. With --purge the next cleanup erases the bytes as
    well; leased states keep theirs until the lease ends, and are listed. You must confirm if more than 1,000 URLs go that you do
    not name one by one. Robots files are deleted only if you name them: politeness needs them.

    \b
    Examples:
      shep delete https://example.org/old
      shep delete --glob '*://example.org/*sessionid=*' --dry-run
      shep delete --site spam.example --yes
      shep delete --purge -f removals.txt
    """
    spares = () if selection.by_url else (ROBOTS,)
    if purge:
        copies = _LeasedCopies(options.db)
        what = EditRequest("delete", "purged", {"purge": True}, spares, asks=not yes, unknown_too=True, effect=PURGED)
        try:
            edit_requests.change(selection, what, options, copies.see)
        finally:
            copies.report_copies(options)
        return
    edit_requests.change(selection, EditRequest("delete", "deleted", spares=(FORGOTTEN, *spares), asks=not yes), options)


class _LeasedCopies:
    """Counts how many of the documents are in states that somebody else holds."""

    def __init__(self, db: Path) -> None:
        from shepherd.store.state.database import Database

        self._database, self._counts = Database(db), Counter[int]()
        now = shared.clock_ms() // 1_000
        leases = [lease for lease in self._database.leases.all() if lease.holds(now)]
        self._leases: dict[int, list[Lease]] = {}
        for lease in leases:
            self._leases.setdefault(lease.state, []).append(lease)  # before we take one of our own

    def see(self, state: State, rows: I64) -> None:
        for number in self._leases:
            self._counts[number] += _stored(self._database.closed(number), state, rows)

    def report_copies(self, options: EditOptions) -> None:
        for number, count in sorted(self._counts.items()):
            for lease in self._leases[number] if count else ():
                record = {"state": number, "holds": count, "owner": lease.owner, "purpose": lease.purpose}
                if options.as_json:
                    common.emit_json(record | {"expires": shared.iso(lease.expires)})
                else:
                    text = "state %d keeps %s of them while it is leased by %s for %s, until %s"
                    words = (shared.many(count, "document"), lease.owner, lease.purpose, shared.iso(lease.expires))
                    common.LOG.warning(text, number, *words)


def _stored(leased_state: State, state: State, rows: I64) -> int:
    """How many of the documents of some rows have a bucket in another state."""
    import numpy as np

    from shepherd.arrays.keys import find_rows
    from shepherd.formats.tables import in_bucket
    from shepherd.store.state import lookup

    keys = tuple(state.index[name].take(rows) for name in ("norm", "path", "site"))
    if len(rows) <= FEW:
        each = (lookup.row_of(leased_state, *key) for key in zip(*(column.tolist() for column in keys), strict=True))
        leased_rows = np.array([row for row in each if row is not None], np.int64)
    else:
        leased_rows = find_rows(
            *(leased_state.index[name][0 : leased_state.index.rows] for name in ("norm", "path", "site")), *keys
        )
        leased_rows = leased_rows[leased_rows >= 0]
    return int(np.count_nonzero(in_bucket(leased_state.index["oid"].take(leased_rows))))
