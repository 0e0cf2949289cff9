"""What a robots.txt says of a URL, and by which group and line: the one that a state has stored, or any other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from shepherd import text as words
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.filters import Filter
    from shepherd.store.state.directory import State
    from shepherd.urls import Url


@dataclass(frozen=True)
class RobotsVerdict:
    """`verdict` is allowed, denied, not-asked (no robots.txt is known) or not-known (a redirect leads elsewhere)."""

    url: str
    site: str
    agent: str
    file: dict[str, Any] | None  # which robots.txt
    verdict: str
    why: str
    group: tuple[int, str] | None = None  # number and text of its User-agent line
    line: tuple[int, str] | None = None  # that decides
    crawl_delay_s: float | None = None
    sitemaps: list[str] = field(default_factory=list)


def digest_of(body: bytes) -> str:
    import hashlib

    return hashlib.sha256(body).hexdigest()


def judge(url: Url, agent: str, file: dict[str, Any], body: bytes) -> RobotsVerdict:
    """What a robots.txt says of a URL; `file` describes the file itself."""
    from shepherd import robots

    rules = robots.parse_robots(body, agent)
    allowed, number, line = rules.decide(url.path)
    headings = robots.headings(body, agent)
    above = [heading for heading in headings if not number or heading[0] < number]
    why = "its longest pattern that matches decides" if number else "no line of its group matches"
    return RobotsVerdict(
        url=url.href,
        site=url.site,
        agent=agent,
        file=file,
        verdict="allowed" if allowed else "denied",
        why=why if headings else "no group speaks to this agent",
        group=above[-1] if above else None,
        line=(number, line) if number else None,
        crawl_delay_s=rules.crawl_delay_s,
        sitemaps=rules.sitemaps,
    )


# --- by what is stored ------------------------------------------------------------------------------------------


def of_state(url: Url, state: State, filter_: Filter, agent: str) -> RobotsVerdict:
    """What the robots.txt that a state has stored for the URL's own site says of it."""
    from shepherd.store.state import lookup
    from shepherd.urls import ROBOTS_PATH

    row = lookup.site_row(state, state.prints.half(url.site))
    if row is None:
        return RobotsVerdict(
            url.href, url.site, agent, None, "not-asked", "its site is not known: no page of it was ever inserted or found"
        )
    site = {name: column.value(row) for name, column in ((n, state.sites[n]) for n in _COLUMNS)}
    file: dict[str, Any] = {
        "url": f"{url.site}{ROBOTS_PATH}",
        "state": state.number,
        "status": kinds.STATUS.json(site["robots_status"]),
        "checked": kinds.TIME_S.json(site["robots_checked"]),
        "next": kinds.TIME_S.json(site["robots_next"]),
    }
    ignored = filter_.robots_ignored_by(url.site, site["qkey"])
    if ignored is not None:
        why = f"line {ignored.line} of the filter ignores its robots.txt: {ignored.text}"
        return RobotsVerdict(url.href, url.site, agent, file, "allowed", why)
    if site["robots_since"]:
        why = f"it has been unreachable since {words.iso(site['robots_since'])}, so nothing is gathered until it answers"
        return RobotsVerdict(url.href, url.site, agent, file, "denied", why)
    if not site["robots_checked"]:
        return RobotsVerdict(
            url.href, url.site, agent, file, "not-asked", "it was not fetched yet; the first reap of the site fetches it"
        )
    return _by_bucket(url, state, agent, file, site["robots_oid"])


_COLUMNS: Final = ("qkey", "robots_oid", "robots_status", "robots_checked", "robots_next", "robots_since")


def _by_bucket(url: Url, state: State, agent: str, file: dict[str, Any], oid: int) -> RobotsVerdict:
    from shepherd.formats.tables import CONTRIB_BIT
    from shepherd.robots import MAX_BYTES

    status = file["status"] or 0
    if oid >= CONTRIB_BIT:
        if 200 <= status < 300:
            why = "no copy of it is stored; the next reap of the site asks for it"
            return RobotsVerdict(url.href, url.site, agent, file, "not-known", why)
        return RobotsVerdict(url.href, url.site, agent, file, "allowed", f"status {status} counts as no robots.txt at all")
    stored = state.objects.get(oid)
    file["gathered"] = kinds.TIME_S.json(stored.header.time_ms // 1_000)
    if "E" in stored.attributes:
        target = words.escape(stored.attributes["E"])
        return RobotsVerdict(
            url.href, url.site, agent, file, "not-known", f"it redirects to {target}, which each reap fetches anew"
        )
    body = stored.body(MAX_BYTES)
    file |= {"bytes": len(body), "digest": digest_of(body)}
    return judge(url, agent, file, body)


# --- for people and programs ------------------------------------------------------------------------------------


def as_object(verdict: RobotsVerdict) -> dict[str, Any]:
    """For JSON."""
    lines = {
        name: {"number": value[0], "text": words.escape(value[1])} if value else None
        for name, value in (("group", verdict.group), ("line", verdict.line))
    }
    return vars(verdict) | lines | {"sitemaps": [words.escape(url) for url in verdict.sitemaps]}


def file_lines(file: dict[str, Any]) -> list[str]:
    """The version of a robots.txt, in words."""
    first = [str(file[name]) for name in ("url", "file", "note") if file.get(name)]
    return first + [
        f"{name} {file[name]}" for name in ("status", "checked", "gathered", "next", "bytes", "digest") if file.get(name)
    ]
