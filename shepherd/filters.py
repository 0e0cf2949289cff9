"""cf/filter: which URLs are gathered, which query parameters are noise, and what single sites may ask of us.

One rule a line, `#` begins a comment at the start of a line or after a blank:

    accept|reject KIND PATTERN...         KIND: host glob prefix ext regex; the first line that matches decides
    default accept|reject                 when none does; accept if there is no such line
    strip PARAM...                        query parameters to remove; `utm_*` removes all that begin so
    set min_delay SECONDS KIND PATTERN... KIND: host glob (over scheme://host[:port]); the first line that matches decides
    set soft_limit|hard_limit N KIND PATTERN...

A Filter never changes, and expects hrefs and site names as shepherd.urls makes them. What `strip` returns is again normalised.
Patterns are kept in the spelling that normalised URLs have, so matching never parses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import can_ada
import mmh3
import re2  # type: ignore[import-untyped]

from shepherd.errors import FilterError

NO_LIMIT: Final = 0xFFFFFFFF  # no line speaks of it
URL_KINDS: Final = ("host", "glob", "prefix", "ext", "regex")
SITE_KINDS: Final = ("host", "glob")
SETTINGS: Final = ("min_delay", "soft_limit", "hard_limit")

_CHECK_SEED: Final = 0x5348
_PAST_SCHEME: Final = 8  # where to look for the slash that begins the path
_SITE_CACHE: Final = 65_536
_SET_BYTES: Final = 64 << 20  # for a set of patterns: 20,000 globs fit

_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]\\*.][^/?#@:\[\]\\*]*")
_EXT: Final = re.compile(r"\.?([A-Za-z0-9_~+-]+)")
_BEGINNINGS: Final = {"glob": "one that begins with http://, https:// or *", "prefix": "one that begins with http:// or https://"}
_AUTHORITY: Final = re.compile(r"https?://[^/*?]*")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_SECONDS: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
_COUNT: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Verdict:
    """What becomes of a URL, and by which line; line 0 is the default."""

    accepted: bool
    line: int
    text: str


@dataclass(frozen=True)
class SiteSettings:
    """What the filter says of a site; NO_LIMIT where no line speaks of it."""

    delay_ms: int
    soft_limit: int
    hard_limit: int


@dataclass(frozen=True)
class _Pattern:
    kind: str
    text: str  # in the spelling that normalised URLs have
    rank: int  # of its line among those that compete


class _Matcher:
    """Finds the lowest rank among the patterns that match a text: an href, or a site name.

    Hosts and extensions are looked up in dicts. All else is one RE2 set: a single pass over the text, however many there are.
    """

    def __init__(self, patterns: list[_Pattern], no_match: int) -> None:
        """`patterns` in ascending rank; `no_match` is the rank to return if none matches, higher than all others."""
        self._no_match = no_match
        self._hosts: dict[str, int] = {}
        self._exts: dict[str, int] = {}
        searched = [pattern for pattern in patterns if pattern.kind not in ("host", "ext")]
        for pattern in patterns:
            if pattern.kind in ("host", "ext"):
                (self._hosts if pattern.kind == "host" else self._exts).setdefault(pattern.text, pattern.rank)
        self._set = re2.Set.SearchSet(_re2_options())
        for pattern in searched:
            self._set.Add(_expression(pattern))
        # The last expression matches everything. RE2 would answer "no match" if it ever failed: here that is loud, not an accept.
        self._set.Add(b"")
        self._set.Compile()
        self._ranks = [pattern.rank for pattern in searched] + [no_match]
        self._rank_of_site: dict[str, int] = {}

    def first(self, text: str) -> int:
        slash = text.find("/", _PAST_SCHEME)
        site = text if slash < 0 else text[:slash]
        rank = self._rank_of_site.get(site)
        if rank is None:
            rank = self._learn(site)
        if self._exts:
            name = text.partition("?")[0].rpartition("/")[2]
            rank = min(rank, self._exts.get(name.rpartition(".")[2].lower(), rank)) if "." in name else rank
        if self._ranks[0] < rank:
            rank = min(rank, self._ranks[min(self._set.Match(text.encode()))])
        return rank

    def _learn(self, site: str) -> int:
        """The lowest rank by host, remembered."""
        host = site.partition("://")[2]
        if not host.startswith("["):
            host = host.partition(":")[0].removesuffix(".")  # `example.org.` is the same machine, and no way around a rule
        else:
            host = host[: host.index("]") + 1]
        rank = self._no_match
        while host:
            rank = min(rank, self._hosts.get(host, rank))
            host = host.partition(".")[2]
        if len(self._rank_of_site) >= _SITE_CACHE:
            self._rank_of_site.clear()
        self._rank_of_site[site] = rank
        return rank


@dataclass
class _Draft:
    """What the lines read so far say."""

    verdicts: list[Verdict] = field(default_factory=list)
    rules: list[_Pattern] = field(default_factory=list)
    default: Verdict | None = None
    strips: list[str] = field(default_factory=list)
    values: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in SETTINGS})
    setters: dict[str, list[_Pattern]] = field(default_factory=lambda: {name: [] for name in SETTINGS})


class Filter:
    """A filter that parse_filter or load_filter has read."""

    def __init__(self, text: str, draft: _Draft) -> None:
        self.text: Final = text
        self.version: Final[int] = mmh3.hash64(text.encode(), _CHECK_SEED, signed=False)[0]
        self._verdicts = [*draft.verdicts, draft.default or Verdict(True, 0, "default accept")]
        self._rules = _Matcher(draft.rules, len(draft.verdicts))
        self._values = {name: [*values, NO_LIMIT] for name, values in draft.values.items()}
        self._setters = {name: _Matcher(patterns, len(draft.values[name])) for name, patterns in draft.setters.items()}
        self._strip_names = frozenset(name for name in draft.strips if not name.endswith("*"))
        self._strip_starts = tuple(name[:-1] for name in draft.strips if name.endswith("*"))

    def strip(self, href: str) -> str:
        """The href without the parameters that `strip` lines name; all else is left byte by byte as it is."""
        if "?" not in href or not (self._strip_names or self._strip_starts):
            return href
        address, _, query = href.partition("?")
        parameters = query.split("&")
        left = [parameter for parameter in parameters if not self._strips(parameter.partition("=")[0])]
        if len(left) == len(parameters):
            return href
        query = "&".join(left)
        return f"{address}?{query}" if query else address

    def judge(self, href: str) -> Verdict:
        """Whether an href, already stripped, is gathered, and by which line."""
        return self._verdicts[self._rules.first(href)]

    def clean(self, href: str) -> str | None:
        """The stripped href, or None if it is rejected."""
        href = self.strip(href)
        return href if self.judge(href).accepted else None

    def site_settings(self, site_name: str) -> SiteSettings:
        """What the `set` lines say of `scheme://host[:port]`."""
        return SiteSettings(*(self._values[name][self._setters[name].first(site_name)] for name in SETTINGS))

    def _strips(self, name: str) -> bool:
        return name in self._strip_names or name.startswith(self._strip_starts)


def load_filter(path: Path) -> Filter:
    """Read a filter; a missing file is an empty one, which accepts everything."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise FilterError(f"{path}: cannot be read: {error}") from error
    return parse_filter(text, str(path))


