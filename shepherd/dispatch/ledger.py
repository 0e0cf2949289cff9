"""Writes what the dispatcher learns into its harvest: buckets, journal records and contributions, and has them counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.items import Item
from shepherd.dispatch.sites import Site
from shepherd.dispatch.verify import Answer, NewLinks
from shepherd.formats.check import Bytes
from shepherd.formats.journal import Entry
from shepherd.formats.tables import NO_OID, JournalFlag, Kind, Reason, Records, Result, qkey_unresolved

HOP: Final = int(JournalFlag.HOP)
CONTACTED: Final = int(JournalFlag.CONTACTED)
LASTING: Final = (Result.STORED, Result.UNCHANGED, Result.REDIRECT, Result.DENIED)  # as cork sees it
OnRecord = Callable[[Entry, str], object]  # a record that was written, and the name of the site that was asked
OnSettled = Callable[[Item, Entry], object]  # an item and the record that settles it


class HarvestWriter(Protocol):
    """What a dispatcher writes into: `store.state.harvest.Harvest`, or what another program keeps its answers in."""

    @property
    def resumed(self) -> bool:
        """Whether an earlier run was cut off, so that servers may have been contacted without our knowing."""

    def journalled(self) -> Records:
        """What was journalled before this run."""

    def store(self, data: bytes) -> int:
        """Keep a bucket; its oid."""

    def journal(self, record: bytes) -> None:
        """Keep a journal record."""

    def contribute(self, records: int, block: Bytes) -> None:
        """Keep a contrib block of so many records."""

    def checkpoint(self, time_ms: int) -> None:
        """Make all of it durable."""

    def end(self, time_ms: int) -> None:
        """The last checkpoint."""


class Ledger:
    def __init__(self, harvest: HarvestWriter, contributions: Contributions, on_record: OnRecord, on_settled: OnSettled) -> None:
        self._harvest, self._on_record, self._on_settled = harvest, on_record, on_settled
        self.contributions = contributions

    def settle(self, item: Item, answer: Answer, name: str) -> None:
        """What was asked for has been answered, once and for all in this reap."""
        oid = self._harvest.store(answer.bucket) if answer.bucket else NO_OID
        record = self._write(item, answer.record._replace(oid=oid, stored_bytes=len(answer.bucket)), name)
        if answer.links is not None:
            self._take(answer.links)
        self._on_settled(item, record)

    def hop(self, item: Item, answer: Answer, name: str) -> None:
        """A contact that settles nothing: its item is fetched again, or elsewhere."""
        record = answer.record
        self._write(item, record._replace(oid=NO_OID, stored_bytes=0, flags=record.flags | HOP), name)
        if answer.links is not None:
            self._take(answer.links)

    def _take(self, links: NewLinks) -> None:
        self.contributions.add(links.block, links.rows, links.texts)

    def record_loss(self, item: Item, qkey: int, now_ms: int) -> None:
        """A request whose answer never came; the server may have seen it, and it is fetched again."""
        self._write(item, _about(item, Result.SOFT, Reason.REAPER_LOST, qkey, now_ms, HOP | CONTACTED), "")

    def fail(self, item: Item, result: Result, reason: Reason, qkey: int, now_ms: int, contacted: bool) -> None:
        """It is given up for this reap."""
        record = self._write(item, _about(item, result, reason, qkey, now_ms, CONTACTED if contacted else 0), "")
        self._on_settled(item, record)

    def _write(self, item: Item, record: Entry, name: str) -> Entry:
        record = record._replace(site=item.planned_site, answered=item.site, plan_row=item.plan_row, hops=item.hops)
        if item.again and record.result not in LASTING:  # of several records the last counts: it must not hide what came before
            record = record._replace(flags=record.flags | HOP)
        self._harvest.journal(record.pack())
        self._on_record(record, name)
        return record

    def resumed(self, now_ms: int) -> None:
        """An earlier run of this reap was cut off: up to now, any server may have been contacted without a record of it."""
        record = Entry(start_ms=now_ms, end_ms=now_ms, kind=Kind.RESUMED, result=Result.SOFT, reason=Reason.REAPER_LOST)
        self._harvest.journal(record.pack())

    def located(self, site: Site, valid_s: int, reason: Reason, reaper: int, now_ms: int) -> None:
        """A site's queue key, or that it has none."""
        record = Entry(
            norm=site.norm,
            site=site.site,
            answered=site.site,
            qkey=site.qkey if reason == Reason.NONE else qkey_unresolved(site.site),
            start_ms=now_ms,
            end_ms=now_ms,
            valid_s=valid_s,
            reaper=reaper,
            kind=Kind.QKEY,
            result=Result.RESOLVED if reason == Reason.NONE else Result.UNRESOLVED,
            reason=reason,
        )
        self._harvest.journal(record.pack())
        self._on_record(record, site.name)


def _about(item: Item, result: Result, reason: Reason, qkey: int, now_ms: int, flags: int) -> Entry:
    return Entry(
        norm=item.norm,
        path=item.path,
        qkey=qkey,
        start_ms=now_ms,
        end_ms=now_ms,
        flags=flags,
        kind=item.kind,
        result=result,
        reason=reason,
    )
