"""Cork, as SQL: what the newest journal record of a row makes of it, and what a reap says of sites and servers.

Moves, queue keys and hops are not judged here: a made journal has none. Nor is what an unreachable robots.txt does to pages.
"""

from __future__ import annotations

import duckdb
import numpy as np
from against_engine import Case, Columns, Verdict, columns, counts, fetch, numbered

from shepherd.formats.tables import INDEX, JOURNAL, NO_LIMIT, NO_OID

FRAME = 24  # bytes before the payload
READ = (
    *("oid", "digest", "type", "reason", "flags", "status", "section", "frequency", "retry", "gathered", "checked", "changed"),
    *("touched", "download_ms", "size"),
)
STORED, UNCHANGED, REDIRECT, DENIED, SOFT, HARD, SITE, CONNECTION = range(1, 9)
SITE_COLUMNS = ("documents", "gathered", "avg_ms", "robots_oid", "robots_checked", "robots_next", "robots_since", "robots_status")
SERVER_COLUMNS = ("qkey", "next_ms", "delay_ms", "avg_ms", "fetches", "errors", "slots", "backoff", "group")


def judge(case: Case) -> Verdict:
    verdict, connection = Verdict(), case.connect()
    connection.register("known", numbered(columns(case.before, "index", ("norm", "path", "site", *READ))))
    connection.register("journal", numbered(_journal(case)))
    connection.register("sites", columns(case.before, "sites"))
    connection.register("servers", columns(case.before, "servers"))
    connection.execute("create table record as select * from journal where flags & 32 = 0")
    if counts(connection, "select 'odd', count(*) from record where kind not in (1, 2) or answered <> site") != {"odd": 0}:
        raise SystemExit("bench/against: moves and queue keys are not judged here")
    _rows(connection, case)
    want = fetch(connection, f"select {', '.join(READ)} from corked order by n")
    verdict.compare("rows", want, columns(case.after, "index", READ))
    verdict.same("rows", case.before, case.after, "index", [name for name in INDEX if name not in READ])
    _sites(verdict, connection, case)
    _servers(verdict, connection, case)
    verdict.decided |= counts(
        connection, "select 'result ' || result, count(*) from corked where result is not null group by 1 order by 1"
    )
    return verdict


