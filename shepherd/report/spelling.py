"""How a URL as an operator writes it becomes the one spelling that is gathered, rule by rule: what `shep explain` begins with.

Invariant: every spelling on the way is read as the same URL, and the last one is what shepherd.urls makes of the first. A rule
that would break this is skipped, so that the story is always the one of what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from shepherd.errors import BadUrl
from shepherd.expressions import UrlForm

if TYPE_CHECKING:
    from shepherd.urls import Url


@dataclass(frozen=True)
class SpellingStep:
    """A rule that did something, and the spelling after it."""

    rule: str
    text: str


@dataclass(frozen=True)
class _Parts:
    """A spelling, cut as browsers cut it."""

    scheme: str
    slashes: str
    authority: str
    path: str
    query: str
    fragment: str

    @property
    def text(self) -> str:
        return "".join((self.scheme, self.slashes, self.authority, self.path, self.query, self.fragment))


def steps(text: str, parsed: Url) -> list[SpellingStep]:
    """The rules that lead from `text` to `parsed`; none where it was written so."""
    steps_taken, spelling = [], text
    for rule, change in RULES:
        match = UrlForm.PARTS.fullmatch(spelling)
        if match is None:
            break
        after = change(_Parts(*(part or "" for part in match.groups())), parsed).text
        if after != spelling and _same(after, parsed):
            steps_taken.append(SpellingStep(rule, after))
            spelling = after
    return steps_taken if spelling == parsed.href else [*steps_taken, SpellingStep("the rest as browsers write it", parsed.href)]


def _same(text: str, parsed: Url) -> bool:
    from shepherd import urls

    try:
        return urls.parse(text) == parsed
    except BadUrl:
        return False


# --- the rules --------------------------------------------------------------------------------------------------


def _slashes(parts: _Parts, _url: Url) -> _Parts:
    return replace(parts, slashes="//", path=parts.path.replace("\\", "/"))


def _lower(parts: _Parts, _url: Url) -> _Parts:
    return replace(parts, scheme=parts.scheme.lower(), authority=parts.authority.lower())


def _name(parts: _Parts, url: Url) -> _Parts:
    return replace(parts, authority=_host(url) + _port(parts)) if not UrlForm.ADDRESS.fullmatch(_host(url)) else parts


def _address(parts: _Parts, url: Url) -> _Parts:
    return replace(parts, authority=_host(url) + _port(parts)) if UrlForm.ADDRESS.fullmatch(_host(url)) else parts


def _without_port(parts: _Parts, url: Url) -> _Parts:
    return replace(parts, authority=url.site.partition("://")[2])


def _with_path(parts: _Parts, _url: Url) -> _Parts:
    return replace(parts, path=parts.path or "/")


def _without_fragment(parts: _Parts, _url: Url) -> _Parts:
    return replace(parts, fragment="")


def _without_empty_query(parts: _Parts, _url: Url) -> _Parts:
    return replace(parts, query="" if parts.query == "?" else parts.query)


def _without_dots(parts: _Parts, _url: Url) -> _Parts:
    return replace(parts, path="/" + "/".join(_resolved(parts.path.split("/")[1:])))


def _resolved(segments: list[str]) -> Iterator[str]:
    """The segments of a path when `.` and `..` have been followed; at the end they leave an empty one."""
    resolved: list[str] = []
    last = len(segments) - 1
    for n, segment in enumerate(segments):
        plain = UrlForm.DOT.sub(".", segment) if len(segment) <= len("%2e%2e") else segment
        if plain in (".", ".."):
            resolved = resolved[:-1] if plain == ".." else resolved
            resolved += [""] if n == last else []
        else:
            resolved.append(segment)
    yield from resolved


def _encoded(parts: _Parts, url: Url) -> _Parts:
    path, mark, query = url.path.partition("?")
    return replace(parts, path=path, query=mark + query)


def _host(url: Url) -> str:
    return UrlForm.PORT.sub("", url.site.partition("://")[2])


def _port(parts: _Parts) -> str:
    match = UrlForm.PORT.search(parts.authority)
    return match[0] if match else ""


RULES: Final[tuple[tuple[str, Callable[[_Parts, Url], _Parts]], ...]] = (
    ("two slashes before the host, and no backslash", _slashes),
    ("scheme and host in lower case", _lower),
    ("the host as name servers know it", _name),
    ("the address as it is usually written", _address),
    ("no default port", _without_port),
    ("a path at least of /", _with_path),
    ("no fragment", _without_fragment),
    ("no empty query", _without_empty_query),
    ("no . and .. in the path", _without_dots),
    ("what may not stand in a URL percent-encoded", _encoded),
)
