"""What the phases of a cycle are given to do on a made database: contributions, a reap that has ended, an upload of weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_text
import numpy as np
import numpy.typing as npt
from made_contrib import contributions
from made_rows import NOW
from made_state import digest_of, make_page, page_bucket
from made_web import Web

from shepherd.formats import contrib
from shepherd.formats.feedback import FEEDBACK, FeedbackFlag
from shepherd.formats.frame import Frame, FrameKind, pack_frame
from shepherd.formats.tables import JOURNAL, NO_OID, PLAN, Flag, JournalFlag, Kind, Reason, Result, RowType, Why
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest

Array = npt.NDArray[Any]

REAP_S = 3_600
STEP = 100_000
# Up to these shares of a journal: result, reason, status
RESULTS = (
    (0.58, Result.STORED, Reason.GATHERED, 200),
    (0.83, Result.UNCHANGED, Reason.UNCHANGED, 304),
    (0.88, Result.REDIRECT, Reason.REDIRECT, 301),
    (0.91, Result.DENIED, Reason.ROBOTS_DENIED, 0),
    (0.96, Result.HARD, Reason.CLIENT_ERROR, 404),
    (0.98, Result.SOFT, Reason.SERVER_ERROR, 503),
    (1.00, Result.CONNECTION, Reason.CONNECTION, 0),
)


def add_contributions(path: Path, web: Web, count: int, known: float) -> State:
    """A closed state more, like the newest but with contributions that wait, as a cork leaves it."""
    with Database(path).writing("makedb") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "closed"), NOW)
        try:
            builder.keep(p for p in parent.control.files if p != names.REPORT)
            number = builder.control.contribs
            builder.write_frames(names.contrib(number), _frames(web, parent, count, known))
            builder.change(contribs=number + 1)
            return writer.publish(builder, {"phase": "makedb", "contributions": count})
        finally:
            builder.close()


def _frames(web: Web, state: State, count: int, known: float) -> Iterator[Frame]:
    for block in contributions(web, state, count, known, web.seed):
        yield Frame(0, 0, FrameKind.CONTRIB, len(block), memoryview(contrib.encode(block)))


def add_harvest(path: Path, web: Web, records: int, count: int, known: float) -> State:
    """A reap that has ended: a plan of so many records, a journal with what came of each, and contributions."""
    with Database(path).writing("makedb") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "reap"), NOW)
        try:
            builder.keep(p for p in parent.control.files if p != names.REPORT)
            plan = _plan(web, parent, records)
            builder.write_records(names.PLAN, FrameKind.PLAN, plan)
            state = writer.publish(builder, {"phase": "makedb", "planned": len(plan)})
        finally:
            builder.close()
        directory = state.path / names.HARVESTS
        directory.mkdir()
        harvest = Harvest(directory / "makedb", 1 << 30)
        try:
            for start in range(0, len(plan), STEP):
                _reap(harvest, web, state, plan, start)
            for block in contributions(web, state, count, known, web.seed):
                harvest.contribute(len(block), contrib.encode(block))
            harvest.end((NOW + REAP_S) * 1000)
        finally:
            harvest.close()
        return state


def _plan(web: Web, state: State, records: int) -> Array:
    """Rows that a plan could contain, drawn from the whole index, and the robots files of some of their sites; best first."""
    rng = np.random.default_rng((web.seed, 4))
    rows = np.unique(rng.integers(0, web.rows, 3 * records))
    found = state.index.take(rows, ("type", "flags"))
    robots = (found["flags"] & np.uint16(Flag.ROBOTS)) != 0
    wanted = np.isin(found["type"], (RowType.GATHERED, RowType.UNGATHERED, RowType.ERROR))
    wanted &= ~robots | (rng.random(len(rows)) < 0.5)
    rows = rows[wanted]
    rows = np.sort(rng.permutation(rows)[:records])
    plan = np.zeros(len(rows), PLAN)
    for name, values in state.index.take(rows, ("norm", "path", "site", "oid", "digest", "weight", "flags", "section")).items():
        plan[name] = values
    plan["row"] = rows
    plan["qkey"] = web.qkeys(web.find_sites(web.norm_of_row(rows), plan["site"]))
    robots = (plan["flags"] & np.uint16(Flag.ROBOTS)) != 0
    plan["kind"] = np.where(robots, int(Kind.ROBOTS), int(Kind.PAGE))
    plan["why"] = np.where(robots, int(Why.ROBOTS), int(Why.DUE))
    plan["priority"] = np.where(robots, 15, 2).astype(np.uint32) << np.uint32(24) | plan["weight"].astype(np.uint32) << np.uint32(
        8
    )
    return plan[np.lexsort((plan["row"], ~plan["priority"]))]


def _reap(harvest: Harvest, web: Web, state: State, plan: Array, start: int) -> None:
    """Journal what came of some records of the plan, and store the pages."""
    rng = np.random.default_rng((web.seed, 5, start))
    part = plan[start : start + STEP]
    which = np.searchsorted([r[0] for r in RESULTS], rng.random(len(part)))
    journal = np.zeros(len(part), JOURNAL)
    for name in ("norm", "path", "site", "qkey", "section", "kind"):
        journal[name] = part[name]
    journal["answered"], journal["oid"], journal["plan_row"] = part["site"], NO_OID, np.arange(start, start + len(part))
    for name, place in (("result", 1), ("reason", 2), ("status", 3)):
        journal[name] = np.array([r[place] for r in RESULTS])[which]
    denied = journal["result"] == Result.DENIED
    journal["flags"] = np.where(denied | (journal["result"] == Result.CONNECTION), 0, int(JournalFlag.CONTACTED))
    journal["download_ms"] = np.where(denied, 0, 20 + rng.integers(0, 500, len(part)))
    journal["end_ms"] = NOW * 1000 + (np.arange(start, start + len(part)) + 1) * (REAP_S * 1000) // len(plan)
    journal["start_ms"] = journal["end_ms"] - journal["download_ms"]
    stored = np.flatnonzero(journal["result"] == Result.STORED)
    for i, url in zip(stored.tolist(), _urls(web, state, part[stored]), strict=True):
        page = make_page(url, int(journal["end_ms"][i]), 200)
        site, path = int(part["site"][i]), int(part["path"][i])
        data = page_bucket(site, path, int(journal["end_ms"][i]), state.number, url, page)
        journal["oid"][i], journal["digest"][i] = harvest.store(data), digest_of(page)
        journal["body_bytes"][i], journal["stored_bytes"][i], journal["wire_bytes"][i] = len(page), len(data), len(page) + 300
    data, width = journal.tobytes(), JOURNAL.itemsize
    for at in range(0, len(data), width):
        harvest.journal(data[at : at + width])


def _urls(web: Web, state: State, part: Array) -> list[bytes]:
    """The URLs of some records of the plan: where buckets are made they have them, else they are spelled anew."""
    if web.real:
        return [state.objects.head(oid).url.encode() for oid in part["oid"].tolist()]
    sites = web.site_names(web.find_sites(web.norm_of_row(part["row"]), part["site"]))
    return [site + path for site, path in zip(sites, made_text.paths(part["path"]).split(), strict=True)]


def write_feedback(path: Path, web: Web, state: State, count: int) -> None:
    """An upload of an indexer, as frames of records (docs/formats.md), of rows all over the index."""
    rng = np.random.default_rng((web.seed, 6))
    with path.open("wb") as file:
        for start in range(0, count, STEP):
            rows = np.sort(rng.integers(0, web.rows, min(STEP, count - start)))
            records = np.zeros(len(rows), FEEDBACK)
            for name in ("site", "path"):
                records[name] = state.index[name].take(rows)
            records["weight"] = rng.integers(1, 65_536, len(rows))
            records["flags"] = FeedbackFlag.WEIGHT
            file.write(pack_frame(FrameKind.FEEDBACK, len(rows), records.tobytes()))
