"""Drives select: N.merged becomes N.selected; only types and reasons change."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shepherd.batch.partitions import Tick, whole_norms
from shepherd.config import Config
from shepherd.errors import NothingToDo
from shepherd.phases import select
from shepherd.store import names
from shepherd.store.database import Writer
from shepherd.store.names import StateName
from shepherd.store.state import State

RANKED = ("norm", "type", "flags", "weight")
READ = (*RANKED, "reason", "touched", "oid", "digest", "gathered")
CHANGED = ("type", "reason", "touched")


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    state = writer.furthest()
    if state.name.phase not in ("merged", "equiv"):
        raise NothingToDo(f"nothing has been merged (the newest state is {state.name})")
    limits = select.norm_limits(state.sites.slice(0, state.sites.rows), config.select)
    ranges = list(whole_norms(state.index, config.store.partition_rows))
    ranked = [select.rank_sites(state.index.slice(a, b, RANKED), limits, config.select) for a, b in ranges]
    stay = np.sum([part.stay for part in ranked], axis=0)
    sleep = np.sum([part.sleep for part in ranked], axis=0)
    bars = select.bars(stay, sleep, sum(part.exempt for part in ranked), config.select)
    builder = writer.build(state, StateName(state.number, "selected"), now)
    try:
        counts: Counter[str] = Counter()
        table = builder.table("index", CHANGED)
        for (start, stop), part in zip(ranges, ranked, strict=True):
            selected = select.assign(state.index.slice(start, stop, READ), part, bars, state=state.number)
            table.append(dict(selected.columns))
            counts.update(selected.counts)
            bars = select.ties_left(bars, part)
            tick(stop - start)
        builder.finish_table(table)
        builder.keep_table("index", CHANGED)
        for name in ("sites", "servers"):
            builder.keep_table(name)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        return writer.publish(builder, {"phase": "select", **counts})
    finally:
        builder.close()
