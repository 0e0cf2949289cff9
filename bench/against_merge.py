"""Merge, as SQL: a contribution is a new row unless its document is known; what nobody needs goes; each site has its robots row.

Requests are not part of it: a made database has none. Two rows are the same document when normalised site and path agree, but
each site has its own robots file and root page.
"""

from __future__ import annotations

import duckdb
import numpy as np
from against_engine import Array, Case, Columns, Verdict, columns, counts, fetch, numbered

from shepherd.formats.tables import NO_OID, SITES

NEW = {"type": 2, "reason": 1, "frequency": 1}  # ungathered, found by a link
COUNTED = ("documents", "gathered")


def judge(case: Case) -> Verdict:
    verdict, connection = Verdict(), case.connect()
    contributed, names = _contributed(case)
    old = columns(case.before, "index")
    special = case.special
    connection.register("known", numbered(old) | {"own": _own(old, special)})
    connection.register("urls", contributed | {"own": _own(contributed, special)})
    _rows(connection, case)
    _compare_rows(verdict, connection, case, old)
    del old
    _compare_sites(verdict, connection, case, names)
    verdict.decided |= counts(
        connection,
        """select case when n < 0 then 'new' else 'kept' end, count(*) from merged group by 1
        union all select 'raised', count(*) from merged where n >= 0 and changed
        union all select 'duplicate contributions', (select count(*) from urls) - (select count(*) from best)
        union all select 'dropped', (select count(*) from known) - (select count(*) from merged where n >= 0)""",
    )
    return verdict


def _own(table: Columns, special: tuple[int, int]) -> Array:
    """What beside norm and path tells documents apart."""
    return np.where(np.isin(table["path"], np.array(special, np.uint64)), table["site"], np.uint64(0))


def _contributed(case: Case) -> tuple[Columns, dict[int, str]]:
    """All contributions that wait, and the names of their sites. A linked URL starts a little below its parent."""
    parts: dict[str, list[Array]] = {name: [] for name in ("norm", "path", "site", "section", "flags", "weight", "oid")}
    names: dict[int, str] = {}
    for number in case.before.numbered("contrib"):
        ordinal = 0
        for block in case.before.contribs(number, with_texts=False):
            for name in ("norm", "path", "site", "section", "flags"):
                parts[name].append(getattr(block, name))
            own = block.flags & np.uint16(32) != 0
            weight = block.parent_weight.astype(np.int64)
            parts["weight"].append(np.where(own, weight, np.maximum(weight - case.config.merge.weight_gap, 1)))
            place = np.arange(ordinal, ordinal + len(block), dtype=np.uint64)
            parts["oid"].append(np.uint64(1 << 63 | number << 40) | place)
            ordinal += len(block)
            names.update(zip(block.sites.tolist(), (name.decode() for name in block.names), strict=True))
    return {name: np.concatenate(values) for name, values in parts.items()}, names


def _rows(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The table `merged`: n is the old row, or -1."""
    robots, root = case.special
    for query in (
        # Forgotten rows go, unless an operator wanted them gone; so do errors that failed too often and that nobody inserted.
        f"""create table alive as select n, norm, path, site, own, type, flags, reason, weight from known
        where not (type = 5 and reason not in (16, 18))
        and not (type = 4 and retry >= {case.config.plan.max_retries} and flags & 7 = 0)""",
        "create table twice as select norm, path, own from alive group by all having count(*) > 1",
        # The best contribution of a document gives its site; the best weight counts.
        """create table best as select norm, path, own, max(weight) as weight,
        arg_min({'site': site, 'oid': oid, 'section': section},
            {'a': -weight, 'b': flags & 16 = 0, 'c': site, 'd': oid}) as one from urls group by norm, path, own""",
        """create table both_ as select k.n, k.norm, k.path, k.site, k.type,
        case when b.norm is null then k.flags else k.flags & 65503 end as flags, k.weight as old_weight,
        case when k.type not in (3, 5) then greatest(k.weight, b.weight) else k.weight end as weight,
        null::ubigint as oid, null::utinyint as section
        from alive k left join best b on k.norm = b.norm and k.path = b.path and k.own = b.own""",
        f"""insert into both_ select -1, b.norm, b.path, b.one.site, 2,
        case b.path when {robots} then 1 when {root} then 16 else 0 end, b.weight, b.weight, b.one.oid, b.one.section
        from best b anti join alive k on k.norm = b.norm and k.path = b.path and k.own = b.own""",
        # A site has a robots row exactly while it has another row.
        """create table per_site as select site, any_value(norm) as norm, count(*) as rows, count_if(flags & 1 <> 0) as robots
        from both_ group by site""",
        """create table merged as select n, norm, path, site, type, flags, weight, oid, section,
        n < 0 or weight <> old_weight as changed from both_ semi join (from per_site where rows > robots) using (site)""",
        f"""insert into merged select -1, norm, {robots}, site, 2, 1, 0, {NO_OID}, 0, true from per_site where robots = 0""",
    ):
        connection.execute(query)
    if connection.sql("select count(*) from twice").fetchall() != [(0,)]:
        raise SystemExit("bench/against: the made database has a document twice; merge's choice between them is not judged here")


def _compare_rows(verdict: Verdict, connection: duckdb.DuckDBPyConnection, case: Case, old: Columns) -> None:
    want = fetch(
        connection,
        f"""select n, norm, path, site, flags, weight, coalesce(oid, {NO_OID})::ubigint as oid, coalesce(section, 0) as section,
        changed from merged order by norm, path, site""",
    )
    from_old = want["n"] >= 0
    row = np.where(from_old, want["n"], 0)
    for name, values in columns(case.after, "index").items():
        if name in ("norm", "path", "site", "flags", "weight"):
            expected = want[name]
        elif name == "touched":
            expected = np.where(want["changed"], case.after.number, old[name][row])
        else:
            fresh = want[name] if name in ("oid", "section") else NEW.get(name, 0)
            expected = np.where(from_old, old[name][row], fresh)
        verdict.compare("rows", {name: expected}, {name: values})


def _compare_sites(verdict: Verdict, connection: duckdb.DuckDBPyConnection, case: Case, names: dict[int, str]) -> None:
    """Norm and counts of every site; of those that were known all else as it was; of new ones the name."""
    want = fetch(
        connection,
        """select m.site, m.norm, count(*) as documents, count_if(coalesce(k.type, m.type) = 3 and m.flags & 1 = 0) as gathered
        from merged m left join known k on m.n = k.n group by m.site, m.norm order by m.site""",
    )
    got, before = columns(case.after, "sites"), columns(case.before, "sites")
    verdict.compare("sites", want, got)
    at = np.searchsorted(before["site"], got["site"])
    at[at == len(before["site"])] = 0
    known = before["site"][at] == got["site"]
    same = [name for name in SITES if name not in ("name", *COUNTED)]
    verdict.compare("known sites", {name: before[name][at[known]] for name in same}, {name: got[name][known] for name in same})
    fresh = np.flatnonzero(~known).tolist()
    told = {case.after.site_name(row): names[int(got["site"][row])] for row in fresh}
    verdict.compared["new names"] = len(fresh)
    verdict.differences += [f"the site {a} is called {b} in contrib" for a, b in told.items() if a != b][:3]
