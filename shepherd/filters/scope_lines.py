"""`only` lines in the text of a filter: read, added and removed; everything else in the text stays byte by byte the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from shepherd.errors import FilterError, UsageError
from shepherd.filters.patterns import Pattern
from shepherd.filters.reading import Line
from shepherd.filters.scope import SCOPE_KINDS, normal_scope

_BELOW: Final = "*."


class ScopeWord(NamedTuple):
    """One word of an `only` line."""

    kind: str
    word: str  # as it is written
    line: int = 0  # from 1; 0 where it is in no text yet

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.kind, normal_scope(self.kind, self.word), 0)

    def __str__(self) -> str:
        return f"only {self.kind} {self.word}"


def parse_word(text: str) -> ScopeWord:
    """What an operator means: `example.org` is a site, `*.example.org` a host with all below it, a URL the beginning of URLs, and
    `http://(org,example,` a SURT prefix."""
    if re.match(r"https?://\(", text):
        word = ScopeWord("surt", text)
    elif "://" in text:
        word = ScopeWord("prefix", text)
    elif text.startswith(_BELOW):
        word = ScopeWord("host", text.removeprefix(_BELOW))
    else:
        word = ScopeWord("site", text)
    try:
        normal_scope(word.kind, word.word)
    except ValueError as error:
        raise UsageError(f"{text!r} {error}") from None
    return word


def read_words(text: str, source: str) -> list[ScopeWord]:
    """All words of all `only` lines of a filter without faults, in their order."""
    words = []
    for line in Line.cut(text, source):
        if line.words[0] == "only":
            if len(line.words) < 3 or line.words[1] not in SCOPE_KINDS:
                raise FilterError(f"{source}, line {line.number}: not an `only` line; `shepherd check-config` says what is wrong")
            words += [ScopeWord(line.words[1], word, line.number) for word in line.words[2:]]
    return words


def with_words(text: str, words: Iterable[ScopeWord]) -> str:
    """The text with a line for each of these that it does not have, behind its last `only` line, or else at its beginning."""
    present = read_words(text, "filter")
    patterns = {word.pattern for word in present}
    new = []
    for word in words:
        if word.pattern not in patterns:
            patterns.add(word.pattern)
            new.append(f"{word}\n")
    place = max((word.line for word in present), default=0)
    lines = text.splitlines(keepends=True)
    if new and place == len(lines) and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines[:place], *new, *lines[place:]])


def without_words(text: str, words: Iterable[ScopeWord]) -> str:
    """The text without these; a line that has nothing else goes, with its comment."""
    patterns = {word.pattern for word in words}
    lines = text.splitlines(keepends=True)
    spans: dict[int, list[tuple[int, int]]] = {}
    for line in Line.cut(text, "filter"):
        if line.words[0] != "only":
            continue
        places = [
            (column - 1, column - 1 + len(word))
            for word, column in zip(line.words[2:], line.columns[2:], strict=False)
            if ScopeWord(line.words[1], word).pattern in patterns
        ]
        if len(places) == len(line.words) - 2:
            lines[line.number - 1] = ""
        elif places:
            spans[line.number - 1] = places
    for number, places in spans.items():
        for start, end in reversed(places):
            lines[number] = lines[number][:start].rstrip() + lines[number][end:]
    return "".join(lines)
