"""Writes what the dispatcher learns into its harvest: buckets, journal records and contributions, and counts them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shepherd.formats.tables import JOURNAL, NO_OID, NO_ROW, JournalFlag, Kind, Reason, Records, Result, qkey_unresolved
from shepherd.net.contribute import Contributions
from shepherd.net.items import Item
from shepherd.net.sitebook import Site
from shepherd.net.verify import Answer
from shepherd.store.harvest import Harvest


class Ledger:
    def __init__(self, harvest: Harvest, filter_version: int) -> None:
        self._harvest = harvest
        self.contributions = Contributions(harvest.contribute, filter_version)
        self.results: Counter[str] = Counter()

    def settle(self, item: Item, answer: Answer, reaper: int) -> None:
        """What was asked for has been answered, once and for all in this reap."""
        record = answer.record
        record["oid"] = self._harvest.store(answer.bucket) if answer.bucket else NO_OID
        record["stored_bytes"] = len(answer.bucket)
        self._write(item, record, reaper)
        if answer.links is not None:
            self.contributions.add(answer.links)

    def hop(self, item: Item, answer: Answer, reaper: int) -> None:
        """A contact that settles nothing: what was asked for is asked for again, elsewhere."""
        record = answer.record
        record["flags"] |= int(JournalFlag.HOP)
        record["oid"], record["stored_bytes"] = NO_OID, 0
        self._write(item, record, reaper)
        if answer.links is not None:
            self.contributions.add(answer.links)

    def lost(self, item: Item, qkey: int, now_ms: int) -> None:
        """A request whose answer never came; the server may have seen it, and it is asked for again."""
        record = self._record(item, Result.SOFT, Reason.REAPER_LOST, qkey, now_ms)
        record["flags"] = int(JournalFlag.HOP | JournalFlag.CONTACTED)
        self._write(item, record, 0)

    def fail(self, item: Item, result: Result, reason: Reason, qkey: int, now_ms: int, contacted: bool) -> None:
        """It is given up for this reap."""
        record = self._record(item, result, reason, qkey, now_ms)
        record["flags"] = int(JournalFlag.CONTACTED) if contacted else 0
        self._write(item, record, 0)

    def resumed(self, now_ms: int) -> None:
        """An earlier run of this reap was cut off: up to now, any server may have been contacted without a record of it."""
        record = np.zeros(1, JOURNAL)
        record["kind"], record["oid"], record["plan_row"] = Kind.RESUMED, NO_OID, NO_ROW
        record["result"], record["reason"] = Result.SOFT, Reason.REAPER_LOST
        record["start_ms"] = record["end_ms"] = now_ms
        self._harvest.journal(record.tobytes())

    def _record(self, item: Item, result: Result, reason: Reason, qkey: int, now_ms: int) -> Records:
        record = np.zeros(1, JOURNAL)
        record["norm"], record["path"] = item.norm, item.path
        record["qkey"], record["oid"] = qkey, NO_OID
        record["start_ms"] = record["end_ms"] = now_ms
        record["kind"], record["result"], record["reason"] = item.kind, result, reason
        return record

    def _write(self, item: Item, record: Records, reaper: int) -> None:
        record["site"], record["answered"] = item.planned_site, item.site
        record["plan_row"], record["hops"], record["reaper"] = item.plan_row, item.hops, reaper
        self._harvest.journal(record.tobytes())
        if not int(record["flags"][0]) & JournalFlag.HOP:
            self.results[Result(record["result"][0]).name.lower()] += 1

    def located(self, site: Site, valid_s: int, reason: Reason, reaper: int, now_ms: int) -> None:
        """A site's queue key, or that it has none."""
        record = np.zeros(1, JOURNAL)
        record["norm"], record["site"], record["answered"] = site.norm, site.site, site.site
        record["qkey"] = site.qkey if reason == Reason.NONE else qkey_unresolved(site.site)
        record["oid"], record["plan_row"] = NO_OID, NO_ROW
        record["start_ms"] = record["end_ms"] = now_ms
        record["valid_s"], record["kind"], record["reaper"] = valid_s, Kind.QKEY, reaper
        record["result"] = Result.RESOLVED if reason == Reason.NONE else Result.UNRESOLVED
        record["reason"] = reason
        self._harvest.journal(record.tobytes())