def _journal(case: Case) -> Columns:
    """The records of the harvest. Segments of a harvest count from 1; the database goes on counting where it was."""
    (harvest,) = (case.before.path / "harvest").iterdir()
    data, at, parts = (harvest / "journal").read_bytes(), 0, []
    while at < len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        parts.append(np.frombuffer(data, JOURNAL, length // JOURNAL.itemsize, at + FRAME))
        at += FRAME + length
    records = np.concatenate(parts)
    table = {name: np.ascontiguousarray(records[name]) for name in JOURNAL.names or () if not name.startswith("spare")}
    further = np.uint64(case.before.control.segments - 1 << 32)
    table["oid"] = np.where(table["oid"] == np.uint64(NO_OID), table["oid"], table["oid"] + further)
    return table


def _rows(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The table `corked`. A record settles a row that has not been checked since; a failure also not at the same second."""
    plan, state = case.config.plan, case.after.number
    had = f"k.digest <> 0 and k.gathered > 0 and k.oid < {1 << 63}"
    connection.execute("""create table newest as select norm, path, site, kind, max(n) as n from record group by all""")
    connection.execute(f"""create table settled as select k.n as row, r.*, (r.end_ms // 1000)::uinteger as end_s,
        k.digest <> r.digest as differs, {had} as had, {had} and k.digest = r.digest as again,
        greatest(k.frequency, 1) as often, k.digest <> 0 and k.gathered > 0 as known_body,
        r.result in ({SOFT}, {HARD}, {SITE}, {CONNECTION}) as failed, least(k.retry::integer + 1, 255) as tries
        from record r semi join newest t on r.n = t.n join known k on k.norm = r.norm and k.path = r.path and k.site = r.site
        where (end_s > k.checked or (end_s = k.checked and not failed))
        and not (k.type = 5 and k.reason in (16, 18) and r.kind = 1)
        and not (r.result = {SOFT} and r.reason = 25 and r.flags & 1 = 0)""")
    stored, fetched = f"r.result = {STORED}", f"(r.result = {STORED} and not r.again)"
    body_flags = "((r.flags & 2 <> 0)::integer * 256 + (r.flags & 4 <> 0)::integer * 512 + (r.flags & 16 <> 0)::integer * 64)"
    spared = f"k.type = 3 and r.result <> {HARD} and r.tries < {plan.max_retries} and r.reason <> 21"
    stable = f"r.end_s::bigint - k.changed >= {2 * plan.refresh_s} and k.checked < r.end_s"
    expressions = {
        "oid": f"case when {fetched} or (r.result = {REDIRECT} and r.oid <> {NO_OID}) then r.oid else k.oid end",
        "digest": f"case when {stored} then r.digest when r.result = {REDIRECT} then 0 else k.digest end",
        "type": f"""case when r.result in ({STORED}, {REDIRECT}) or (r.result = {UNCHANGED} and r.had) then 3
            when r.result = {DENIED} then 4 when r.failed and not ({spared}) then 4 else k.type end""",
        "reason": f"""case when {stored} and r.again then (case when k.checked < r.end_s then 4 else k.reason end)
            when {stored} then 3 when r.result = {UNCHANGED} then 4 when r.result = {REDIRECT} then 5
            when r.result = {DENIED} then 20 else r.reason end""",
        "flags": f"""case when {stored} then (k.flags & ~{8 + 64 + 128 + 256 + 512}) | {body_flags}
            when r.result = {REDIRECT} then (k.flags & ~{8 + 64 + 256 + 512}) | 128 else k.flags & ~8 end""",
        "status": f"""case when r.result in ({STORED}, {REDIRECT}) or (r.failed and r.status > 0) then r.status
            else k.status end""",
        "section": f"case when {stored} then r.section else k.section end",
        "frequency": f"""case when {stored} and r.known_body and r.differs then least(r.often * 2, 4)
            when (({stored} and r.known_body) or r.result = {UNCHANGED}) and {stable} then greatest(r.often // 2, 1)
            when r.result in ({STORED}, {UNCHANGED}) then r.often else k.frequency end""",
        "retry": f"case when r.failed then r.tries when r.result = {DENIED} then k.retry else 0 end",
        "gathered": f"case when {fetched} or r.result = {REDIRECT} then r.end_s else k.gathered end",
        "checked": "r.end_s",
        "changed": f"""case when ({stored} and r.differs) or (r.result = {REDIRECT} and k.flags & 128 = 0) then r.end_s
            else k.changed end""",
        "touched": str(state),
        "download_ms": "r.download_ms",
        "size": f"case when {fetched} or (r.result = {REDIRECT} and r.oid <> {NO_OID}) then r.stored_bytes else k.size end",
    }
    made = ", ".join(f"case when r.row is null then k.{name} else {text} end as {name}" for name, text in expressions.items())
    connection.execute(
        f"create table corked as select k.n, k.site, r.result, {made} from known k left join settled r on k.n = r.row"
    )


def _sites(verdict: Verdict, connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """Documents, averages, and what a robots.txt that came, stayed away, or could not be had says."""
    polite = case.config.politeness
    connection.execute(f"""create table robots as select site, result, status, oid, crawl_delay_ms, end_ms // 1000 as end_s,
        result = {STORED} or result = {UNCHANGED} as there,
        result = {REDIRECT} or (result = {HARD} and status between 400 and 499 and status <> 429) as absent
        from record r semi join newest t on r.n = t.n where kind = 2""")
    connection.execute(f"""create table average as select site, sum(download_ms) // count(*) as ms from journal
        where flags & 1 <> 0 or result = {CONNECTION} group by site""")
    connection.execute("""create table counted as select site, count(*) as documents,
        count_if(type = 3 and flags & 1 = 0) as gathered from corked group by site""")
    want = fetch(
        connection,
        f"""select c.documents, c.gathered,
        case when a.ms is null then s.avg_ms when s.avg_ms = 0 then a.ms else (7 * s.avg_ms::bigint + a.ms) // 8 end as avg_ms,
        case when k.oid is not null then k.oid when news and r.absent then {NO_OID}::ubigint else s.robots_oid end as robots_oid,
        case when news and (r.there or r.absent) then r.end_s else s.robots_checked end as robots_checked,
        case when not news then s.robots_next when r.there or r.absent then r.end_s + {polite.robots_ttl_s}
            else r.end_s + {polite.robots_retry_s} end as robots_next,
        case when not news then s.robots_since when r.there or r.absent then 0
            when s.robots_since > 0 then s.robots_since else r.end_s end as robots_since,
        case when not news then s.robots_status when r.there or r.absent then r.status else 0 end as robots_status
        from (select s.*, coalesce(r.end_s > s.robots_checked
            or (r.end_s = s.robots_checked and (r.there or r.absent)), false) as news
            from sites s left join robots r using (site)) s
        join counted c using (site) left join average a using (site) left join robots r using (site)
        left join (select c.site, c.oid from corked c join robots r using (site) join known k on c.n = k.n
            where k.flags & 1 <> 0 and r.result = {STORED} and c.result = {STORED}) k using (site)
        order by s.site""",
    )
    verdict.compare("sites", want, columns(case.after, "sites", SITE_COLUMNS))


def _servers(verdict: Verdict, connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """Every contact counts; the last ones in a row that failed double the delay; the next contact is a delay after the last."""
    polite = case.config.politeness
    default_ms = round(polite.delay_s * 1000)
    connection.register(
        "after_sites", columns(case.after, "sites", ("site", "qkey", "delay_ms", "crawl_delay_ms", "slots", "group"))
    )
    connection.execute(f"""create table contact as select *, result = {CONNECTION} or status in (429, 503) as slow,
        result in ({SOFT}, {HARD}, {SITE}, {CONNECTION}) as failed from journal
        where (flags & 1 <> 0 or result = {CONNECTION}) and qkey >> 56 <> 127""")
    connection.execute("""create table asked as select qkey, count(*) as fetches, count_if(failed) as errors,
        sum(download_ms) // count(*) as ms, max(end_ms) as end_ms,
        max(n) filter (not slow) as calm from contact group by qkey""")
    connection.execute("""create table backing as select c.qkey, count(*) as slow from contact c join asked a using (qkey)
        where c.slow and c.n > coalesce(a.calm, -1) group by 1""")
    own_ms, most_ms = f"case delay_ms when {NO_LIMIT} then {default_ms} else delay_ms end", polite.neighbours_s * 1000
    asked = f"greatest({own_ms}, least(crawl_delay_ms, {most_ms}))"
    connection.execute(f"""create table own as select qkey, max({asked}) as delay, max(slots) as slots, max("group") as "group"
        from after_sites where qkey >> 56 <> 127 group by 1""")
    want = fetch(
        connection,
        f"""select qkey, case when end_ms is null then old_next
            else end_ms + delay_ms * (1::bigint << backoff) end as next_ms,
        delay_ms, avg_ms, fetches, errors, slots, backoff, "group" from (
        select q.qkey, a.end_ms, coalesce(v.next_ms, 0) as old_next,
        coalesce(o.delay, v.delay_ms, {default_ms})::bigint as delay_ms,
        case when a.ms is null then coalesce(v.avg_ms, 0) when coalesce(v.avg_ms, 0) = 0 then a.ms
            else (7 * v.avg_ms::bigint + a.ms) // 8 end as avg_ms,
        coalesce(v.fetches, 0) + coalesce(a.fetches, 0) as fetches, coalesce(v.errors, 0) + coalesce(a.errors, 0) as errors,
        greatest(1, coalesce(o.slots, 0)) as slots, coalesce(o."group", 0) as "group",
        least(case when a.fetches is null then coalesce(v.backoff, 0)
            else coalesce(b.slow, 0) + (case when a.calm is null then coalesce(v.backoff, 0) else 0 end) end,
            {polite.max_backoff})::integer as backoff
        from (select qkey from servers union select qkey from own union select qkey from asked) q
        left join servers v using (qkey) left join own o using (qkey) left join asked a using (qkey)
        left join backing b using (qkey))
        order by qkey""",
    )
    verdict.compare("servers", want, columns(case.after, "servers", SERVER_COLUMNS))
