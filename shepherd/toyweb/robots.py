"""robots.txt as data: the toy web writes it from here, and judges by the same data what a polite gatherer may ask for.

The judge is the plain part of RFC 9309 that these files need: the group that names the agent, else `*`; the longest
prefix wins, and Allow wins a tie. It shares no code with the gatherer's own judge, so that the two can check each other.
"""

from __future__ import annotations

from dataclasses import dataclass

PATH = "/robots.txt"


@dataclass(frozen=True)
class Group:
    """The rules for some agents."""

    agents: tuple[str, ...] = ("*",)
    disallow: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    delay_s: float = 0.0

    def lines(self) -> list[str]:
        lines = [f"User-agent: {agent}" for agent in self.agents]
        lines += [f"Disallow: {prefix}" for prefix in self.disallow]
        lines += [f"Allow: {prefix}" for prefix in self.allow]
        if self.delay_s:
            lines.append(f"Crawl-delay: {self.delay_s:g}")
        return lines


@dataclass(frozen=True)
class Robots:
    """How a site answers for its robots.txt: status, rules, and the path it is moved to, if it is."""

    status: int = 200
    groups: tuple[Group, ...] = ()
    moved_to: str = ""

    def text(self) -> str:
        return "\n\n".join("\n".join(group.lines()) for group in self.groups) + "\n" if self.groups else ""

    def allows(self, agent: str, path: str) -> bool:
        """May the agent ask for the path? While robots.txt answers 5xx, nothing may be asked for."""
        if self.status >= 500:
            return False
        group = self._group(agent)
        denied = max((len(prefix) for prefix in group.disallow if path.startswith(prefix)), default=-1)
        granted = max((len(prefix) for prefix in group.allow if path.startswith(prefix)), default=-1)
        return granted >= denied

    def delay_s(self, agent: str) -> float:
        """The Crawl-delay that the agent is asked to keep; 0 = none."""
        return self._group(agent).delay_s

    def _group(self, agent: str) -> Group:
        for wanted in (agent.lower(), "*"):
            for group in self.groups:
                if wanted in group.agents:
                    return group
        return Group()


ABSENT = Robots(status=404)
EMPTY = Robots()
PRIVATE = Robots(groups=(Group(disallow=("/private/",)),))
PRIVATE_BUT_OPEN = Robots(groups=(Group(disallow=("/private/",), allow=("/private/open/",)),))
UNREACHABLE = Robots(status=503)
CLOSED = Robots(groups=(Group(disallow=("/",)),))
MOVED = Robots(groups=(Group(disallow=("/private/",)),), moved_to="/about/robots-rules.txt")
SHORT_DELAY = Robots(groups=(Group(disallow=("/private/",), delay_s=0.1),))
LONGER_DELAY = Robots(groups=(Group(delay_s=0.15),))
INVITED_ONLY = Robots(groups=(Group(agents=("shepherd", "lantern"), disallow=("/private/",)), Group(disallow=("/",))))
ONE_BANNED = Robots(groups=(Group(agents=("nosy",), disallow=("/",)), Group(disallow=("/private/",), allow=("/private/open/",))))
