"""`only` lines: what is in scope at all. A URL outside all of them is rejected, whatever other lines say.

    only site NAME[:PORT]...      a normalised site: http and https, with and without `www.`, on the usual port or on this one
    only host NAME[:PORT]...      a host and all below it, on the usual ports or on this one
    only prefix URL...            the site of the URL, normalised, where the path begins as that of the URL does
    only surt SURT...             `http://(org,example,` and the like: the name backwards, each label with a comma behind it

All of it hangs on the normalised site, so a page does not leave the scope by another spelling of its site. Most of it hangs on
nothing else, and is looked up once for each site; what remains is one search among the sorted beginnings of paths. So thousands
of lines cost a URL no more than one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from shepherd.errors import BadUrl
from shepherd.filters.addresses import is_literal
from shepherd.filters.patterns import Pattern
from shepherd.urls import norm_of, parse

SCOPE_KINDS: Final = ("site", "host", "prefix", "surt")

# Beginnings of paths that are in scope, sorted, none of which begins another; None: the whole site is.
Paths: TypeAlias = tuple[str, ...] | None

_NAME: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]\\*.][^/?#@:\[\]\\*]*)(?::(?P<port>[0-9]{1,5}))?")
_SURT: Final = re.compile(r"https?://(?P<rest>\([^()/\s]+(?:,|,?(?::[0-9]{1,5})?\)(?:/\S*)?))")
_USUAL_PORTS: Final = ("80", "443")
_WHOLE_HOST: Final = re.compile(r"https?://[^/?#]+/.*", re.DOTALL)


def normal_scope(kind: str, word: str) -> str:
    """The pattern that `word` spells; ValueError says what is allowed instead."""
    if kind == "surt":
        return _normal_surt(word)
    if kind == "prefix":
        return _normal_prefix(word)
    name = _normal_name(word)
    return norm_of(f"http://{name}") if kind == "site" else name


def _normal_name(word: str) -> str:
    match = _NAME.fullmatch(word)
    try:
        site = parse(f"http://{word}/", strict=True).site if match else ""
    except BadUrl:
        site = ""
    if match is None or not site:
        raise ValueError("is not a host; allowed is a name such as example.org or example.org:8080, without scheme, path or *")
    name = site.removeprefix("http://")
    port = (match["port"] or "").lstrip("0")
    return _without_dot(name.removesuffix(f":{port}")) + (f":{port}" if port and port not in _USUAL_PORTS else "")


def _without_dot(host: str) -> str:
    return host.removesuffix(".")  # `example.org.` is the same machine


def _normal_prefix(word: str) -> str:
    """Normalised site and path: what is compared."""
    try:
        url = parse(word, strict=True) if _WHOLE_HOST.fullmatch(word) else None
    except BadUrl:
        url = None
    if url is None:
        raise ValueError(
            "is not the beginning of URLs of one site; allowed is one such as https://example.org/docs/, with a / behind the host"
        )
    return _norm(url.site) + url.path


def _normal_surt(word: str) -> str:
    match = _SURT.fullmatch(word)
    if match is None:
        raise ValueError(
            "is not a SURT prefix; allowed is one such as http://(org,example, or http://(org,example,)/docs/, "
            "which ends behind a comma, or goes on behind the )"
        )
    authority, bracket, path = match["rest"].partition(")")
    return authority.lower() + bracket + path


# --- sites ------------------------------------------------------------------------------------------------------


def _parts(site: str) -> tuple[str, str]:
    """The host of `scheme://host[:port]`, and its port with the colon, if it has one."""
    place = site[site.index("://") + 3 :]
    end = place.rfind(":", place.rfind("]") + 1)
    host, port = (place, "") if end < 0 else (place[:end], place[end:])
    return _without_dot(host), port


def _norm(site: str) -> str:
    host, port = _parts(site)
    return norm_of(f"http://{host}") + port


def surt_of(site: str) -> str:
    """The authority of a site as a SURT, without its scheme: `(org,example,)`; an address is not turned round."""
    host, port = _parts(f"http://{_norm(site)}")
    name = host if is_literal(host) else "".join(f"{label}," for label in reversed(host.split(".")))
    return f"({name}{port})"


class Scope:
    """What all `only` lines of a filter say together."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        texts: dict[str, list[str]] = {kind: [] for kind in SCOPE_KINDS}
        for pattern in patterns:
            texts[pattern.kind].append(pattern.text)
        self._sites, self._hosts = frozenset(texts["site"]), frozenset(texts["host"])
        prefixes: dict[str, list[str]] = {}
        for text in texts["prefix"]:
            norm, slash, path = text.partition("/")
            prefixes.setdefault(norm, []).append(slash + path)
        self._prefixes = {norm: shortest(paths) for norm, paths in prefixes.items()}
        self._surts = shortest(texts["surt"])

    def paths_at(self, site: str) -> Paths:
        """What of `scheme://host[:port]` is in scope; an empty tuple where nothing is."""
        norm = _norm(site)
        if norm in self._sites or self._has_host(site):
            return None
        surt = surt_of(site)
        if begins_with_one(surt, self._surts):
            return None
        paths = [*self._prefixes.get(norm, ()), *self._surts_within(surt)]
        return None if "/" in paths else shortest(paths)

    def _has_host(self, site: str) -> bool:
        host, port = _parts(site)
        if is_literal(host):
            return host + port in self._hosts
        while host:
            if host + port in self._hosts:
                return True
            host = host.partition(".")[2]
        return False

    def _surts_within(self, surt: str) -> list[str]:
        first = bisect_left(self._surts, surt)
        last = bisect_left(self._surts, surt[:-1] + chr(ord(surt[-1]) + 1))
        return [text[len(surt) :] or "/" for text in self._surts[first:last]]


def shortest(texts: Iterable[str]) -> tuple[str, ...]:
    """Sorted, without those that begin with another one."""
    short_texts: list[str] = []
    for text in sorted(set(texts)):
        if not short_texts or not text.startswith(short_texts[-1]):
            short_texts.append(text)
    return tuple(short_texts)


def begins_with_one(text: str, beginnings: Sequence[str]) -> bool:
    """Whether a text begins with one of these, which are sorted and do not begin each other.

    Only the last that is not above the text can be it: whatever stands between a beginning and the text has that beginning, too.
    """
    place = bisect_right(beginnings, text)
    return place > 0 and text.startswith(beginnings[place - 1])
