"""robots.txt as data: the toy web writes it from here, and judges by the same data what a polite gatherer may ask for.

The judge is RFC 9309 as these files need it: all groups that name the agent, else all for `*`; the longest pattern wins,
`*` and `$` included, and Allow wins a tie. It shares no code with the gatherer's own judge, so that the two can check each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

PATH = "/robots.txt"
BOM = "\ufeff"


@dataclass(frozen=True)
class Group:
    """The rules for some agents."""

    agents: tuple[str, ...] = ("*",)
    disallow: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    delay_s: float = 0.0

    def lines(self) -> list[str]:
        lines = [f"User-agent: {agent}" for agent in self.agents]
        lines += [f"Disallow: {pattern}" for pattern in self.disallow]
        lines += [f"Allow: {pattern}" for pattern in self.allow]
        if self.delay_s:
            lines.append(f"Crawl-delay: {self.delay_s:g}")
        return lines


@dataclass(frozen=True)
class RobotsFile:
    """How a site answers for its robots.txt, and what it says there."""

    status: int = 200
    groups: tuple[Group, ...] = ()
    moved_to: str = ""  # the path, or the URL, that it redirects to
    sitemaps: tuple[str, ...] = ()  # paths
    newline: str = "\n"
    marked: bool = False  # begins with a byte order mark
    padding_lines: int = 0  # that speak to other agents, before all that counts
    instead: str = ""  # what is sent in its place, as HTML
    pause_s: float = 0.0  # before it answers

    def text(self, host: str = "") -> str:
        """The file, as the site of that name has it."""
        if self.instead:
            return self.instead
        blocks = [group.lines() for group in self.groups]
        if self.padding_lines:
            named = [f"Disallow: /elsewhere/{number:08}/" for number in range(self.padding_lines)]
            blocks.insert(0, ["# A file longer than most.", "User-agent: somebody-else", *named])
        blocks += [[f"Sitemap: http://{host}{path}" for path in self.sitemaps]] if self.sitemaps else []
        text = (2 * self.newline).join(self.newline.join(block) for block in blocks)
        return (BOM if self.marked else "") + (text + self.newline if text else "")

    def allows(self, agent: str, path: str) -> bool:
        """May the agent ask for the path? While robots.txt answers 5xx or 429, nothing may be asked for."""
        if self.status >= 500 or self.status == 429:
            return False
        groups = self._groups(agent)
        denied = max((len(rule) for group in groups for rule in group.disallow if _matches(rule, path)), default=-1)
        granted = max((len(rule) for group in groups for rule in group.allow if _matches(rule, path)), default=-1)
        return granted >= denied

    def delay_s(self, agent: str) -> float:
        """The Crawl-delay that the agent is asked to keep; 0 = none."""
        return max((group.delay_s for group in self._groups(agent)), default=0.0)

    def _groups(self, agent: str) -> list[Group]:
        if self.status != 200 or self.instead:
            return []
        for user_agent in (agent.lower(), "*"):
            groups = [group for group in self.groups if user_agent in (name.lower() for name in group.agents)]
            if groups:
                return groups
        return []


def _matches(pattern: str, path: str) -> bool:
    return _compiled(pattern).match(path) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    end = r"\Z" if pattern.endswith("$") else ""
    return re.compile(".*".join(map(re.escape, pattern.removesuffix("$").split("*"))) + end, re.DOTALL)


_PRIVATE = Group(disallow=("/private/",))

ABSENT = RobotsFile(status=404)
EMPTY = RobotsFile()
PRIVATE = RobotsFile(groups=(_PRIVATE,))
PRIVATE_BUT_OPEN = RobotsFile(groups=(Group(disallow=("/private/",), allow=("/private/open/",)),))
UNREACHABLE = RobotsFile(status=503)
LIMITED = RobotsFile(status=429)
FORBIDDEN = RobotsFile(status=403)
CLOSED = RobotsFile(groups=(Group(disallow=("/",)),))
MOVED = RobotsFile(groups=(_PRIVATE,), moved_to="/about/robots-rules.txt")
SHORT_DELAY = RobotsFile(groups=(Group(disallow=("/private/",), delay_s=0.1),))
LONGER_DELAY = RobotsFile(groups=(Group(delay_s=0.15),))
INVITED_ONLY = RobotsFile(groups=(Group(agents=("shepherd", "lantern"), disallow=("/private/",)), Group(disallow=("/",))))
ONE_BANNED = RobotsFile(
    groups=(Group(agents=("nosy",), disallow=("/",)), Group(disallow=("/private/",), allow=("/private/open/",)))
)
WILDCARDS = RobotsFile(groups=(Group(disallow=("/*?item=", "/*.pdf$", "/odd/*/end$"), allow=("/*?item=1", "/odd/allowed/*")),))
SEVERAL_GROUPS = RobotsFile(
    groups=(
        Group(agents=("Shepherd",), disallow=("/private/accounts",)),
        Group(agents=("nosy", "*"), disallow=("/",)),
        Group(agents=("lantern", "SHEPHERD"), disallow=("/odd/",), delay_s=0.05),
    )
)
MARKED = RobotsFile(groups=(_PRIVATE,), marked=True, newline="\r\n")
OLD_NEWLINES = RobotsFile(groups=(_PRIVATE,), newline="\r")
HUGE = RobotsFile(groups=(_PRIVATE,), padding_lines=15_000)
PAGE_INSTEAD = RobotsFile(instead="<!DOCTYPE html>\n<html><body><p>There is no such page.</p><p>Disallow: /</p></body></html>\n")
SLOW = RobotsFile(groups=(_PRIVATE,), pause_s=0.4)