def parse_filter(text: str, source: str = "filter") -> Filter:
    """Read the text of a filter; FilterError says where in `source` it is wrong and what is allowed there."""
    draft = _Draft()
    for line in _lines(text, source):
        _read_line(line, draft)
    try:
        return Filter(text, draft)
    except re2.error:
        room = f"{_SET_BYTES >> 20} MiB"
        raise FilterError(f"{source}: its globs, prefixes and regexes need more than {room} together; use host lines") from None


@dataclass(frozen=True)
class _Line:
    """A line that is not blank, cut into words, and the place to point at when one is wrong or missing."""

    source: str
    number: int
    text: str
    words: tuple[str, ...]
    columns: tuple[int, ...]  # one more than words: the last is the end of the line

    def word(self, n: int, allowed: str) -> str:
        if n >= len(self.words):
            raise self.error(n, f"the line ends here; allowed is {allowed}")
        return self.words[n]

    def choice(self, n: int, allowed: tuple[str, ...]) -> str:
        *but_last, last = allowed
        names = f"{', '.join(but_last)} or {last}"
        word = self.word(n, names)
        if word not in allowed:
            raise self.error(n, f"{word!r} is not known; allowed is {names}")
        return word

    def error(self, n: int, what: str) -> FilterError:
        return FilterError(f"{self.source}, line {self.number}, column {self.columns[n]}: {what}")


def _lines(text: str, source: str) -> Iterator[_Line]:
    for number, raw in enumerate(text.split("\n"), 1):
        said = _COMMENT.sub("", raw).rstrip()
        if said:
            words = list(re.finditer(r"\S+", said))
            columns = (*(word.start() + 1 for word in words), len(said) + 1)
            yield _Line(source, number, said.strip(), tuple(word[0] for word in words), columns)


