"""Lines of files that operators write (cf/filter, cf/url-equiv), cut into words.

`#` begins a comment at the start of a line or after a blank. A line knows its place: so an error can point at the word that is
wrong, or at the end where one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from shepherd.errors import UsageError
from shepherd.expressions import TextForm


@dataclass(frozen=True)
class WordLine:
    """A line that has words. Who reads one kind of file says which error its mistakes are."""

    fault: ClassVar[type[UsageError]] = UsageError

    source: str  # for people: the file
    number: int  # from 1
    text: str  # without its comment
    words: tuple[str, ...]
    columns: tuple[int, ...]  # one more than words: the last is the end of the line

    @classmethod
    def cut(cls, text: str, source: str) -> Iterator[Self]:
        """All lines of a file but blank ones and comments."""
        for number, raw in enumerate(text.split("\n"), 1):
            content = TextForm.COMMENT.sub("", raw).rstrip()
            words = list(TextForm.WORD.finditer(content))
            if words:
                columns = (*(word.start() + 1 for word in words), len(content) + 1)
                yield cls(source, number, content.strip(), tuple(word[0] for word in words), columns)

    def error(self, n: int, what: str) -> UsageError:
        """What is wrong with the n-th word."""
        return self.fault(f"{self.source}, line {self.number}, column {self.columns[n]}: {what}")
