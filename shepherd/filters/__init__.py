"""cf/filter: which URLs are gathered, which query parameters are noise, and what single sites and servers may ask of us.

One rule a line, `#` begins a comment at the start of a line or after a blank:

    only KIND PATTERN...              KIND: site host prefix surt: what lies in none of them is rejected; see scope.py
    accept|reject KIND PATTERN...     KIND: host glob prefix ext regex address repeats depth length
    default accept|reject             when no such line matches; accept if there is no default
    strip PARAM...                    query parameters to remove; `utm_*` removes all that begin so
    set NAME VALUE KIND PATTERN...    KIND: host glob (over scheme://host[:port]) address; NAME: see settings.py
    group NAME KIND PATTERN...        KIND as with set: sites that share politeness
    section NAME KIND PATTERN...      KIND: host glob prefix ext regex: the section of URLs

Of the lines that compete (all accept and reject, all `set` of one NAME, all groups, all sections) the first that matches decides.

A Filter never changes, and expects hrefs and site names as shepherd.urls makes them. What `strip` returns is again normalised.
Patterns are kept in the spelling that normalised URLs have, so matching never parses. Read in this order: patterns, addresses,
scope, urlrules and siterules (matching), settings and lines (what may be written), reading (a text becomes a Filter), judging
(Filter), scope_lines (changes a text).
"""

from shepherd.errors import FilterError
from shepherd.filters.judging import Filter, SectionLine, StripLine, Verdict
from shepherd.filters.reading import load_filter, parse_filter
from shepherd.filters.scope import Scope
from shepherd.filters.settings import NO_LIMIT, SetLine, SiteSettings, ignores_robots
from shepherd.filters.siterules import SiteClasses, ignore_robots

__all__ = [
    "NO_LIMIT",
    "Filter",
    "FilterError",
    "Scope",
    "SectionLine",
    "SetLine",
    "SiteClasses",
    "SiteSettings",
    "StripLine",
    "Verdict",
    "ignore_robots",
    "ignores_robots",
    "load_filter",
    "parse_filter",
]
