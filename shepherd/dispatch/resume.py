"""Enters a plan into the site book, less what an interrupted run of the same reap has already settled."""

from __future__ import annotations

import numpy as np

from shepherd.dispatch.items import Items
from shepherd.dispatch.sites import SiteBook, Stage, address_of
from shepherd.errors import Corruption
from shepherd.formats.tables import JournalFlag, Kind, Records, Result


def enter_plan(book: SiteBook, items: Items, plan: Records, journalled: Records) -> int:
    """Pages wait for their sites; a planned robots.txt is asked for even if the stored one is still good.

    Returns how many rows of the plan were settled before.
    """
    settled = journalled[np.flatnonzero(journalled["flags"] & JournalFlag.HOP == 0)]
    left = np.ones(len(plan), np.bool_)
    done = settled["plan_row"]
    left[done[done < len(plan)]] = False
    items.settle_rows(~left)
    pages = np.flatnonzero(left & (plan["kind"] == Kind.PAGE)).astype(np.uint32)
    book.enter_pages(pages, np.ascontiguousarray(plan["site"][pages]))
    for number in np.flatnonzero(left & (plan["kind"] != Kind.PAGE)).tolist():
        site = book.get(int(plan["site"][number]))
        if site is None:
            raise Corruption(f"row {number} of the plan is of a site that is not in the site table")
        site.robots_item, site.rules_known = number, False
        if site.stage == Stage.SHUT:
            site.stage = Stage.NEW
    _replay(book, settled)
    return len(plan) - int(np.count_nonzero(left))


def _replay(book: SiteBook, settled: Records) -> None:
    """Addresses and crawl delays are taken over; robots files are asked for again."""
    for record in settled[np.isin(settled["kind"], (Kind.QKEY, Kind.ROBOTS))]:
        site = book.get(int(record["site"]))
        if site is None:
            continue
        if record["kind"] == Kind.ROBOTS:
            site.crawl_delay_ms = max(site.crawl_delay_ms, int(record["crawl_delay_ms"]))
        elif record["result"] == Result.RESOLVED:
            book.located(site, int(record["qkey"]), address_of(int(record["qkey"])))
