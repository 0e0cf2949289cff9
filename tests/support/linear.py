"""Whether a regular expression takes linear time, shown from its parse: no run of it is a proof, this is one.

Python's engine goes back over what it has taken, and tries each place anew. So linear time needs three things, and `faults` names
every place where one of them is not plain to see:

1. Nothing is taken back: a repetition is possessive, or of so few that it costs a constant.
2. An attempt that fails has cost little, or nobody pays for it twice. Let F be the characters with which an attempt can begin,
   and W those that it can have taken without limit when it fails. If F and W share none, an attempt that fails crosses beginnings
   of others only in its parts of limited length, so each character is crossed by a limited number of attempts that fail. One that
   succeeds takes what it has crossed, and nobody looks at it again.
3. The same holds inside of a repetition without limit, for whatever is tried at each of its rounds; a round that fails ends it.

What is only matched at one place needs 1 and 3; what is searched for needs 2 as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

FEW: Final = 1  # repetitions that may be taken back
OTHER: Final = 256  # every character beyond Latin-1
_ALL: Final = frozenset(range(OTHER + 1))
_ONE: Final = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
_CATEGORIES: Final = {
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}
Characters = frozenset[int]
_NONE: Final[Characters] = frozenset()


@dataclass(frozen=True)
class _Part:
    """What is known of a part of an expression."""

    first: Characters  # with which it can begin, where it takes anything
    endless: Characters  # that it can take without limit
    can_be_empty: bool
    can_fail: bool
    wasted: Characters  # that it can have taken without limit when it fails


class _Prover:
    def __init__(self, expression: re.Pattern[Any]) -> None:
        self._is_bytes, self._flags = isinstance(expression.pattern, bytes), expression.flags
        self.found: list[str] = []

    def sequence(self, items: Sequence[Any], rounds: bool) -> _Part:
        """`rounds`: whether it stands inside of a repetition without limit."""
        first, endless, wasted, empty, fails = _NONE, _NONE, _NONE, True, False
        for item in items:
            part = self._part(item, rounds)
            first |= part.first if empty else _NONE
            wasted |= part.wasted | (endless if part.can_fail or part.wasted else _NONE)
            endless, empty, fails = endless | part.endless, empty and part.can_be_empty, fails or part.can_fail
        return _Part(first, endless, empty, fails, wasted)

    def trial(self, part: _Part, where: str) -> None:
        """Judge what is tried again and again."""
        if part.wasted and (part.can_be_empty or part.first & part.wasted):
            self.found.append(f"{where} may fail after it has taken what another attempt begins with")

    def _part(self, item: Any, rounds: bool) -> _Part:
        kind, value = item
        if kind in _ONE:
            return _Part(self._characters(item), _NONE, False, True, _NONE)
        if kind is op.AT:
            return _Part(_NONE, _NONE, True, True, _NONE)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            inner = self.sequence(value[1], rounds)
            if rounds:
                self.trial(inner, "a look ahead")
            return _Part(inner.first, inner.endless, True, True, inner.endless)
        if kind is op.SUBPATTERN:
            return self.sequence(value[3], rounds)
        if kind is op.ATOMIC_GROUP:
            return self.sequence(value, rounds)
        if kind is op.BRANCH:
            return self._branch([self.sequence(choice, rounds) for choice in value[1]], rounds)
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._repetition(kind, value[0], value[1], value[2], rounds)
        self.found.append(f"{str(kind).lower()} is not known here")
        return _Part(_ALL, _ALL, True, True, _ALL)

    def _branch(self, choices: list[_Part], rounds: bool) -> _Part:
        for choice in choices if rounds else ():
            self.trial(choice, "an alternative")
        return _Part(
            _NONE.union(*(choice.first for choice in choices)),
            _NONE.union(*(choice.endless for choice in choices)),
            any(choice.can_be_empty for choice in choices),
            all(choice.can_fail for choice in choices),
            _NONE.union(*(choice.wasted for choice in choices)),
        )

    def _repetition(self, kind: Any, least: int, most: int, body: Sequence[Any], rounds: bool) -> _Part:
        is_endless = most is op.MAXREPEAT
        if kind is not op.POSSESSIVE_REPEAT and most - least > FEW:
            self.found.append(f"a repetition of {least} to {most} is not possessive")
        inner = self.sequence(body, rounds or is_endless)
        if is_endless and inner.can_be_empty:
            self.found.append("what is repeated without limit can be empty")
        if rounds:
            self.trial(inner, "a round")
        taken = self._taken(body) if is_endless else inner.endless
        return _Part(inner.first, taken, not least or inner.can_be_empty, bool(least) and inner.can_fail, inner.wasted)

    def _taken(self, items: Sequence[Any]) -> Characters:
        """All that a part can take."""
        taken = _NONE
        for kind, value in items:
            if kind in _ONE:
                taken |= self._characters((kind, value))
            elif kind is op.SUBPATTERN:
                taken |= self._taken(value[3])
            elif kind is op.ATOMIC_GROUP:
                taken |= self._taken(value)
            elif kind is op.BRANCH:
                taken = taken.union(*(self._taken(choice) for choice in value[1]))
            elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
                taken |= self._taken(value[2])
        return taken

    # --- characters -------------------------------------------------------------------------------------------------

    def _characters(self, item: Any) -> Characters:
        kind, value = item
        if kind is op.LITERAL:
            return self._letter(value)
        if kind is op.NOT_LITERAL:
            return _ALL - self._letter(value) | {OTHER}
        if kind is op.ANY:
            return _ALL if self._flags & re.DOTALL else _ALL - {ord("\n")}
        chosen = _NONE.union(*(self._choice(choice) for choice in value))
        return _ALL - chosen | {OTHER} if value[0][0] is op.NEGATE else chosen

    def _choice(self, choice: Any) -> Characters:
        kind, value = choice
        if kind is op.NEGATE:
            return frozenset()
        if kind is op.LITERAL:
            return self._letter(value)
        if kind is op.RANGE:
            return _NONE.union(*(self._letter(code) for code in range(value[0], min(value[1], OTHER) + 1)))
        members = re.compile(_CATEGORIES[value].encode() if self._is_bytes else _CATEGORIES[value])
        held = (code for code in range(OTHER) if members.match(bytes((code,)) if self._is_bytes else chr(code)))  # type: ignore[arg-type]
        return frozenset(held) | (frozenset() if self._is_bytes else {OTHER})

    def _letter(self, code: int) -> Characters:
        if code >= OTHER:
            return frozenset((OTHER,))
        if not self._flags & re.IGNORECASE or not chr(code).isalpha():
            return frozenset((code,))
        both = {ord(letter) for letter in (chr(code).lower(), chr(code).upper()) if len(letter) == 1}
        # Outside ASCII two signs count as `s` and `k`, and two as `i`.
        return frozenset(min(letter, OTHER) for letter in both) | (frozenset() if self._is_bytes else {OTHER})


def faults(expression: re.Pattern[Any], searched: bool) -> Iterator[str]:
    """Why an expression is not plainly linear: matched at one place, or also `searched` for."""
    prover = _Prover(expression)
    whole = prover.sequence(_parser.parse(expression.pattern, expression.flags), rounds=False)
    if searched:
        prover.trial(whole, "it")
    yield from prover.found
