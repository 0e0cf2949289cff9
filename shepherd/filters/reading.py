"""From the text of a filter to a Filter, or to a FilterError that names file, line and column and says what is allowed there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import re2  # type: ignore[import-untyped]

from shepherd.errors import FilterError
from shepherd.filters import patterns as kinds
from shepherd.filters.judging import Filter, FilterDraft, SectionLine, StripLine, Verdict
from shepherd.filters.patterns import Pattern, normal_pattern
from shepherd.filters.scope import SCOPE_KINDS, normal_scope
from shepherd.filters.settings import SET_NAMES, SETTINGS, SetLine, read_value
from shepherd.lines import WordLine

VERBS = ("only", "accept", "reject", "default", "strip", "set", "group", "section")


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
    """Read the text of a filter; FilterError says where in `source` its lines are wrong, and what is allowed there."""
    draft = FilterDraft()
    faults: list[str] = []
    for line in Line.cut(text, source):
        try:
            _read_line(line, draft)
        except FilterError as error:
            faults += error.faults
    if faults:
        raise FilterError(*faults)
    try:
        return Filter(text, draft)
    except re2.error:
        room = f"{kinds.SET_BYTES >> 20} MiB"
        raise FilterError(f"{source}: its globs, prefixes and regexes need more than {room} together; use host lines") from None


@lru_cache(maxsize=1)
def filter_of(text: str) -> Filter:
    """The filter that another process has read: once in each process, however much of its work names it."""
    return parse_filter(text)


def _read_line(line: Line, draft: FilterDraft) -> None:
    verb = line.choice(0, VERBS)
    if verb == "only":
        draft.scope += _read_patterns(line, 1, SCOPE_KINDS, 0)
    elif verb in ("accept", "reject"):
        draft.rules += _read_patterns(line, 1, kinds.URL_KINDS, len(draft.verdicts))
        draft.verdicts.append(Verdict(verb == "accept", line.number, line.text))
    elif verb == "default":
        if draft.default:
            raise line.error(0, "a second default; allowed is one in a filter")
        draft.default = Verdict(line.choice(1, ("accept", "reject")) == "accept", 0, line.text)
        line.end(2)
    elif verb == "strip":
        draft.strips += [StripLine(name, line.number, line.text) for name in _read_parameters(line)]
    elif verb == "section":
        section = _read_value(line, 1, "section")
        draft.section_rules += _read_patterns(line, 2, kinds.SECTION_KINDS, len(draft.sections))
        draft.sections.append(SectionLine(section, line.number, line.text))
    else:
        n = 1 if verb == "group" else 2
        name = verb if verb == "group" else line.choice(1, SET_NAMES)
        value = _read_value(line, n, name)
        draft.site_rules += _read_patterns(line, n + 1, kinds.SITE_KINDS, len(draft.setters))
        draft.setters.append(SetLine(name, line.words[n], value, line.number, line.text))


def _read_parameters(line: Line) -> tuple[str, ...]:
    line.word(1, "the name of a query parameter")
    for n, name in enumerate(line.words[1:], 1):
        if re.search(r"[&=#?]|\*.", name) or not name.isascii():
            raise line.error(n, f"{name!r} is not a parameter; allowed is a name as in URLs, or its beginning and a *")
    return line.words[1:]


def _read_value(line: Line, n: int, setting: str) -> int:
    word = line.word(n, SETTINGS[setting][0])
    try:
        return read_value(setting, word)
    except ValueError as error:
        raise line.error(n, str(error)) from None


def _read_patterns(line: Line, n: int, allowed: tuple[str, ...], rank: int) -> list[Pattern]:
    """KIND PATTERN... from the n-th word on."""
    kind = line.choice(n, allowed)
    line.word(n + 1, f"a pattern of kind {kind}" if kind not in kinds.COUNT_KINDS else "a whole number")
    if kind in kinds.COUNT_KINDS:
        line.end(n + 2)
    patterns = []
    for m, word in enumerate(line.words[n + 1 :], n + 1):
        try:
            text = normal_scope(kind, word) if allowed is SCOPE_KINDS else normal_pattern(kind, word)
            patterns.append(Pattern(kind, text, rank))
        except ValueError as error:
            raise line.error(m, f"{word!r} {error}") from None
    return patterns


# --- the words of a line ----------------------------------------------------------------------------------------


class Line(WordLine):
    """A line of a filter."""

    fault = FilterError

    def word(self, n: int, allowed: str) -> str:
        if n >= len(self.words):
            raise self.error(n, f"the line ends here; allowed is {allowed}")
        return self.words[n]

    def choice(self, n: int, allowed: Sequence[str]) -> str:
        *but_last, last = allowed
        names = f"{', '.join(but_last)} or {last}"
        word = self.word(n, names)
        if word not in allowed:
            raise self.error(n, f"{word!r} is not known; allowed is {names}")
        return word

    def end(self, n: int) -> None:
        """No n-th word may follow."""
        if len(self.words) > n:
            raise self.error(n, f"{self.words[n]!r} is too much; allowed is the end of the line")
