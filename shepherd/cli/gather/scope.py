"""Where `gather` may go: the sites of the URLs it was given, these with their subdomains, or anywhere that links lead.

The scope of a database lies in its own cf/scope, a place a line: `example.org` is that site, `*.example.org` that one and all
below it, and `*` anywhere. It grows with every run, and becomes one line of the filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shepherd.errors import UsageError

FILE: Final = "scope"
SITE, SUBDOMAINS, ANY = "site", "subdomains", "any"
KINDS: Final = (SITE, SUBDOMAINS, ANY)
ANYWHERE: Final = "*"
_BELOW: Final = "*."
_ADDRESS: Final = re.compile(r"[0-9.]+(:\d+)?|\[.*")  # a host without subdomains


@dataclass(frozen=True)
class Scope:
    """The places of a database, in the order in which they came."""

    places: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.places)

    def __str__(self) -> str:
        return ", ".join("wherever links lead" if place == ANYWHERE else place for place in self.places)

    def with_sites(self, norms: Iterable[str], kind: str) -> Scope:
        """The scope, widened by these normalised sites."""
        new = [f"{_BELOW}{norm}" if kind == SUBDOMAINS and not _ADDRESS.fullmatch(norm) else norm for norm in norms]
        return Scope(tuple(dict.fromkeys([*self.places, *new, *([ANYWHERE] if kind == ANY else [])])))

    @property
    def norms(self) -> list[str]:
        """The normalised sites that were asked for."""
        return list(dict.fromkeys(place.removeprefix(_BELOW) for place in self.places if place != ANYWHERE))

    def has(self, norm: str) -> bool:
        """Whether a normalised site lies in it."""
        if ANYWHERE in self.places or norm in self.norms:
            return True
        return any(norm.endswith(place[1:]) for place in self.places if place.startswith(_BELOW))

    def filter_text(self, user_text: str) -> str:
        """The user's filter behind one line that rejects everything outside: so its own rejects hold within the scope."""
        if ANYWHERE in self.places:
            return user_text
        return f"# Written by gather: only {self}; then what the user's filter says.\n{self.rule()}\n\n{user_text}"

    def rule(self) -> str:
        """A reject line for all URLs but those in the scope, under either scheme.

        The filter's first match decides and its expressions know no "not", so this one spells out every way in which a host, read
        from its end, can differ from all names that are allowed.
        """
        trie = _Node()
        for place in self.places:
            norm = place.removeprefix(_BELOW)
            trie.enter(norm, below=place.startswith(_BELOW))
            if "." in norm:
                trie.enter(f"www.{norm}", below=False)
        return f"reject regex ^https?://{trie.others()}/"


@dataclass
class _Node:
    """The names that end in some text; `after` has one more character before it."""

    after: dict[str, _Node] = field(default_factory=dict)
    whole: bool = False  # the text itself is a name that is allowed
    below: bool = False  # and everything that ends in a dot and the text

    def enter(self, name: str, *, below: bool) -> None:
        node = self
        for char in reversed(name):
            node = node.after.setdefault(char, _Node())
        node.whole, node.below = True, node.below or below

    def others(self) -> str:
        """An expression for what may stand before the text so that the whole is not allowed."""
        allowed = {*self.after, *("." if self.below else "")}
        stranger = f"[^/]*[^/{''.join(re.escape(char) for char in sorted(allowed))}]"
        longer = [
            f"{child.others()}{re.escape(char)}" for char, child in sorted(self.after.items()) if not (self.below and char == ".")
        ]
        return f"(?:{'|'.join([stranger, *longer, *([] if self.whole else [''])])})"


def read(directory: Path) -> Scope:
    """The scope of earlier runs; an empty one if there were none."""
    path = directory / FILE
    try:
        return Scope(tuple(path.read_text(encoding="ascii").split()))
    except FileNotFoundError:
        return Scope()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not ASCII at byte {error.start}; it lists sites, one host a line: mend or delete it") from None


def write(directory: Path, scope: Scope) -> None:
    from shepherd.store.disk import fsio

    directory.mkdir(parents=True, exist_ok=True)
    fsio.replace_file(directory / FILE, "".join(f"{place}\n" for place in scope.places).encode("ascii"))
