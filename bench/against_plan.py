"""Plan, as SQL: what is due, in which order, and how much of it each server and the plan have room for ("How plan decides").

The walk best first is a running sum: a row takes one contact of its server, or two where it brings its site's robots.txt. What is
within the quota of its server takes room in the plan in the same order.
"""

from __future__ import annotations

import duckdb
import numpy as np
from against_engine import Case, Columns, Verdict, columns, counts, fetch, numbered

from shepherd.config import MAX_RETRY_AFTER_S
from shepherd.formats.tables import INDEX, NO_LIMIT, Deferred
from shepherd.formats.vocabulary import word

READ = ("norm", "path", "site", "type", "flags", "reason", "retry", "checked", "frequency", "weight")
RECORD = ("norm", "path", "site", "oid", "digest", "weight", "flags", "section")
LEAST = 1_000  # a measured speed never lets a plan be smaller
SPREAD = np.uint64(0x9E3779B97F4A7C15)
NOWHERE = "s.qkey >> 56 = 127"
CLASS = 1 << 24  # what a class counts in a priority


def judge(case: Case) -> Verdict:
    verdict, connection = Verdict(), case.connect()
    index = columns(case.before, "index", READ)
    spread = (index.pop("path") ^ index["site"]) * SPREAD >> np.uint64(32)
    connection.register("known", numbered(index) | {"spread": spread.astype(np.int64)})
    connection.register("sites", columns(case.before, "sites"))
    connection.register("servers", columns(case.before, "servers"))
    _servers(connection, case)
    _due(connection, case)
    _walk(connection, case)
    deferred = np.zeros(len(spread), np.uint8)
    left = fetch(connection, "select n, deferred from verdict where deferred > 0")
    deferred[left["n"]] = left["deferred"]
    verdict.compare("rows", {"deferred": deferred}, columns(case.after, "index", ("deferred",)))
    verdict.same("rows", case.before, case.after, "index", [name for name in INDEX if name != "deferred"])
    _compare_records(verdict, connection, case)
    found = counts(connection, "select deferred, count(*) from verdict where deferred > 0 group by 1 order by 1")
    verdict.decided |= {word(Deferred(int(reason))): number for reason, number in found.items()}
    verdict.decided |= counts(connection, "select 'class ' || class, count(*) from verdict where page group by 1 order by 1")
    return verdict


def _servers(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The table `place`: of every site its server, whether its robots.txt comes first, why it must wait, and the server's quota.

    A site without an address is a server by itself. Groups are not judged here: the filter of a made database has none.
    """
    grouped = """select count_if("group" <> 0) from (select "group" from sites union all select "group" from servers)"""
    if connection.sql(grouped).fetchall() != [(0,)]:
        raise SystemExit("bench/against: quotas of groups are not judged here")
    now_ms, reap_ms = case.now * 1000, case.config.plan.reap_s * 1000
    unsure_ms = min(case.before.control.unsure, now_ms)
    default_ms = round(case.config.politeness.delay_s * 1000)
    asked = f"greatest(case s.delay_ms when {NO_LIMIT} then {default_ms} else s.delay_ms end, s.crawl_delay_ms)"
    connection.execute(f"""create table of_server as select server, count(*) as sites,
        max(coalesce(v.delay_ms::bigint << v.backoff, {asked})) as delay, max(coalesce(v.avg_ms, s.avg_ms)) as avg,
        max(coalesce(greatest(v.slots, 1), 1)) as slots, max(coalesce(v.next_ms, 0)) - {now_ms} as wait
        from (select *, case when {NOWHERE} then site else qkey end as server, {NOWHERE} as alone from sites s) s
        left join servers v on v.qkey = s.qkey and not s.alone group by server, alone""")
    connection.execute(f"""create table quota as select server, case when room <= 0 then 0 else
        greatest(room * least(slots, sites) // greatest(delay + avg, 1), 1) end as quota from (select *, {reap_ms} - greatest(0,
            least(wait, greatest(delay, {MAX_RETRY_AFTER_S * 1000})), {unsure_ms} + delay - {now_ms}) as room from of_server)""")
    connection.execute(f"""create table place as select s.site, q.server, q.quota, s.qkey, s.robots_checked, s.queue_bonus,
        s.refresh_boost, s.robots_checked = 0 or s.robots_next <= {case.now} or {NOWHERE} as stale,
        case when {NOWHERE} and s.qkey_next > {case.now} then 1 when s.robots_since > 0 and s.robots_next > {case.now} then 2
            when q.quota = 0 then 3 else 0 end as waits
        from sites s join quota q on q.server = case when {NOWHERE} then s.site else s.qkey end""")


def _due(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The table `due`: class, age in eighths of a cycle, and so the priority."""
    plan, now = case.config.plan, case.now
    connection.execute(f"""create table due as with
        row as (select k.n, k.site, k.type, k.flags, k.checked, k.weight, k.spread, k.retry::integer as retry, p.server, p.quota,
            p.stale, p.waits, p.robots_checked, p.queue_bonus, greatest({now} - k.checked::bigint, 0) as age,
            k.type = 4 and k.reason in (20, 21) as denied,
            least(greatest(k.frequency, 1) * (case when k.weight > {plan.important_weight} then 2 else 1 end), 4)
                * greatest(p.refresh_boost, 1)::bigint as times
            from known k join place p on k.site = p.site where k.type in (2, 3, 4) and k.flags & 1 = 0),
        timed as (select *, greatest({plan.refresh_s} // times, 1) as cycle,
            not denied and (type = 4 or (type = 3 and retry between 1 and {plan.max_retries - 1})) as failed from row),
        aged as (select *, type = 3 and not failed as well, age + (spread * (least(cycle, {plan.reap_s}) // 4 + 1) >> 32) as ripe,
            {plan.retry_s} * (1::bigint << greatest(retry - 1, 0)) as patience from timed),
        classed as (select *, case when flags & 8 <> 0 then 7
            when type = 2 then (case when flags & 2 <> 0 then 4 else 3 end)
            when denied then (case when robots_checked > checked or age >= {plan.refresh_s} then 1 end)
            when failed then (case when retry < {plan.max_retries} and age >= patience then 1 end)
            when 2 * ripe >= 3 * cycle then 6
            when ripe >= cycle then (case when times > 1 then 5 else 2 end) end as class from aged)
        select n, site, server, quota, stale, waits, class, least(greatest(weight::integer + queue_bonus, 0), 65535) as worth,
            class * {CLASS} + worth * 256
            + (case checked when 0 then 0 else least(8 * (case when well then ripe else age end) // cycle, 255) end) as priority
        from classed where class is not null""")


