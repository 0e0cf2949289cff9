"""All that a database and its configuration know of one URL: what `shep explain` tells and judges.

A fact is a value of a column under the column's name, so that JSON and docs/formats.md speak of the same things.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli.shep_find import Sought, head_of, seek
from shepherd.cli.shep_row import Values, values
from shepherd.errors import BadUrl, IoFailed

if TYPE_CHECKING:
    from shepherd.filters import Filter, Verdict
    from shepherd.formats.bucket import Bucket
    from shepherd.store.database import Database
    from shepherd.store.inbox import Item
    from shepherd.store.state import State


@dataclass(frozen=True)
class Facts:
    """None where the database has no such row; `waiting` is what waits for a URL without a row: inbox (an insert), purge (in the
    inbox, too), contrib, or nothing."""

    state: int
    sought: Sought
    verdict: Verdict
    filter_path: Path
    row: Values | None
    head: Bucket | None
    site: Values | None
    site_name: str
    server: Values | None
    waiting: str


def collect(database: Database, state: State, filter_: Filter, filter_path: Path, given: str) -> Facts:
    from shepherd.store import lookup

    sought = seek(state, filter_, given)
    row = sought.rows[0] if sought.rows else None
    known = values(state.index, row)
    site_row = lookup.site_row(state, known["site"] if known else _site_of(state, sought))
    site = values(state.sites, site_row)
    return Facts(
        state=state.number,
        sought=sought,
        verdict=filter_.judge(sought.stripped.href),
        filter_path=filter_path,
        row=known,
        head=head_of(state, row) if row is not None else None,
        site=site,
        site_name=state.site_name(site_row) if site_row is not None else sought.stripped.site,
        server=values(state.servers, lookup.server_row(state, site["qkey"])) if site else None,
        waiting="" if row is not None else _waiting(database, state, filter_, sought),
    )


def _site_of(state: State, sought: Sought) -> int:
    """The URL's own site if it is known, else an equivalent one, else its own all the same."""
    from shepherd.store import lookup

    if lookup.site_row(state, sought.site) is not None:
        return sought.site
    equivalents = lookup.rows_of_norm(state, sought.norm)
    return state.index["site"].at(equivalents.start) if equivalents else sought.site


def _waiting(database: Database, state: State, filter_: Filter, sought: Sought) -> str:
    """What waits for the next merge of a URL without a row. Read only if there is none, for then the answer hangs on it."""
    import numpy as np

    asked = [what for item in database.inbox.waiting(state.control.applied) for what in _asked(item, filter_, sought)]
    if asked:
        return "purge" if "purge" in asked else "inbox"  # a purge holds whatever else is asked
    norm, path = np.uint64(sought.norm), np.uint64(sought.path)
    for number in state.numbered("contrib"):
        if any(bool(((block.path == path) & (block.norm == norm)).any()) for block in state.contribs(number, with_texts=False)):
            return "contrib"
    return ""


def _asked(item: Item, filter_: Filter, sought: Sought) -> Iterator[str]:
    """The inserts and purges of this document."""
    from shepherd import urls
    from shepherd.store.inbox import is_closed_to_us, parse_request

    try:
        lines = item.lines()
    except FileNotFoundError:  # a merge has just taken it
        return
    except IoFailed as error:
        if not is_closed_to_us(error):
            raise
        return
    for _number, line in lines:
        if sought.stripped.norm not in line:  # requests hold normalised URLs; this spares parsing all others
            continue
        try:
            request = parse_request(line)
            url = urls.parse(filter_.strip(urls.parse(request["url"]).href))
        except (ValueError, BadUrl):
            continue  # the merge that takes it will report it
        if (url.norm, url.path) == (sought.stripped.norm, sought.stripped.path):
            if request["op"] == "insert":
                yield "insert"
            elif request["op"] == "delete" and request.get("purge") is True:
                yield "purge"
