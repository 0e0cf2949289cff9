"""All that a database and its configuration know of one URL: what `shep explain` shows and judges.

A fact is a value of a column under the column's name, so that JSON and docs/formats.md speak of the same things.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.errors import BadUrl, Corruption
from shepherd.report.find import UrlPosition, head_of, seek
from shepherd.report.one_row import Values, values
from shepherd.report.servers import asks_of

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.filters import Filter, SectionLine, StripLine, Verdict
    from shepherd.formats.bucket import Bucket
    from shepherd.report.robots import RobotsVerdict
    from shepherd.store.state.database import Database
    from shepherd.store.state.directory import State
    from shepherd.store.state.inbox import InboxItem


@dataclass(frozen=True)
class UrlFacts:
    """None where the database has no such row; `waiting` is what waits for a URL without a row: inbox (an insert), purge (in the
    inbox, too), contrib, or nothing."""

    state: int
    position: UrlPosition
    strips: tuple[tuple[str, StripLine], ...]  # query parameters, and the lines that remove them
    equivalence: Equivalence
    verdict: Verdict
    pattern: str  # of the filter line that decides
    section: SectionLine
    filter_path: Path
    row: Values | None
    head: Bucket | None
    site: Values | None
    site_name: str
    server: Values | None
    asks: dict[str, Any] | None  # of the server: the site that asks for most patience (report/servers)
    longest_wait_ms: int  # that the server can have been given, from now on
    waiting: str
    robots: RobotsVerdict

    def next_contact_ms(self, now: int) -> int:
        """When its server may be asked, 0 = at any time. A clock that was wrong may have stored a later moment."""
        stored_ms = self.server["next_ms"] if self.server is not None else 0
        return min(stored_ms, now * 1000 + self.longest_wait_ms) if stored_ms > now * 1000 else 0


@dataclass(frozen=True)
class Equivalence:
    """The class of a site in the state, and the line of url-equiv that says so; line 0 is the implicit rule alone. `next` is what
    the next shep-equiv makes of it, where cf/url-equiv has changed and that is another."""

    norm: str
    line: int
    text: str
    path: Path
    next: str = ""


def collect(database: Database, state: State, config: Config, filter_: Filter, url_text: str) -> UrlFacts:
    from shepherd import urls
    from shepherd.politeness.delays import wait_ms
    from shepherd.report.robots import of_state
    from shepherd.store.state import lookup

    position = seek(state, filter_, url_text)
    row_number = position.rows[0] if position.rows else None
    row = values(state.index, row_number)
    site_row = lookup.site_row(state, row["site"] if row else _site_of(state, position))
    site = values(state.sites, site_row)
    site_name = state.site_name(site_row) if site_row is not None else position.stripped.site
    qkey = site["qkey"] if site is not None else 0
    server = values(state.servers, lookup.server_row(state, qkey)) if site else None
    at_home = urls.parse(site_name + position.stripped.path)  # on the site that it would be asked from
    return UrlFacts(
        state=state.number,
        position=position,
        strips=tuple(_strips(filter_, position.parsed.path)),
        equivalence=_equivalence(state, config, position),
        verdict=filter_.judge(position.stripped.href, qkey),
        pattern=filter_.why(position.stripped.href, qkey),
        section=filter_.section_of(position.stripped.href, qkey),
        filter_path=config.filter_path,
        row=row,
        head=head_of(state, row_number) if row_number is not None else None,
        site=site,
        site_name=site_name,
        server=server,
        asks=asks_of(state, [qkey]).get(qkey),
        longest_wait_ms=wait_ms(server["delay_ms"], server["backoff"]) if server else 0,
        waiting="" if row_number is not None else _waiting(database, state, filter_, position),
        robots=of_state(at_home, state, filter_, config.identity.name),
    )


def _strips(filter_: Filter, path: str) -> Iterator[tuple[str, StripLine]]:
    for parameter in path.partition("?")[2].split("&"):
        line = filter_.stripped_by(parameter.partition("=")[0]) if "?" in path else None
        if line is not None:
            yield parameter, line


def _equivalence(state: State, config: Config, position: UrlPosition) -> Equivalence:
    from shepherd.equiv import load_equiv

    site = position.stripped.site
    norm = state.equiv.norm_of(site)
    line = state.equiv.line_of(norm)  # a representative stands in the line of its class
    text = state.equiv.text.split("\n")[line - 1].strip() if line else ""
    coming = load_equiv(config.equiv_path).norm_of(site)
    return Equivalence(norm, line, text, config.equiv_path, coming if coming != norm else "")


def _site_of(state: State, position: UrlPosition) -> int:
    """The URL's own site if it is known, else an equivalent one, else its own all the same."""
    from shepherd.store.state import lookup

    if lookup.site_row(state, position.site) is not None:
        return position.site
    equivalents = lookup.rows_of_norm(state, position.norm)
    return state.index["site"].value(equivalents.start) if equivalents else position.site


def _waiting(database: Database, state: State, filter_: Filter, position: UrlPosition) -> str:
    """What waits for the next merge of a URL without a row. Read only if there is none, for then the answer depends on it."""
    import numpy as np

    operations = [
        what for item in database.inbox.waiting(state.control.applied) for what in _operations(item, state, filter_, position)
    ]
    if operations:
        return "purge" if "purge" in operations else "inbox"  # a purge holds whatever else is asked
    norm, path = np.uint64(position.norm), np.uint64(position.path)
    for number in state.numbered("contrib"):
        if any(bool(((block.path == path) & (block.norm == norm)).any()) for block in state.contribs(number, with_texts=False)):
            return "contrib"
    return ""


def _operations(item: InboxItem, state: State, filter_: Filter, position: UrlPosition) -> Iterator[str]:
    """The inserts and purges of this document; none of an item that cannot be read: the merge reports it."""
    from shepherd.store.state.inbox import CONTRIB

    with contextlib.suppress(Corruption):
        yield from _inserted(item, state, position) if item.kind == CONTRIB else _requested(item, filter_, position)


def _inserted(item: InboxItem, state: State, position: UrlPosition) -> Iterator[str]:
    from shepherd.formats.contribkeys import decode_keys
    from shepherd.store.state import inserts
    from shepherd.urls import Footprints

    prints = Footprints(state.control.key)  # blocks know no equivalences
    footprints = [(prints.norm(url.site), prints.half(url.path)) for url in (position.stripped, position.parsed)]
    for frame in inserts.frames(item.path):
        block = decode_keys(frame.payload)
        if any(bool(((block.path == path) & (block.norm == norm)).any()) for norm, path in footprints):
            yield "insert"


def _requested(item: InboxItem, filter_: Filter, position: UrlPosition) -> Iterator[str]:
    from shepherd import urls
    from shepherd.store.state.inbox import parse_request

    for _number, line in item.lines():
        if position.stripped.norm not in line:  # requests hold normalised URLs; this spares parsing all others
            continue
        try:
            request = parse_request(line)
            url = urls.parse(filter_.strip(urls.parse(request["url"]).href))
        except (ValueError, BadUrl):
            continue  # the merge that takes it will report it
        if (url.norm, url.path) == (position.stripped.norm, position.stripped.path):
            if request["op"] == "insert":
                yield "insert"
            elif request["op"] == "delete" and request.get("purge") is True:
                yield "purge"
