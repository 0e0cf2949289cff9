"""Select, as SQL: the limits in the order of "How select decides", each one a window over what those before have left."""

from __future__ import annotations

import duckdb
from against_engine import Case, Verdict, columns, counts, fetch, numbered

from shepherd.formats.tables import INDEX, NO_LIMIT, NO_OID, Reason
from shepherd.formats.vocabulary import word
from shepherd.sections import Section

CHANGED = ("type", "reason", "touched")
READ = ("norm", "site", "oid", "digest", "type", "reason", "flags", "weight", "section", "gathered", "touched")
BEST = "p.exempt desc, p.key desc, p.n"  # those that no limit strikes take their room first
UNREFERENCED = "k.flags & 32 <> 0 and k.flags & 23 = 0 and (k.type = 4 or (k.type in (1, 2) and k.digest = 0))"
IN_CONTRIB = f"k.oid >= {1 << 63} and k.oid <> {NO_OID}"
ENDLESS = 1 << 60


def judge(case: Case) -> Verdict:
    verdict, connection = Verdict(), case.connect()
    connection.register("known", numbered(columns(case.before, "index", READ)))
    connection.register("sites", columns(case.before, "sites"))
    connection.register("servers", columns(case.before, "servers"))
    _limits(connection, case)
    _pages(connection, case)
    _strike(connection, case)
    want = fetch(connection, f"select type, reason, touched from ({_result(case)}) order by n")
    verdict.compare("rows", want, columns(case.after, "index", CHANGED))
    verdict.same("rows", case.before, case.after, "index", [name for name in INDEX if name not in CHANGED])
    found = counts(connection, "select reason, count(*) from struck group by reason order by reason")
    verdict.decided |= {word(Reason(int(reason))): number for reason, number in found.items()}
    return verdict


