"""cf/url-equiv: which sites serve the same documents, beyond what is assumed of every site, and which do not although it is.

One line a class, `#` begins a comment at the start of a line or after a blank:

    NAME NAME...           these serve the same documents; the first is the representative of all
    apart NAME...          www.NAME and NAME are two document spaces, and belong to no class

A name is host or host:port, without "www.": it stands for http and https, with and without www., as a normalised site does. An
Equiv never changes, and expects sites and normalised sites as shepherd.urls makes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import mmh3

from shepherd import urls
from shepherd.errors import BadUrl, EquivError
from shepherd.lines import WordLine

APART: Final = "apart"

_CHECK_SEED: Final = 0x5348
_NAME: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]\\*\s]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS: Final = ("80", "443")
_WWW: Final = "www."


@dataclass(frozen=True)
class Equiv:
    """Equivalences that parse_equiv or load_equiv has read."""

    text: str
    version: int  # check64 of the text
    _representatives: Mapping[str, str] = field(repr=False)  # of the names in classes
    _lines: Mapping[str, int] = field(repr=False)  # of all names; a kept-apart one is there with and without www.

    def norm_of(self, site: str) -> str:
        """The normalised site of `scheme://host[:port]`: by the implicit rule unless a line keeps it apart, then by its class."""
        implicit = urls.norm_of(site)
        host = site.partition("://")[2]
        return host if host != implicit and host in self._lines else self.representative(implicit)

    def representative(self, norm: str) -> str:
        """The normalised site that stands for this one: the first of its class, or itself."""
        return self._representatives.get(norm, norm)

    def members(self) -> Mapping[str, str]:
        """The representative of every normalised site that stands in a class."""
        return self._representatives

    def kept_apart(self) -> list[str]:
        """The normalised sites, with their www., that the implicit rule would have made others."""
        return [name for name in self._lines if name not in self._representatives and name.startswith(_WWW)]

    def line_of(self, norm: str) -> int:
        """The number of the line that speaks of a normalised site; 0 where none does."""
        return self._lines.get(norm, 0)


def load_equiv(path: Path) -> Equiv:
    """Read a file; a missing one is empty, and leaves only what is assumed of every site."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise EquivError(f"{path}: cannot be read: {error}") from error
    return parse_equiv(text, str(path))


def parse_equiv(text: str, source: str = "url-equiv") -> Equiv:
    """Read the text of a file; EquivError says where in `source` its lines are wrong, and why."""
    representatives: dict[str, str] = {}
    lines: dict[str, int] = {}
    faults: list[str] = []
    for line in _Line.cut(text, source):
        try:
            _read_line(line, representatives, lines)
        except EquivError as error:
            faults += error.faults
    if faults:
        raise EquivError(*faults)
    version = mmh3.hash64(text.encode(), _CHECK_SEED, signed=False)[0]
    return Equiv(text, version, MappingProxyType(representatives), MappingProxyType(lines))


class _Line(WordLine):
    fault = EquivError


def _read_line(line: _Line, representatives: dict[str, str], lines: dict[str, int]) -> None:
    apart = line.words[0] == APART
    names = [_name(line, n) for n in range(int(apart), len(line.words))]
    if len(names) < (1 if apart else 2):
        raise line.error(len(line.words), "the line ends here; allowed is another name")
    for n, name in enumerate(names, int(apart)):
        if name in lines:
            raise line.error(n, _why_twice(name, line.number, lines[name], apart, name in representatives))
        lines[name] = line.number
        if not apart:
            representatives[name] = names[0]
        elif _without_www(_WWW + name) != name:
            raise line.error(n, f"{name} and {_WWW}{name} are not taken for one anyway; leave it out")
        else:
            lines[_WWW + name] = line.number


def _name(line: _Line, n: int) -> str:
    """The n-th word as a normalised site."""
    word = line.words[n]
    match = _NAME.fullmatch(word)
    try:
        url = urls.parse(f"http://{word}/", strict=True) if match else None
    except BadUrl:
        url = None
    if match is None or url is None:
        raise line.error(
            n, f"{word!r} is not a name; allowed is a host such as example.org or host:port, without scheme, path or *"
        )
    if match[2] and str(int(match[2])) in _DEFAULT_PORTS:
        raise line.error(n, f"{word!r} has the default port of http or https; leave it out")
    name = url.site.removeprefix("http://")
    if name != url.norm:
        raise line.error(n, f'{word!r} begins with "www."; names stand here without it: write {url.norm}')
    return name


def _without_www(name: str) -> str | None:
    """What the implicit rule makes of a name; None where there can be none such."""
    try:
        return urls.parse(f"http://{name}/").norm
    except BadUrl:
        return None


def _why_twice(name: str, here: int, there: int, apart: bool, in_class: bool) -> str:
    if here == there:
        return f"{name} is twice in this line"
    if apart == in_class:
        return f"{name} is in a class and kept apart (line {there}); allowed is one of both"
    return f"{name} is in line {there} already; allowed is one {'line' if apart else 'class'} for a name"
