"""Enters a plan into the site book, less what an interrupted run of the same reap has already settled."""

from __future__ import annotations

from shepherd.errors import Corruption
from shepherd.formats.tables import JournalFlag, Kind, Records, Result
from shepherd.net.sitebook import SiteBook, Stage, address_of


def enter_plan(book: SiteBook, plan: Records, journalled: Records) -> None:
    """Pages wait for their sites; a planned robots.txt is asked for even if the stored one is still good."""
    settled = _replay(book, journalled)
    for number, (footprint, kind) in enumerate(zip(plan["site"].tolist(), plan["kind"].tolist(), strict=True)):
        if number in settled:
            continue
        site = book.get(footprint)
        if site is None:
            raise Corruption(f"row {number} of the plan is of a site that is not in the site table")
        if kind == Kind.PAGE:
            site.waiting.append(number)
            continue
        site.robots_item, site.rules_known = number, False
        if site.stage == Stage.SHUT:
            site.stage = Stage.NEW


def _replay(book: SiteBook, journalled: Records) -> set[int]:
    """The plan rows that are settled. Addresses and crawl delays are taken over; robots files are asked for again."""
    settled: set[int] = set()
    for record in journalled:
        if int(record["flags"]) & JournalFlag.HOP:
            continue
        settled.add(int(record["plan_row"]))
        site = book.get(int(record["site"]))
        if site is not None and record["kind"] == Kind.QKEY and record["result"] == Result.RESOLVED:
            site.qkey, site.address = int(record["qkey"]), address_of(int(record["qkey"]))
        elif site is not None and record["kind"] == Kind.ROBOTS:
            site.crawl_delay_ms = max(site.crawl_delay_ms, int(record["crawl_delay_ms"]))
    return settled
