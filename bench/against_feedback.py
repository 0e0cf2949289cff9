"""Feedback, as SQL: of two records about a document the later one holds; errors and forgotten rows hear nothing."""

from __future__ import annotations

import numpy as np
from against_engine import Case, Verdict, columns, counts, fetch, numbered

from shepherd.formats.feedback import FEEDBACK
from shepherd.formats.tables import INDEX

CHANGED = ("weight", "flags", "touched")
FRAME = 24  # bytes before the payload


def judge(case: Case) -> Verdict:
    verdict, connection = Verdict(), case.connect()
    said = _said(case)
    old = columns(case.before, "index", ("norm", "path", "site", "type", *CHANGED))
    special = np.array(case.special, np.uint64)
    for table in (said, old):
        table["own"] = np.where(np.isin(table["path"], special), table["site"], np.uint64(0))
    connection.register("known", numbered(old))
    connection.register("said", numbered(said))
    connection.register("sites", columns(case.before, "sites", ("site", "norm")))
    connection.execute("""create table told as select s.norm, t.path, t.own, arg_max(t.weight, t.n) as weight,
        arg_max(t.flags, t.n) as flags from said t join sites s using (site) group by all""")
    connection.execute("""create table heard as select k.n,
        (k.type in (1, 2, 3) or (k.type = 4 and t.flags & 6 <> 0)) and t.flags is not null as hears,
        case when hears and t.flags & 1 <> 0 and k.type <> 4 then t.weight else k.weight end as weight,
        case when hears and t.flags & 6 <> 0 then (k.flags & ~32::usmallint) | (case when t.flags & 2 <> 0 then 32 else 0 end)
            else k.flags end as flags, k.weight as old_weight, k.flags as old_flags, k.touched, t.flags is not null as spoken
        from known k left join told t on k.norm = t.norm and k.path = t.path and k.own = t.own""")
    want = fetch(
        connection,
        f"""select weight, flags, case when weight <> old_weight or flags <> old_flags then {case.after.number} else touched end
        as touched from heard order by n""",
    )
    verdict.compare("rows", want, columns(case.after, "index", CHANGED))
    verdict.same("rows", case.before, case.after, "index", [name for name in INDEX if name not in CHANGED])
    verdict.decided |= counts(
        connection,
        """select 'heard', count_if(hears) from heard union all select 'not heard', count_if(spoken and not hears) from heard
        union all select 'changed', count_if(weight <> old_weight or flags <> old_flags) from heard
        union all select 'records', (select count(*) from said)""",
    )
    return verdict


def _said(case: Case) -> dict[str, np.ndarray]:
    """The upload, read as docs/formats.md has it: frames of records."""
    data, at, parts = (case.home / "db.feedback").read_bytes(), 0, []
    while at < len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        parts.append(np.frombuffer(data, FEEDBACK, length // FEEDBACK.itemsize, at + FRAME))
        at += FRAME + length
    records = np.concatenate(parts)
    return {name: np.ascontiguousarray(records[name]) for name in ("site", "path", "weight", "flags")}
