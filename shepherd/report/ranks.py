"""Where a row stands among those that share a limit with it: its site, its server, its section, and all.

The rows of a site stand together, so its rank there is counted as select counts it. Those of a server, of a section and of the
whole index do not: for a server there is the counter that record leaves, for the others a sample of the index is looked at, and
`exact` says so. Nothing here reads a whole column of a large index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shepherd.formats import kinds
from shepherd.report.one_row import Line, Values
from shepherd.text import many

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.formats.tables import I64, U16, Array, Bools, Columns
    from shepherd.store.state.directory import State

SITE_ROWS = 1 << 19  # of a site that are looked at; paths are hashed, so the first ones are as good as any
WINDOWS, WINDOW_ROWS = 4, 1 << 15  # of the index: a block of each column that is looked at must be checked for each
MOST_SITES = 100  # of one class whose settings are looked at


@dataclass(frozen=True)
class Standing:
    """`of` is site, server, section or all. Limits are None where there is none, ranks where there is no row or none is counted.

    `bar` is what a row must weigh more than to be gathered, where the soft limit is full; weights are those that select compares.
    """

    of: str
    name: str
    soft: int | None
    hard: int | None
    count: int | None
    rank: int | None = None
    weight: int | None = None
    bar: int | None = None
    exact: bool = True

    def line(self) -> Line:
        """For a person."""
        about = "" if self.exact else "about "
        if self.rank is not None and self.count is not None:
            what = f"weight rank {about}{self.rank:,} of {self.count:,} in {self.name}"
        else:
            what = f"{about}{many(self.count, 'document')} in {self.name}" if self.count is not None else self.name
        limits = [f"{name} limit {limit:,}" for name, limit in (("soft", self.soft), ("hard", self.hard)) if limit is not None]
        full = f"full: what is to be gathered must weigh more than {self.bar}" if self.bar is not None else ""
        return f"in {self.of}", ", ".join(filter(None, [what, *limits, full]))

    def as_object(self) -> dict[str, Any]:
        return dict(vars(self))


def standings(state: State, config: Config, norm: int, row: int | None, server: Values | None, section: int) -> list[Standing]:
    """Of a row, or of a URL that has none."""
    candidates = [_in_site(state, config, norm, row), _in_server(state, config, server), *_in_index(state, config, row, section)]
    return [standing for standing in candidates if standing is not None]


# --- its site ---------------------------------------------------------------------------------------------------


def _in_site(state: State, config: Config, norm: int, row: int | None) -> Standing | None:
    import numpy as np

    from shepherd.cycle.select import survey
    from shepherd.cycle.select.placement import Place
    from shepherd.store.state import lookup

    rows = lookup.rows_of_norm(state, norm)
    if not rows:
        return None
    start = min(max(row - SITE_ROWS // 2, rows.start), max(rows.stop - SITE_ROWS, rows.start)) if row is not None else rows.start
    part = range(start, min(start + SITE_ROWS, rows.stop))
    index = state.index.slice(part.start, part.stop, survey.OF_INDEX)
    sites = _sites_of(state, index)
    ranking = survey.survey(index, sites, config.select, config.section_bonus)
    soft, hard, _fresh = (int(limit[0]) for limit in survey.site_limits(sites, np.array([norm], np.uint64), config.select))
    competes = (ranking.place != np.uint8(Place.ROBOTS)) & (ranking.place != np.uint8(Place.FORGOTTEN))
    ahead = ranking.place == np.uint8(Place.EXEMPT)
    scale = len(rows) / len(part)
    mine = row - part.start if row is not None else None
    return _ranked(Standing("site", "its site", soft, hard, None), ranking.key, competes, ahead, mine, scale)


def _sites_of(state: State, index: Columns) -> dict[str, Array]:
    """The settings of the sites in a slice of one norm, as survey wants them."""
    import numpy as np

    from shepherd.arrays.keys import distinct
    from shepherd.cycle.select.server_capacity import NO_SERVER
    from shepherd.cycle.select.survey import SETTINGS
    from shepherd.store.state import lookup

    site_rows = (lookup.site_row(state, site) for site in distinct(index["site"])[:MOST_SITES].tolist())
    rows = np.array([row for row in site_rows if row is not None], np.int64)
    sites = state.sites.take(rows, ("norm", "site", *SETTINGS))
    return sites | {"server": np.full(len(rows), NO_SERVER, np.int32)}


def _ranked(empty: Standing, key: U16, competes: Bools, ahead: Bools, mine: int | None, scale: float) -> Standing:
    """With the rank of one of these rows, best first, and the weight of the last that fits."""
    import dataclasses

    import numpy as np

    order = np.flatnonzero(competes)
    order = order[np.lexsort((order, 65_535 - key[order].astype(np.int64), ~ahead[order]))]
    count, exact = round(len(order) * scale), scale == 1
    rank = int(np.flatnonzero(order == mine)[0]) + 1 if mine is not None and competes[mine] else None
    last = round((empty.soft or 0) / scale) - 1
    full = empty.soft is not None and count >= empty.soft and len(order) > 0
    return dataclasses.replace(
        empty,
        count=count,
        rank=max(round(rank * scale), 1) if rank is not None else None,
        weight=int(key[mine]) if mine is not None else None,
        bar=int(key[order[min(max(last, 0), len(order) - 1)]]) if full else None,
        exact=exact,
    )


# --- its server -------------------------------------------------------------------------------------------------


def _in_server(state: State, config: Config, server: Values | None) -> Standing | None:
    """By the counter of the last record; servers of one group share their limit."""
    import numpy as np

    from shepherd.config import MOST
    from shepherd.cycle.select.server_capacity import server_limits
    from shepherd.store.state import lookup

    if server is None:
        return None
    own = lookup.server_row(state, server["qkey"])
    rows = np.array([own], np.int64)
    if server["group"]:
        rows = np.flatnonzero(state.servers["group"][0 : state.servers.rows] == np.uint64(server["group"]))
    columns = state.servers.take(rows)
    limits = server_limits(columns, config.select, config.plan)
    leader = int(limits.leader[0])
    address = kinds.QUEUE_KEY.text(server["qkey"])
    name = f"the group of {address}" if server["group"] else address
    count = int(columns["documents"].sum(dtype=np.int64))
    if int(limits.soft[leader]) >= MOST:
        return Standing("server", name, None, None, count)
    return Standing("server", name, int(limits.soft[leader]), int(limits.hard[leader]), count)


# --- its section, and all ---------------------------------------------------------------------------------------


def _in_index(state: State, config: Config, row: int | None, section: int) -> Iterator[Standing]:
    """Only where there is a limit that could strike."""
    from shepherd.cycle.select.rules import most_gathered, section_limits
    from shepherd.sections import section_name

    most = most_gathered(config.select, config.plan, state.control.speed)
    soft = int(section_limits(config.sections)[section])
    limited = any(vars(config.sections).values()) and soft < state.index.rows
    crowded = state.index.rows > most
    sample = _sample(state, config, row) if limited or crowded else None
    scale = state.index.rows / len(sample.key) if sample else 1.0
    if sample and limited:
        of_section = Standing("section", section_name(section), soft, soft * config.select.hard_factor, None)
        yield _ranked(of_section, sample.key, sample.competes & (sample.section == section), sample.ahead, sample.mine, scale)
    name = "the whole database"
    if sample and crowded:
        yield _ranked(Standing("all", name, most, None, None), sample.key, sample.competes, sample.ahead, sample.mine, scale)
    else:
        yield Standing("all", name, most, None, state.index.rows)


@dataclass(frozen=True)
class _Sample:
    """Rows from all over the index, or all of a small one; `mine` is where the row in question stands among them."""

    key: U16
    section: Array
    competes: Bools
    ahead: Bools
    mine: int | None


def _sample(state: State, config: Config, row: int | None) -> _Sample:
    import numpy as np

    from shepherd.arrays.keys import with_flag
    from shepherd.cycle.select import survey
    from shepherd.formats.tables import Flag, Reason, RowType

    rows = _windows(state.index.rows, row)
    columns = ("weight", "section", "type", "reason", "flags", "digest", "gathered", "oid")
    index = state.index.take(rows, columns)
    limits = [int(reason) for reason in (Reason.SITE_SOFT, Reason.FRESH, Reason.SERVER_SOFT, Reason.SECTION_SOFT)]
    asleep = (index["type"] == np.uint8(RowType.SLEEPING)) & np.isin(index["reason"], limits)
    dead = (index["type"] == np.uint8(RowType.FORGOTTEN)) | with_flag(index["flags"], Flag.ROBOTS) | asleep
    key = survey.keys(index, 0, config.select, config.section_bonus)
    mine = int(np.flatnonzero(rows == row)[0]) if row is not None else None
    return _Sample(key, index["section"], ~dead, with_flag(index["flags"], survey.EXEMPT), mine)


def _windows(rows: int, row: int | None) -> I64:
    """Some rows of an index, in order, among them a certain one."""
    import numpy as np

    if rows <= WINDOWS * WINDOW_ROWS:
        return np.arange(rows, dtype=np.int64)
    starts = [n * (rows - WINDOW_ROWS) // (WINDOWS - 1) for n in range(WINDOWS)]
    sample = np.concatenate([np.arange(start, start + WINDOW_ROWS, dtype=np.int64) for start in starts])
    place = int(np.searchsorted(sample, row)) if row is not None else 0
    if row is None or (place < len(sample) and sample[place] == row):
        return sample
    return np.insert(sample, place, row)