def _limits(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The limits of normalised sites, servers and sections."""
    select = case.config.select

    def given(column: str, default: int) -> str:
        return f"(case {column} when {NO_LIMIT} then {default} else {column} end)"

    soft, hard, fresh = (
        given(f"{name}_limit", default)
        for name, default in (("soft", select.site_soft), ("hard", select.site_hard), ("fresh", select.fresh))
    )
    connection.execute(f"""create table of_norm as select norm, max({soft}) as soft, max(greatest({hard}, {soft})) as hard,
        max({fresh}) as fresh from sites group by norm""")
    share = select.server_share if case.config.plan.refresh_s else 0
    time_ms = case.config.plan.refresh_s * 1000
    fits = f"greatest({time_ms} * max(greatest(slots, 1)) // greatest(max(delay_ms::bigint + avg_ms), 1) * {share} // 100, 1)"
    connection.execute(f"""create table of_server as select case "group" when 0 then qkey else "group" end as server,
        {fits if share else ENDLESS} as soft from servers group by server""")
    rows = [(int(one), getattr(case.config.sections, one.name.lower()) or ENDLESS) for one in Section]
    values = ", ".join(f"({number}, {limit}::hugeint)" for number, limit in rows)
    connection.execute(f"create table of_section as select * from (values {values}) as t(section, soft)")


def _pages(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """All that takes room, with what it is compared by: the table `page`."""
    bonus = " ".join(f"when {int(one)} then {getattr(case.config.section_bonus, one.name.lower())}" for one in Section)
    body = f"(k.digest <> 0 or k.flags & 128 <> 0) and k.gathered <> 0 and k.oid < {1 << 63}"
    connection.execute(f"""create table page as select k.n, k.norm, k.site, k.section, v.server, k.flags & 22 <> 0 as exempt,
        least(greatest(k.weight::integer + coalesce(s.select_bonus, 0) + (case k.section {bonus} else 0 end)
            + (case when {body} then {case.config.select.hysteresis} else 0 end), 0), 65535) as key,
        ({IN_CONTRIB}) or (k.type = 1 and k.reason = {Reason.FRESH}) as fresh
        from known k left join sites s using (site)
        left join (select qkey, case "group" when 0 then qkey else "group" end as server from servers) v on v.qkey = s.qkey
        where k.type <> 5 and not (k.flags & 1 <> 0 and k.flags & 22 = 0) and not ({UNREFERENCED})""")


def _strike(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The table `struck`: what sleeps or goes, and by which limit."""
    connection.execute("create table struck (n bigint, reason integer, gone boolean)")

    def strike(sources: list[tuple[str, str, str, Reason]], gone: bool) -> None:
        """Of each group all but the best; of limits that look at the same rows the first counts."""
        found = " union all ".join(
            f"""select n, {int(reason)} as reason, {place} as place from (
                select p.n, p.exempt, row_number() over (partition by p.{group} order by {BEST}) > {limit} as over
                from page p {join} anti join struck s on p.n = s.n) where over and not exempt"""
            for place, (group, limit, join, reason) in enumerate(sources)
        )
        connection.execute(f"insert into struck select n, arg_min(reason, place), {gone} from ({found}) group by n")

    factor = case.config.select.hard_factor
    norm = "join of_norm l on p.norm = l.norm"
    server = "join of_server l on p.server = l.server"
    section = "join of_section l on p.section = l.section"
    strike([("norm", "l.hard", norm, Reason.SITE_HARD)], True)
    hard = f"l.soft * {factor}"
    strike([("server", hard, server, Reason.SERVER_HARD), ("section", hard, section, Reason.SECTION_HARD)], True)
    strike([("norm", "l.soft", norm, Reason.SITE_SOFT)], False)
    strike([("norm", "l.fresh", f"{norm} and p.fresh", Reason.FRESH)], False)
    strike([("server", "l.soft", server, Reason.SERVER_SOFT)], False)
    strike([("section", "l.soft", section, Reason.SECTION_SOFT)], False)
    _totals(connection, case)


def _totals(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The bar of gathering, the bar of sleeping, and robots files of sites that keep nothing else."""
    select, speed = case.config.select, case.before.control.speed
    most = select.gathered
    if speed and case.config.plan.refresh_s and select.optimism:
        most = min(most, max(speed * case.config.plan.refresh_s * select.optimism // 100_000, 1))
    if select.space_bytes or case.config.cleanup.size_bytes:
        raise SystemExit("bench/against: the limit of space is not judged here")
    connection.execute(f"""insert into struck select n, {int(Reason.BELOW_BAR)}, false from (
        select p.n, row_number() over (order by key desc, p.n) as place from page p anti join struck s on p.n = s.n
        where not exempt) where place > greatest({most} - (select count_if(exempt) from page), 0)""")
    connection.execute(f"""update struck set reason = {int(Reason.BELOW_SLEEP)}, gone = true where n in (select n from (
        select p.n, row_number() over (order by key desc, p.n) as place from page p join struck s on p.n = s.n
        where not s.gone) where place > {select.sleeping})""")
    connection.execute(f"""insert into struck select k.n, {int(Reason.SITE_EMPTY)}, true from known k
        anti join (select p.site from page p anti join (from struck where gone) s on p.n = s.n) kept on k.site = kept.site
        where k.type <> 5 and k.flags & 1 <> 0 and k.flags & 22 = 0""")
    connection.execute(f"insert into struck select n, {int(Reason.UNREFERENCED)}, true from known k where {UNREFERENCED}")


def _result(case: Case) -> str:
    """What is struck sleeps or is forgotten; what slept and is not struck wakes up; all else is as it was."""
    body = f"k.digest <> 0 and k.gathered <> 0 and k.oid < {1 << 63}"
    return f"""select n, type, reason, case when type <> was or reason <> why then {case.after.number} else touched end as touched
        from (select k.n, k.type as was, k.reason as why, k.touched,
            case when s.gone then 5 when s.n is not null then 1 when k.type <> 1 then k.type
                when {body} then 3 else 2 end as type,
            case when s.n is not null then s.reason when k.type <> 1 then k.reason when {body} then 3
                when k.flags & 2 <> 0 then 2 else 1 end as reason
            from known k left join struck s on k.n = s.n)"""
