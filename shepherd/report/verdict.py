"""The one sentence that closes `shep explain`: why this URL is, or is not, gathered, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from shepherd.config import Config, Plan
from shepherd.formats.vocabulary import reason_text
from shepherd.report.facts import UrlFacts
from shepherd.report.one_row import Values
from shepherd.report.ranks import Standing
from shepherd.text import iso, many, span

ALLOW = "set allow in [network] of shepherd.toml to let Shepherd reach it"
SETTLED = "deleted, and no byte of it is left, so the next merge drops its row"  # cleanup takes the reason away then
_MOST_DOUBLINGS = 32


def verdict(facts: UrlFacts, config: Config, now: int) -> str:
    from shepherd.formats.tables import Flag, RowType

    if facts.row is None:
        return _unknown(facts)
    if facts.row["flags"] & Flag.ROBOTS:
        return _robots_file(facts, facts.row, now)
    if facts.row["type"] == RowType.FORGOTTEN:
        return _forgotten(facts, facts.row)
    return _known_row(facts, facts.row, config.plan, now) + _contradiction(facts)


def outlook(facts: UrlFacts, standings: Sequence[Standing], now: int) -> str:
    """What would happen to an unknown URL if it were inserted now, or if a page linked to it."""
    if facts.row is not None or not facts.verdict.accepted or facts.waiting == "purge":
        return ""
    if facts.robots.verdict == "denied":
        line = f" (line {facts.robots.line[0]}: {facts.robots.line[1]})" if facts.robots.line else ""
        fetched = f"the stored robots.txt denies it{line}, so it would not be gathered"
    elif facts.site is None:
        fetched = "its site is new, so its name is looked up and its robots.txt fetched first"
    else:
        clauses = {"not-asked": "robots.txt is fetched first, and ", "not-known": "robots.txt is fetched again, and "}
        fetched = clauses.get(facts.robots.verdict, "robots.txt allows it, and ") + _obstacle(facts, now)
    full = [standing for standing in standings if standing.bar is not None]
    if not full:
        return f"{fetched}; no limit is in the way of a link to it"
    bars = ", ".join(f"{standing.bar} in {standing.name}" for standing in full)
    return f"{fetched}; found by a link it would sleep unless it weighs more than {bars}; an insert is not subject to limits"


def due_at(row: Values, site: Values | None, plan: Plan) -> int | None:
    """From when on a page is due, by the rules of cycle/plan/rules.py; None if it never is as things stand."""
    from shepherd.filters import ignores_robots
    from shepherd.formats.tables import Flag, RowType

    kind = RowType(row["type"])
    if kind in (RowType.SLEEPING, RowType.FORGOTTEN):
        return None
    if kind == RowType.UNGATHERED or row["flags"] & Flag.REFRESH:
        return 0
    if _refused_by_robots(row):
        asked_since = site is not None and (ignores_robots(site["policy"]) or site["robots_checked"] > row["checked"])
        return 0 if asked_since else row["checked"] + plan.refresh_s
    if kind == RowType.ERROR or row["retry"]:
        wait_s = plan.retry_s << min(max(row["retry"] - 1, 0), _MOST_DOUBLINGS)
        return row["checked"] + wait_s if row["retry"] < plan.max_retries else None
    return row["checked"] + _ripens_s(row, site, plan)


def _ripens_s(row: Values, site: Values | None, plan: Plan) -> int:
    """How old a page must be: its cycle, less what its footprint takes off."""
    from shepherd.cycle.plan.rules import HALF, MIX, MOST_TIMES
    from shepherd.formats.tables import Flag

    times = min(max(row["frequency"], 1) << (row["weight"] > plan.important_weight), MOST_TIMES)
    times = MOST_TIMES if row["flags"] & Flag.MODIFIED else times
    boost = site["refresh_boost"] if site is not None else 0
    cycle_s = max(plan.refresh_s // (times * max(boost, 1)), 1)
    mixed = ((row["path"] ^ row["site"]) * int(MIX) & (1 << 64) - 1) >> int(HALF)
    return cycle_s - (mixed * (min(cycle_s, plan.reap_s) // 4 + 1) >> int(HALF))


def _refused_by_robots(row: Values) -> bool:
    from shepherd.formats.tables import Reason, RowType

    return row["type"] == RowType.ERROR and row["reason"] in (Reason.ROBOTS_DENIED, Reason.ROBOTS_UNREACHABLE)


def _unknown(facts: UrlFacts) -> str:
    if facts.waiting == "purge":
        return "Not known, and it will not be: a purge of it waits in the inbox, and the next merge keeps it out for ever."
    if not facts.verdict.accepted:
        return f"Not known, and it will not be: {_filter_line(facts)} rejects it."
    if facts.waiting == "inbox":
        return "Not known yet: an insert of it waits in the inbox and is taken in at the start of the next cycle."
    if facts.waiting == "contrib":
        return "Not known yet: a link to it was found in the last reap, and the next merge takes it in."
    if facts.site is not None:
        return "Not known: its site is, but nothing gathered so far led to it, or it was dropped; `shep insert` adds it."
    return "Not known, and neither is its site: nothing gathered so far led there; `shep insert` adds it."


def _robots_file(facts: UrlFacts, row: Values, now: int) -> str:
    from shepherd.formats.tables import Reason, RowType

    due = facts.site["robots_next"] if facts.site is not None else 0
    when = f"it is not fetched again before {iso(due)}" if due > now else "the next plan that has a page of its site asks for it"
    if row["type"] == RowType.FORGOTTEN:
        reason = reason_text(row["reason"])
        if row["reason"] == Reason.SITE_EMPTY:
            return f"The robots file of its site, forgotten: {reason}; it comes back with the next page of its site."
        return f"The robots file of its site, forgotten: {reason}; but politeness needs it while its site has pages: {when}."
    what = f"gathered {_ago(row, now)}" if row["gathered"] else "not gathered yet"
    return f"The robots file of its site, {what}; {when}."


def _forgotten(facts: UrlFacts, row: Values) -> str:
    """What the filter says now is no contradiction here, but decides whether the URL can come back."""
    from shepherd.formats.tables import Reason

    reason, rejected = row["reason"], not facts.verdict.accepted
    if reason == Reason.PURGED:
        return f"Forgotten: {reason_text(reason)}; it is kept out for ever."
    if reason == Reason.FILTER and rejected:
        return f"Forgotten: {_filter_line(facts)} rejects it."
    reasons = {int(Reason.FILTER): "an earlier filter rejected it", int(Reason.NONE): SETTLED}
    reason_words = reasons.get(reason) or reason_text(reason)
    if rejected:
        return f"Forgotten: {reason_words}; and it cannot come back: {_filter_line(facts)} rejects it."
    brings = (
        "`shep insert` brings it back, a link does not" if reason == Reason.DELETED else "a link or `shep insert` brings it back"
    )
    return f"Forgotten: {reason_words}; {brings}."


def _known_row(facts: UrlFacts, row: Values, plan: Plan, now: int) -> str:
    from shepherd.formats.tables import Flag, Reason, RowType

    kind, reason = RowType(row["type"]), reason_text(row["reason"])
    failed = f"{many(row['retry'], 'failure')} in a row"
    if kind == RowType.SLEEPING:
        return f"Known but asleep: {reason}; it wakes if its weight of {row['weight']} comes to beat that of others."
    if kind == RowType.UNGATHERED:
        what = f"Known ({reason}), not gathered yet"
    elif kind == RowType.ERROR:
        what = f"Not gathered: {reason}" + (f", {failed}" if row["retry"] else "")
    else:
        what = "Answered with a redirect" if row["flags"] & Flag.REDIRECT else "Gathered"
        what += f" {_ago(row, now)}" + (f", and since then {failed}: {reason}" if row["retry"] else "")
    what += f"; {ALLOW}" if row["reason"] == Reason.GUARD else ""
    return f"{what}; {_next(facts, row, plan, now)}."


def _next(facts: UrlFacts, row: Values, plan: Plan, now: int) -> str:
    from shepherd.formats.tables import Flag
    from shepherd.politeness.delays import AHEAD_S

    due = due_at({**row, "checked": row["checked"] if row["checked"] <= now + AHEAD_S else 0}, facts.site, plan)
    if due is None:
        return f"plan.max_retries allows {plan.max_retries}, so it is not tried again"
    if due > now and _refused_by_robots(row):
        return f"it is tried again when its robots.txt was fetched again, at the latest from {iso(due)} on"
    if due > now:
        return f"it is due from {iso(due)} on"
    early = "its site says that it was modified since, so it is due" if row["flags"] & Flag.MODIFIED else "it is due"
    cause = "a refresh was requested" if row["flags"] & Flag.REFRESH else early
    return f"{cause}, and {_obstacle(facts, now)}"


def _obstacle(facts: UrlFacts, now: int) -> str:
    """What stands between a page that is due and its fetch."""
    from shepherd.filters import ignores_robots
    from shepherd.formats.tables import is_resolved

    site = facts.site
    if facts.row is not None and facts.robots.verdict == "denied" and not (site and site["robots_since"]):
        line = f", line {facts.robots.line[0]}," if facts.robots.line else ""
        return f"the stored robots.txt{line} denies it"
    if site is not None and not is_resolved(site["qkey"]) and site["qkey_next"] > now:
        again = iso(site["qkey_next"])
        why = "its site's name does not resolve, the guard refuses its address, or its domain has too many names to look up"
        return f"{why}; that is looked up again from {again} on"
    if site is not None and site["robots_since"] and site["robots_next"] > now and not ignores_robots(site["policy"]):
        since, again = iso(site["robots_since"]), iso(site["robots_next"])
        return f"its site's robots.txt has been unreachable since {since}; it is fetched again from {again} on"
    if site is not None and min(site["pause_end"], now + site["pause_s"]) > now:
        return f"its site asked to be left alone until {iso(min(site['pause_end'], now + site['pause_s']))}"
    if next_ms := facts.next_contact_ms(now):
        return f"its server may be asked from {iso(-(-next_ms // 1_000))} on"
    return "the next plan can take it"


def _contradiction(facts: UrlFacts) -> str:
    return (
        ""
        if facts.verdict.accepted
        else f" But {_filter_line(facts)} rejects it now, so no plan takes it, and the next shep-cleanup forgets it."
    )


def _filter_line(facts: UrlFacts) -> str:
    if facts.verdict.is_outside:
        return f"the scope of {facts.filter_path}, where no `only` line has it,"
    return f"line {facts.verdict.line} of {facts.filter_path}" if facts.verdict.line else f"the default of {facts.filter_path}"


def _ago(row: Values, now: int) -> str:
    return f"{span(max(now - (row['gathered'] or row['checked']), 0))} ago"