def _walk(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The table `verdict`: whether the page and the robots file of a row are planned, and if not the page, why."""
    plan, speed = case.config.plan, case.before.control.speed
    most = plan.max_pages
    if speed and plan.optimism:
        most = min(most, max(speed * plan.reap_s * plan.optimism // 100_000, LEAST))
    for query in (
        """create table first as select *, stale and row_number() over (partition by site order by priority desc, n) = 1 as brings
        from due where waits = 0""",
        """create table fits as select *,
        sum(1 + brings::integer) over (partition by server order by priority desc, n) as contacts from first""",
        """create table walked as select *, sum((contacts <= quota)::integer + (brings and contacts - 1 <= quota)::integer)
        over (order by priority desc, n) as total from fits where contacts - brings::integer <= quota""",
        f"""create table taken as select n, contacts <= quota and total <= {most} as page,
        brings and contacts - 1 <= quota and total - (contacts <= quota)::integer <= {most} as robots from walked""",
        """create table used as select server, sum(page::integer + robots::integer) as used
        from taken join due using (n) group by 1""",
        """create table verdict as select d.n, d.site, d.class, d.worth, d.priority, coalesce(t.page, false) as page,
        coalesce(t.robots, false) as robots, case when d.waits > 0 then d.waits when t.page then 0
            when coalesce(u.used, 0) = d.quota then 4 else 5 end as deferred
        from due d left join taken t using (n) left join used u using (server)""",
    ):
        connection.execute(query)


def _compare_records(verdict: Verdict, connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The plan, best first; with what the index says of each row."""
    want = fetch(
        connection,
        f"""select row, priority, kind, why, v.qkey from (
            select n as row, priority, 1 as kind, site, case class when 7 then 1 when 6 then 2 when 4 then 3 when 3 then 3
                when 1 then 5 else 4 end as why from verdict where page
            union all
            select k.n, 15 * {CLASS} + v.worth * 256, 2, v.site, 6
                from verdict v join known k on k.site = v.site and k.flags & 1 <> 0 where v.robots) r
        join place v using (site) order by priority desc, row""",
    )
    whole = columns(case.before, "index", RECORD)
    planned = case.after.plan()
    expected: Columns = {**want, **{name: values[want["row"]] for name, values in whole.items()}}
    verdict.compare("plan records", expected, {name: planned[name] for name in expected})
