"""The lines of a filter, cut into words, each with the column to point at when it is wrong or missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from shepherd.errors import FilterError

_COMMENT: Final = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True)
class Line:
    """A line that says something."""

    source: str
    number: int
    text: str
    words: tuple[str, ...]
    columns: tuple[int, ...]  # one more than words: the last is the end of the line

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

    def error(self, n: int, what: str) -> FilterError:
        return FilterError(f"{self.source}, line {self.number}, column {self.columns[n]}: {what}")


def cut_lines(text: str, source: str) -> Iterator[Line]:
    for number, raw in enumerate(text.split("\n"), 1):
        said = _COMMENT.sub("", raw).rstrip()
        if said:
            words = list(re.finditer(r"\S+", said))
            columns = (*(word.start() + 1 for word in words), len(said) + 1)
            yield Line(source, number, said.strip(), tuple(word[0] for word in words), columns)
