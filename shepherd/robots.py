"""robots.txt by RFC 9309: which lines speak to us, and which of them decides a path.

Invariant: the longest pattern that matches decides, and of equally long ones an Allow. Cost is linear: a file is read once, plain
patterns are found by their length in a table, and a pattern with `*` walks along the path once, whatever it contains.

Beyond the RFC, as webmasters expect: common misspellings, a forgotten colon, `Allow: /x/index.html` allowing `/x/`, Crawl-delay.
Percent-encodings are compared as they are written, but for the case of their digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from re import Match
from typing import Final, NamedTuple

from shepherd.expressions import RobotsForm

MAX_BYTES: Final = 500 * 1024
ABSENT: Final = 404  # what a robots.txt counts as whose redirects lead nowhere, or never end
MAX_SITEMAPS: Final = 1_000  # of one file that are taken in
MAX_LINE_BYTES: Final = 16 * 1024
MAX_CRAWL_DELAY_S: Final = 4_294_967.0  # what a journal record can carry: 49 days

_USER_AGENT: Final = frozenset((b"user-agent", b"useragent", b"user agent"))
_ALLOW: Final = frozenset((b"allow",))
_DISALLOW: Final = frozenset((b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw"))
_SITEMAP: Final = frozenset((b"sitemap", b"site-map"))
_CRAWL_DELAY: Final = frozenset((b"crawl-delay", b"crawldelay", b"crawl delay"))

_INDEX_PAGE: Final = "/index.html"


class _Line(NamedTuple):
    """An Allow or Disallow line."""

    allow: bool
    pattern: str
    number: int


class _Wild(NamedTuple):
    """A line whose pattern holds `*` or ends in `$`."""

    length: int
    line: _Line
    parts: tuple[str, ...]  # what stands between the stars
    anchored: bool  # the last part ends the path


@dataclass
class Rules:
    """The rules of one robots.txt for one agent."""

    crawl_delay_s: float | None = None
    sitemaps: list[str] = field(default_factory=list)
    _body: bytes = b""
    _plain: dict[str, _Line] = field(default_factory=dict)
    _lengths: list[int] = field(default_factory=list)  # of the plain patterns, longest first
    _wild: list[_Wild] = field(default_factory=list)  # longest first, Allow before Disallow

    def allows(self, path: str) -> bool:
        """Whether a path with its query may be gathered."""
        line = self._decisive(path)
        return line is None or line.allow

    def decide(self, path: str) -> tuple[bool, int, str]:
        """The verdict, and number and text of the line that gave it: 0 and "" where none speaks of the path."""
        line = self._decisive(path)
        if line is None:
            return True, 0, ""
        text = next((text for number, text in _lines(self._body) if number == line.number), b"")
        return line.allow, line.number, text.decode("utf-8", "replace").strip()

    def _decisive(self, path: str) -> _Line | None:
        path = RobotsForm.PATH_ESCAPE.sub(_upper, path) if "%" in path else path
        path = path if path.startswith("/") else "/" + path
        best, best_length = None, 0
        for length in self._lengths:
            if length <= len(path) and (best := self._plain.get(path[:length])) is not None:
                best_length = length
                break
        for wild in self._wild:
            if best is not None and (wild.length, wild.line.allow) <= (best_length, best.allow):
                break
            if _matches(wild, path):
                return wild.line
        return best


ALLOW_ALL: Final = Rules()


def rules_for(status: int, body: bytes, agent: str) -> Rules | None:
    """The rules that an answer to robots.txt sets; None = do not gather until it answers. `status` 0 is no answer at all.

    A redirect stands here only when too many hops lie behind it. 304 is not an answer: the caller has the body it confirms.
    """
    if 200 <= status < 300:
        return parse_robots(body, agent)
    if 300 <= status < 500 and status not in (304, 429):
        return ALLOW_ALL
    return None


def parse_robots(body: bytes, agent: str) -> Rules:
    """The rules for the product token `agent`: of all groups that name it, else of all groups for `*`."""
    body = body[:MAX_BYTES]
    own = agent.lower().encode("utf-8", "replace")
    groups = _Group(), _Group()  # for `*`, for the agent
    named = False  # some group names the agent: then those for `*` do not count, even if it has no lines
    speaking: set[int] = set()  # to which of the two the current group speaks
    heading = False  # the last line that counts was a User-agent
    sitemaps: list[str] = []
    for number, line in _lines(body):
        key, value = _field(line)
        if key in _USER_AGENT:
            speaking = speaking if heading else set()
            heading = True
            addressed = _addressed(value, own)
            if addressed is not None:
                speaking.add(addressed)
            named = named or addressed == 1
        elif key in _ALLOW or key in _DISALLOW:
            heading = False
            if speaking and value:
                rule = _Line(key in _ALLOW, _pattern(value), number)
                for which in speaking:
                    groups[which].lines.append(rule)
        elif key in _CRAWL_DELAY:
            delay_s = _seconds(value)
            if delay_s is not None:
                for which in speaking:
                    groups[which].delays_s.append(delay_s)
        elif key in _SITEMAP and value:
            sitemaps.append(value.decode("utf-8", "replace"))
    return _compile(body, groups[named], sitemaps)


def headings(body: bytes, agent: str) -> list[tuple[int, str]]:
    """Number and text of the User-agent lines whose groups hold for `agent`: the last one above a line heads the line's group."""
    own = agent.lower().encode("utf-8", "replace")
    lines: tuple[list[tuple[int, str]], list[tuple[int, str]]] = [], []
    for number, line in _lines(body[:MAX_BYTES]):
        key, value = _field(line)
        if key in _USER_AGENT and (addressed := _addressed(value, own)) is not None:
            lines[addressed].append((number, line.decode("utf-8", "replace").strip()))
    return lines[1] or lines[0]


