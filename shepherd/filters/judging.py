"""Filter: whether a URL is gathered, and the settings of a site, each with the line that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt

from shepherd.filters.addresses import U64
from shepherd.filters.patterns import Pattern
from shepherd.filters.scope import Scope
from shepherd.filters.settings import IGNORE_ROBOTS, SetLine, SiteSettings, settings_by
from shepherd.filters.siterules import SiteClasses, SiteRules
from shepherd.filters.urlrules import SITE_CACHE, UrlRules
from shepherd.urls import PAST_SCHEME

Bools: TypeAlias = npt.NDArray[np.bool_]

_CHECK_SEED: Final = 0x5348


@dataclass(frozen=True)
class Verdict:
    """Whether a URL is gathered, and by which line; line 0 is the default, or that no `only` line has the URL."""

    accepted: bool
    line: int
    text: str
    is_outside: bool = False  # of the scope


OUTSIDE: Final = Verdict(
    False, 0, "outside the scope: no `only` line has it", is_outside=True
)  # of rank 0, before that of any line


@dataclass(frozen=True)
class SectionLine:
    """The section of a URL, and the line that gives it; line 0: no line does."""

    section: int
    line: int
    text: str


@dataclass(frozen=True)
class StripLine:
    """A query parameter to remove, or all that begin so where it ends with a `*`, and the line that says so."""

    name: str
    line: int
    text: str

    def fits(self, parameter: str) -> bool:
        return parameter.startswith(self.name[:-1]) if self.name.endswith("*") else parameter == self.name


@dataclass
class FilterDraft:
    """What the lines read so far say. The rank of a pattern is the position of its line in the list beside it."""

    verdicts: list[Verdict] = field(default_factory=lambda: [OUTSIDE])
    scope: list[Pattern] = field(default_factory=list)
    rules: list[Pattern] = field(default_factory=list)
    sections: list[SectionLine] = field(default_factory=list)
    section_rules: list[Pattern] = field(default_factory=list)
    setters: list[SetLine] = field(default_factory=list)
    site_rules: list[Pattern] = field(default_factory=list)
    default: Verdict | None = None
    strips: list[StripLine] = field(default_factory=list)


class Filter:
    """A filter that parse_filter or load_filter has read.

    Wherever a queue key can be given, 0 is that the server is not known: then only a literal address is judged by address ranges.
    """

    def __init__(self, text: str, draft: FilterDraft) -> None:
        self.text: Final = text
        self.version: Final[int] = mmh3.hash64(text.encode(), _CHECK_SEED, signed=False)[0]
        self._verdicts = [*draft.verdicts, draft.default or Verdict(True, 0, "default accept")]
        self._patterns = tuple(draft.rules)
        self.scope: Final = Scope(draft.scope) if draft.scope else None
        self.has_default: Final = draft.default is not None
        self._rules = UrlRules(draft.rules, len(draft.verdicts), self.scope)
        self._sections = [*draft.sections, SectionLine(0, 0, "")]
        self._section_rules = UrlRules(draft.section_rules, len(draft.sections))
        self._site_rules = SiteRules(draft.setters, draft.site_rules)
        self._sets_sections = any(line.name == "section" for line in draft.setters)
        self._sets_requisites = any(line.name == "requisites" for line in draft.setters)
        self._sets_robots = any(line.name == "robots" for line in draft.setters)
        self._section_of_site: dict[tuple[str, int], SectionLine] = {}
        self._strip_lines = tuple(draft.strips)
        names = [strip.name for strip in draft.strips]
        self._strip_names = frozenset(name for name in names if not name.endswith("*"))
        self._strip_starts = tuple(name[:-1] for name in names if name.endswith("*"))

    def __reduce__(self) -> tuple[Callable[[str], Filter], tuple[str]]:
        """Another process reads the text anew: what is made of it cannot be passed on."""
        from shepherd.filters.reading import filter_of  # which makes filters

        return filter_of, (self.text,)

    @property
    def is_bounded(self) -> bool:
        """Whether somebody has said where gathering ends: by `only` lines, or on purpose that it has no end."""
        return self.scope is not None or self.has_default

    # --- URLs

    def strip(self, href: str) -> str:
        """The href without the parameters that `strip` lines name; all else stays byte by byte the same."""
        if "?" not in href or not (self._strip_names or self._strip_starts):
            return href
        address, _, query = href.partition("?")
        parameters = query.split("&")
        remaining = [parameter for parameter in parameters if not self._strips(parameter.partition("=")[0])]
        if len(remaining) == len(parameters):
            return href
        query = "&".join(remaining)
        return f"{address}?{query}" if query else address

    def stripped_by(self, parameter: str) -> StripLine | None:
        """The line that removes a query parameter, by its name; None if none does."""
        return next((strip for strip in self._strip_lines if strip.fits(parameter)), None)

    def judge(self, href: str, qkey: int = 0) -> Verdict:
        """Whether an href, already stripped, is gathered, and by which line."""
        rank = self._rules.first(href)
        if qkey:
            rank = min(rank, self._rules.by_qkey(qkey))
        return self._verdicts[rank]

    def why(self, href: str, qkey: int = 0) -> str:
        """The pattern by which the deciding line matches, as `ext pdf`; nothing if none does, which is the default."""
        rank = min(self._rules.first(href), self._rules.by_qkey(qkey))
        for pattern in self._patterns:
            alone = UrlRules([replace(pattern, rank=0)], 1) if pattern.rank == rank else None
            if alone and not (alone.first(href) and alone.by_qkey(qkey)):
                return f"{pattern.kind} {pattern.text}"
        return ""

    def clean(self, href: str) -> str | None:
        """The stripped href, or None if it is rejected."""
        href = self.strip(href)
        return href if self._verdicts[self._rules.first(href)].accepted else None

    def section_of(self, href: str, qkey: int = 0) -> SectionLine:
        """The section of an href, already stripped: by a `section` line, else by what `set section` says of its site."""
        section_line = self._sections[self._section_rules.first(href)] if len(self._sections) > 1 else self._sections[-1]
        if section_line.line or not self._sets_sections:
            return section_line
        site = href[: href.index("/", PAST_SCHEME)], qkey
        if site not in self._section_of_site:
            if len(self._section_of_site) >= SITE_CACHE:
                self._section_of_site.clear()
            lines = (SectionLine(line.value, line.line, line.text) for line in self.set_lines(*site) if line.name == "section")
            self._section_of_site[site] = next(lines, self._sections[-1])
        return self._section_of_site[site]

    def sections_of(self, hrefs: Sequence[str]) -> list[int]:
        """section_of of many, as numbers; an empty list where no line speaks of sections, and so none has one."""
        if len(self._sections) == 1 and not self._sets_sections:
            return []
        return [self.section_of(href).section for href in hrefs]

    def _strips(self, name: str) -> bool:
        return name in self._strip_names or name.startswith(self._strip_starts)

    # --- sites

    def set_lines(self, site_name: str, qkey: int = 0) -> Sequence[SetLine]:
        """The `set` and `group` lines that decide about `scheme://host[:port]`."""
        return self._site_rules.set_lines(site_name, qkey)

    def requisites_of(self, href: str, qkey: int = 0) -> bool | None:
        """Whether what the pages of its site need to be shown is gathered, too; None where no line says so."""
        if not self._sets_requisites:
            return None
        lines = self.set_lines(href[: href.index("/", PAST_SCHEME)], qkey)
        return next((bool(line.value) for line in lines if line.name == "requisites"), None)

    def robots_ignored_by(self, site_name: str, qkey: int = 0) -> SetLine | None:
        """The line by which pages of a site are gathered against its robots.txt; None: it is obeyed.

        Whoever asks a site, or says whether it may be asked, goes by this; the phases go by the column `policy` and
        `ignore_robots`: merge fills that column from the same lines. A reap fetches the file all the same, for its Crawl-delay
        and its sitemaps.
        """
        if not self._sets_robots:
            return None
        return next(
            (line for line in self.set_lines(site_name, qkey) if line.name == "robots" and line.value == IGNORE_ROBOTS), None
        )

    def site_settings(self, site_name: str, qkey: int = 0) -> SiteSettings:
        return settings_by(self.set_lines(site_name, qkey))

    def site_classes(self, names: Iterable[bytes], qkeys: U64 | None = None) -> SiteClasses:
        """site_settings of many sites, a number each."""
        return self._site_rules.classify(names, qkeys)
