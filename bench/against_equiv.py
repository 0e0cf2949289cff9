"""Equiv, as SQL: sites of a class get the normalised site of its first name; of rows that are now one document the best stays."""

from __future__ import annotations

import hashlib

import numpy as np
from against_engine import Case, Verdict, columns, counts, fetch, names_of, numbered
from against_mirrors import host_of

from shepherd.formats.tables import SITES

COUNTED = ("norm", "documents", "gathered")


def judge(case: Case) -> Verdict:
    verdict, connection = Verdict(), case.connect()
    old = columns(case.before, "index")
    special = np.array(case.special, np.uint64)
    own = np.where(np.isin(old["path"], special), old["site"], np.uint64(0))
    read = {name: old[name] for name in ("norm", "path", "site", "type", "reason", "flags", "weight", "touched")}
    connection.register("known", numbered(read) | {"own": own})
    site = columns(case.before, "sites", ("site", "norm"))
    connection.register("sites", {"site": site["site"], "became": _norms(case, site["norm"])})
    connection.execute("""create table moved as select k.* replace (s.became as norm), k.norm <> s.became as moves
        from known k join sites s using (site)""")
    connection.execute("create table twice as select norm, path, own from moved group by all having count(*) > 1")
    # An operator's word holds for the document; then what is gathered, then what no limit may drop, then the weight.
    connection.execute("""create table ranked as select m.n, row_number() over (partition by norm, path, own
            order by case when type = 5 and reason = 18 then 0 when type = 5 and reason = 16 then 1 else 2 end,
            type <> 3, flags & 23 = 0, weight desc, site) as place,
        max(weight) over w as best, bit_or(flags & 6) over w as wishes
        from moved m semi join twice t using (norm, path, own) window w as (partition by norm, path, own)""")
    connection.execute(f"""create table joined as select m.n, norm, path, site, coalesce(r.best, weight) as weight,
        flags | coalesce(r.wishes, 0) as flags, type, case when moves or r.n is not null then {case.after.number} else touched end
        as touched from moved m left join ranked r on m.n = r.n where coalesce(r.place, 1) = 1""")
    want = fetch(connection, "select n, norm, path, site, weight, flags, touched from joined order by norm, path, site")
    row = want.pop("n")
    for name, values in columns(case.after, "index").items():
        verdict.compare("rows", {name: want[name] if name in want else old[name][row]}, {name: values})
    sites = fetch(
        connection,
        """select s.became as norm, count(j.n) as documents, count_if(j.type = 3 and j.flags & 1 = 0) as gathered
        from sites s left join joined j using (site) group by s.site, s.became order by s.site""",
    )
    verdict.compare("sites", sites, columns(case.after, "sites", COUNTED))
    verdict.same("sites", case.before, case.after, "sites", [name for name in SITES if name not in COUNTED])
    verdict.decided |= counts(
        connection,
        """select 'moved rows', count_if(moves) from moved union all select 'joined', count_if(place > 1) from ranked
        union all select 'heirs', count_if(place = 1) from ranked""",
    )
    return verdict


def _norms(case: Case, norm: np.ndarray) -> np.ndarray:
    """The footprint of the normalised site that each site must have: another one only for members of a class."""
    first = {}
    for line in (case.home / "cf" / "url-equiv").read_text().split("\n"):
        first |= dict.fromkeys(line.split()[1:], line.split()[0]) if line else {}
    became = norm.copy()
    for row, name in enumerate(names_of(case.before)):
        if (host := host_of(name)) in first:
            half = hashlib.blake2b(first[host].encode(), digest_size=8, key=case.before.control.key).digest()
            became[row] = int.from_bytes(half, "little")
    return became
