"""Select in plain Python, over dictionaries and sorted lists: written from docs/cycle.md, not from the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shepherd.config import Config
from shepherd.formats.tables import NO_LIMIT, NO_OID, Flag, Reason, RowType
from shepherd.sections import Section
from tests.support.random_rows import Row

EXEMPT = Flag.INITIAL | Flag.PINNED | Flag.EQUIV
ENDLESS = 10**15
THIN = 160  # bytes of a bucket without a body, about


class Model:
    def __init__(self, index: list[Row], sites: list[Row], servers: list[Row], config: Config, speed: int = 0) -> None:
        self.index, self.config, self.speed = index, config, speed
        self.sites = {site["site"]: site for site in sites}
        self.servers = {server["qkey"]: server for server in servers}
        self.living = [n for n, row in enumerate(index) if row["type"] != RowType.FORGOTTEN]
        self.exempt = {n for n in self.living if index[n]["flags"] & EXEMPT}
        self.robots = {n for n in self.living if index[n]["flags"] & Flag.ROBOTS} - self.exempt
        self.unreferenced = {n for n in self.living if self.is_unreferenced(n)} - self.exempt - self.robots
        pages = [n for n in self.living if n not in self.robots | self.unreferenced]
        self.best_first = sorted(pages, key=lambda n: (n not in self.exempt, -self.key(n), n))
        self.reason: dict[int, Reason] = {}  # of what sleeps or goes
        self.out: set[int] = set()

    # --- what a row is

    def has_body(self, n: int) -> bool:
        row = self.index[n]
        return bool((row["digest"] or row["flags"] & Flag.REDIRECT) and row["gathered"] and row["oid"] < 2**63)

    def is_unreferenced(self, n: int) -> bool:
        """Nothing links to it, and it is an error, or has no content and never had any."""
        row = self.index[n]
        worthless = row["type"] == RowType.ERROR or (row["type"] != RowType.GATHERED and not row["digest"])
        return bool(row["flags"] & Flag.UNREFERENCED) and worthless

    def key(self, n: int) -> int:
        row = self.index[n]
        site = self.sites.get(row["site"])
        key = row["weight"] + (site["select_bonus"] if site else 0)
        key += self.config.select.hysteresis if self.has_body(n) else 0
        key += int(getattr(self.config.section_bonus, Section(row["section"]).name.lower()))
        return min(max(key, 0), 65_535)

    def cost(self, n: int) -> int:
        return self.index[n]["size"] if self.has_body(n) else self.config.select.average_bytes

    def need(self, n: int) -> int:
        """The cost of a page that is not gathered yet is not below the mean of those that are."""
        sizes = [row["size"] for at, row in enumerate(self.index) if self.has_body(at) and not row["flags"] & Flag.ROBOTS]
        mean = -(-sum(sizes) // max(len(sizes), 1))
        return self.cost(n) if self.has_body(n) else max(self.cost(n), mean)

    def aside(self) -> int:
        """Bytes of robots files, and of the thin buckets of all other pages, those that are forgotten included."""
        rows = [(n, row) for n, row in enumerate(self.index) if row["oid"] < 2**63 and not row["flags"] & EXEMPT]
        return sum(THIN if self.has_body(n) and not row["flags"] & Flag.ROBOTS else row["size"] for n, row in rows)

    def is_new(self, n: int) -> bool:
        row = self.index[n]
        in_contrib = 2**63 <= row["oid"] != NO_OID
        return in_contrib or (row["type"] == RowType.SLEEPING and row["reason"] == Reason.FRESH)

    # --- limits

    def of_site(self, norm: int, column: str, default: int) -> int:
        values = [site[column] for site in self.sites.values() if site["norm"] == norm]
        return max([default if value == NO_LIMIT else value for value in values], default=default)

    def site_limits(self, norm: int) -> tuple[int, int]:
        select, softs, hards = self.config.select, [], []
        for site in (site for site in self.sites.values() if site["norm"] == norm):
            softs.append(select.site_soft if site["soft_limit"] == NO_LIMIT else site["soft_limit"])
            hards.append(max(select.site_hard if site["hard_limit"] == NO_LIMIT else site["hard_limit"], softs[-1]))
        return max(softs, default=select.site_soft), max(hards, default=max(select.site_hard, select.site_soft))

    def server(self, n: int) -> int | None:
        """The queue key of its server, or minus the group of it."""
        site = self.sites.get(self.index[n]["site"])
        server = self.servers.get(site["qkey"]) if site else None
        return None if server is None else -server["group"] if server["group"] else server["qkey"]

    def server_limit(self, key: int) -> int:
        select, cycle_s = self.config.select, self.config.plan.refresh_s
        members = [server for server in self.servers.values() if key in (server["qkey"], -server["group"])]
        if not cycle_s or not select.server_share:
            return ENDLESS
        delay = max(server["delay_ms"] + server["avg_ms"] for server in members)
        slots = max(max(server["slots"], 1) for server in members)
        return max(cycle_s * 1000 * slots // max(delay, 1) * select.server_share // 100, 1)

    def section_limit(self, section: int) -> int:
        return int(getattr(self.config.sections, Section(section).name.lower())) or ENDLESS

    # --- the walk

    def strike(
        self, rows: Iterable[int], group_of: Callable[[int], int | None], limit: Callable[[int], int], why: Reason
    ) -> None:
        """Of each group, all but the best so many."""
        taken: dict[int, int] = {}
        for n in rows:
            group = group_of(n)
            if group is None:
                continue
            if taken.get(group, 0) >= limit(group) and n not in self.exempt:
                self.reason[n] = why
            taken[group] = taken.get(group, 0) + 1

    def staying(self) -> list[int]:
        return [n for n in self.best_first if n not in self.reason]

    def run(self) -> None:
        select, factor, index = self.config.select, self.config.select.hard_factor, self.index

        def norm(n: int) -> int:
            return index[n]["norm"]

        def section(n: int) -> int:
            return index[n]["section"]

        self.strike(self.best_first, norm, lambda g: self.site_limits(g)[1], Reason.SITE_HARD)
        left = self.staying()
        self.strike(left, section, lambda g: self.section_limit(g) * factor, Reason.SECTION_HARD)
        self.strike(left, self.server, lambda g: self.server_limit(g) * factor, Reason.SERVER_HARD)
        self.out = set(self.reason)
        self.strike(self.staying(), norm, lambda g: self.site_limits(g)[0], Reason.SITE_SOFT)
        new = [n for n in self.staying() if self.is_new(n)]
        self.strike(new, norm, lambda g: self.of_site(g, "fresh_limit", select.fresh), Reason.FRESH)
        self.strike(self.staying(), self.server, self.server_limit, Reason.SERVER_SOFT)
        self.strike(self.staying(), section, self.section_limit, Reason.SECTION_SOFT)
        self.total()
        self.sleep()
        kept = {index[n]["site"] for n in self.best_first if n not in self.out}
        lonely = {n for n in self.robots if index[n]["site"] not in kept}
        self.out |= lonely | self.unreferenced
        self.reason |= dict.fromkeys(lonely, Reason.SITE_EMPTY) | dict.fromkeys(self.unreferenced, Reason.UNREFERENCED)

    def most(self) -> int:
        select, cycle_s = self.config.select, self.config.plan.refresh_s
        if not self.speed or not cycle_s or not select.optimism:
            return select.gathered
        return min(select.gathered, max(self.speed * cycle_s * select.optimism // 100_000, 1))

    def total(self) -> None:
        """The longest start of the row of all that fits both the number and the space: the shorter one gives the reason."""
        select = self.config.select
        common = [n for n in self.staying() if n not in self.exempt]
        fits = min(max(self.most() - len(self.exempt), 0), len(common))
        reason = Reason.BELOW_BAR
        exempt, segments = sum(map(self.cost, self.exempt)), self.config.cleanup.size_bytes
        rooms = [select.space_bytes - exempt] if select.space_bytes else []
        rooms += [segments - exempt - self.aside()] if segments else []
        if rooms:
            room, space = max(min(rooms), 0), 0
            while space < len(common) and self.need(common[space]) <= room:
                room -= self.need(common[space])
                space += 1
            fits, reason = (space, Reason.SPACE) if space < fits else (fits, reason)
        self.reason |= dict.fromkeys(common[fits:], reason)

    def sleep(self) -> None:
        waiting = [n for n in self.best_first if n in self.reason and n not in self.out]
        gone = waiting[self.config.select.sleeping :]
        self.out |= set(gone)
        self.reason |= dict.fromkeys(gone, Reason.BELOW_SLEEP)

    def rows(self, state: int) -> list[Row]:
        self.run()
        result = []
        for n, row in enumerate(self.index):
            new = dict(row)
            if n in self.reason:
                new["type"] = RowType.FORGOTTEN if n in self.out else RowType.SLEEPING
                new["reason"] = self.reason[n]
            elif row["type"] == RowType.SLEEPING:
                body = row["digest"] and row["gathered"] and row["oid"] < 2**63
                new["type"] = RowType.GATHERED if body else RowType.UNGATHERED
                new["reason"] = Reason.GATHERED if body else Reason.INSERTED if row["flags"] & Flag.INITIAL else Reason.LINK
            result.append(new | {"touched": state} if new != row else new)
        return result