def _read_line(line: _Line, draft: _Draft) -> None:
    verb = line.choice(0, ("accept", "reject", "default", "strip", "set"))
    if verb in ("accept", "reject"):
        draft.rules += _read_patterns(line, 1, URL_KINDS, len(draft.verdicts))
        draft.verdicts.append(Verdict(verb == "accept", line.number, line.text))
    elif verb == "default":
        if draft.default:
            raise line.error(0, "a second default; allowed is one in a filter")
        draft.default = Verdict(line.choice(1, ("accept", "reject")) == "accept", 0, line.text)
        if len(line.words) > 2:
            raise line.error(2, f"{line.words[2]!r} is too much; allowed is the end of the line")
    elif verb == "strip":
        line.word(1, "the name of a query parameter")
        for n, name in enumerate(line.words[1:], 1):
            if re.search(r"[&=#?]|\*.", name) or not name.isascii():
                raise line.error(n, f"{name!r} is no parameter; allowed is a name as it stands in URLs, or its beginning and a *")
            draft.strips.append(name)
    else:
        name = line.choice(1, SETTINGS)
        value = _read_number(line, name)
        draft.setters[name] += _read_patterns(line, 3, SITE_KINDS, len(draft.values[name]))
        draft.values[name].append(value)


def _read_number(line: _Line, setting: str) -> int:
    """Milliseconds of a delay, or a count; both are well below NO_LIMIT."""
    delay = setting == "min_delay"
    allowed = "seconds, as 10 or 2.5, below a million" if delay else "a whole number of at most nine digits"
    word = line.word(2, allowed)
    if not (_SECONDS if delay else _COUNT).fullmatch(word):
        raise line.error(2, f"{word!r} does not fit; allowed is {allowed}")
    return round(float(word) * 1_000) if delay else int(word)


def _read_patterns(line: _Line, n: int, kinds: tuple[str, ...], rank: int) -> list[_Pattern]:
    """KIND PATTERN... from the n-th word on."""
    kind = line.choice(n, kinds)
    line.word(n + 1, f"a pattern of kind {kind}")
    patterns = []
    for m, word in enumerate(line.words[n + 1 :], n + 1):
        try:
            patterns.append(_Pattern(kind, _normal_pattern(kind, word), rank))
        except ValueError as error:
            raise line.error(m, f"{word!r} {error}") from None
    return patterns


def _normal_pattern(kind: str, word: str) -> str:
    """The pattern that `word` spells; ValueError says what is allowed instead."""
    if kind == "host":
        return _normal_host(word)
    if kind == "ext":
        ext = _EXT.fullmatch(word)
        if ext is None:
            raise ValueError("is no extension; allowed is one as pdf or .pdf")
        return ext[1].lower()
    if kind == "regex":
        try:
            re2.compile(word.encode(), _re2_options())
        except re2.error as error:
            raise ValueError(f"is no expression of RE2, which alone is allowed: {error.args[0].decode()}") from None
    elif not _can_match(kind, word):
        raise ValueError(f"matches no URL; allowed is {_BEGINNINGS[kind]}, in ASCII, with the host in lower case")
    return word


def _normal_host(word: str) -> str:
    try:
        if _HOST.fullmatch(word):
            return str(can_ada.parse(f"http://{word}/").hostname).removesuffix(".")
    except ValueError:
        pass
    raise ValueError("is no host; allowed is a name as example.org, without scheme, port, path or *")


def _can_match(kind: str, word: str) -> bool:
    """Whether a glob or prefix can match any normalised URL: if not, it is surely not what was meant."""
    fixed = re.split(r"[*?]", word)[0] if kind == "glob" else word
    authority = _AUTHORITY.match(word)
    begins = any(scheme.startswith(fixed[: len(scheme)]) for scheme in ("http://", "https://"))
    return begins and word.isascii() and (authority is None or authority[0] == authority[0].lower())


def _expression(pattern: _Pattern) -> bytes:
    if pattern.kind == "regex":
        return pattern.text.encode()
    if pattern.kind == "prefix":
        return rb"\A" + _escaped(pattern.text)
    wild = {"*": b".*", "?": b"."}
    return rb"\A" + b"".join(wild.get(part) or _escaped(part) for part in re.split(r"([*?])", pattern.text)) + rb"\z"


def _escaped(text: str) -> bytes:
    return bytes(re2.escape(text.encode()))


def _re2_options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # URLs are ASCII, and byte patterns make smaller automata
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _SET_BYTES
    return options