def _addressed(value: bytes, own: bytes) -> int | None:
    """Whom a User-agent line means: 0 everybody, 1 us, None somebody else."""
    if value == b"*" or (value[:1] == b"*" and value[1:2].isspace()):
        return 0
    return 1 if own and _token(value) in (own, own.partition(b"/")[0]) else None


@dataclass
class _Group:
    """What the file says to one agent."""

    lines: list[_Line] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)


def _compile(body: bytes, group: _Group, sitemaps: list[str]) -> Rules:
    plain: dict[str, _Line] = {}
    wild: list[_Wild] = []
    for line in group.lines:
        patterns = [line.pattern]
        if line.allow and line.pattern.endswith(_INDEX_PAGE):
            patterns.append(line.pattern.removesuffix("index.html") + "$")
        for pattern in patterns:
            if "*" not in pattern and not pattern.endswith("$"):
                if line.allow or pattern not in plain:
                    plain[pattern] = line
                continue
            anchored = pattern.endswith("$")
            parts = pattern.removesuffix("$").split("*")
            middle = [part for part in parts[1:-1] if part]
            wild.append(_Wild(len(pattern), line, (parts[0], *middle, *parts[1:][-1:]), anchored))
    wild.sort(key=lambda rule: (-rule.length, not rule.line.allow))
    return Rules(
        crawl_delay_s=max(group.delays_s, default=None),
        sitemaps=sitemaps,
        _body=body if group.lines else b"",
        _plain=plain,
        _lengths=sorted({len(pattern) for pattern in plain}, reverse=True),
        _wild=wild,
    )


def _matches(wild: _Wild, path: str) -> bool:
    """The first part begins the path, each next one is taken where it first stands: if any choice matches, this one does."""
    parts = wild.parts
    if not path.startswith(parts[0]):
        return False
    position = len(parts[0])
    if len(parts) == 1:
        return position == len(path)  # without a star, only `$` brings a pattern here
    for part in parts[1:-1]:
        position = path.find(part, position)
        if position < 0:
            return False
        position += len(part)
    last = parts[-1]
    if wild.anchored:
        return len(path) - len(last) >= position and path.endswith(last)
    return path.find(last, position) >= 0


def _lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, each cut at its limit. A byte order mark, or as much of one as there is, is not part of the first."""
    for mark in b"\xef\xbb\xbf":
        if body[:1] != bytes((mark,)):
            break
        body = body[1:]
    for number, line in enumerate(RobotsForm.LINE_END.split(body), start=1):
        yield number, line[:MAX_LINE_BYTES]


def _field(line: bytes) -> tuple[bytes, bytes]:
    """Key, in lower case, and value; a forgotten colon is forgiven where exactly two words stand there."""
    line = line.partition(b"#")[0]
    key, colon, value = line.partition(b":")
    if not colon:
        words = line.split()
        if len(words) != 2:
            return b"", b""
        key, value = words
    return key.strip().lower(), value.strip()


def _token(value: bytes) -> bytes:
    """The product token that a User-agent line begins with."""
    match = RobotsForm.TOKEN.match(value)
    return match.group().lower() if match else b""


def _pattern(value: bytes) -> str:
    return RobotsForm.ESCAPE.sub(_escape, value).decode("ascii")


def _escape(match: Match[bytes]) -> bytes:
    text = match.group()
    return text.upper() if len(text) == 3 else b"%%%02X" % text[0]


def _upper(match: Match[str]) -> str:
    return match.group().upper()


def _seconds(value: bytes) -> float | None:
    try:
        delay_s = float(value)
    except ValueError:
        return None
    return min(delay_s, MAX_CRAWL_DELAY_S) if delay_s >= 0 else None
