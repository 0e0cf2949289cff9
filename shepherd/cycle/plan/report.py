"""What a plan will take: when each server is done with it, and how much of their time is used. Whole numbers only."""

from __future__ import annotations

import numpy as np

from shepherd import config
from shepherd.formats.tables import I64, Deferred, Kind, Records, Why
from shepherd.formats.vocabulary import word
from shepherd.politeness.quota import Servers

SERVERS_LISTED = 10


def report(records: Records, contacts: I64, deferred: I64, servers: Servers, plan: config.Plan, most: int) -> dict[str, object]:
    """`contacts` is by server, `deferred` by reason; `most` is how many contacts the plan had room for."""
    why = np.bincount(records["why"], minlength=max(Why) + 1)
    return {
        "phase": "plan",
        "planned": len(records),
        "pages": int(np.count_nonzero(records["kind"] == Kind.PAGE)),
        "planned_by": {word(reason): int(why[reason]) for reason in Why if why[reason]},
        "deferred": reasons(deferred),
        "room": most,
        **_servers(contacts, servers, plan),
    }


def reasons(deferred: I64) -> dict[str, int]:
    """In words, without those that do not occur."""
    return {word(reason): int(deferred[reason]) for reason in Deferred if reason and deferred[reason]}


def _servers(contacts: I64, servers: Servers, plan: config.Plan) -> dict[str, object]:
    """Each slot of a server makes its share of the contacts one after the other, and waits the delay between them."""
    number = np.flatnonzero(contacts)
    count, timing = contacts[number], servers.timing.of(number)
    turns = -(-count // timing.slots)
    end_ms = timing.start_ms + turns * timing.avg_ms + (turns - 1) * timing.delay_ms
    end_s = -(-end_ms // 1000)
    room_ms = plan.reap_s * 1000
    used_ms = np.minimum(-(-count * (timing.delay_ms + timing.avg_ms) // timing.slots), room_ms)
    # The latest first; those that end together by their number: the order of a whole sort, at the cost of ten.
    latest = np.lexsort((number, -end_s))[:SERVERS_LISTED]
    return {
        "servers": len(number),
        "expected_s": int(end_s.max(initial=0)),
        "utilisation_permille": int(used_ms.sum()) * 1000 // max(len(number) * room_ms, 1),
        "latest": [
            {"server": servers.name(int(number[n])), "contacts": int(count[n]), "expected_s": int(end_s[n])} for n in latest
        ],
    }
