"""Patterns: what may stand behind each KIND, in the spelling that normalised URLs have, and as an expression of RE2."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import can_ada
import re2  # type: ignore[import-untyped]

COUNT_KINDS: Final = ("repeats", "depth", "length")  # one number, no pattern
URL_KINDS: Final = ("host", "glob", "prefix", "ext", "regex", "address", *COUNT_KINDS)
SECTION_KINDS: Final = ("host", "glob", "prefix", "ext", "regex")
SITE_KINDS: Final = ("host", "glob", "address")
SEARCHED: Final = ("glob", "prefix", "regex")  # those that RE2 looks for

SET_BYTES: Final = 64 << 20  # for a set of patterns: 20,000 globs fit
MOST_COUNT: Final = 9_999  # more than any URL has bytes
FAILED: Final = "RE2 has failed: not even the expression that matches everything was found"

_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]\\*.][^/?#@:\[\]\\*]*")
_EXT: Final = re.compile(r"\.?([A-Za-z0-9_~+-]+(?:\.[A-Za-z0-9_~+-]+)?)")
_COUNT: Final = re.compile(r"[0-9]{1,4}")
_BEGINNINGS: Final = {"glob": "one that begins with http://, https:// or *", "prefix": "one that begins with http:// or https://"}
_AUTHORITY: Final = re.compile(r"https?://[^/*?]*")


@dataclass(frozen=True)
class Pattern:
    kind: str
    text: str  # in the spelling that normalised URLs have
    rank: int  # of its line among those that compete


def normal_pattern(kind: str, word: str) -> str:
    """The pattern that `word` spells; ValueError says what is allowed instead."""
    if kind == "host":
        return _normal_host(word)
    if kind == "address":
        return _normal_range(word)
    if kind in COUNT_KINDS:
        return _normal_count(kind, word)
    if kind == "ext":
        ext = _EXT.fullmatch(word)
        if ext is None:
            raise ValueError("is not an extension; allowed is one such as pdf, .pdf or tar.gz")
        return ext[1].lower()
    if kind == "regex":
        try:
            re2.compile(word.encode(), re2_options())
        except re2.error as error:
            raise ValueError(f"is not an expression of RE2: {error.args[0].decode()}") from None
    elif not _can_match(kind, word):
        raise ValueError(f"matches no URL; allowed is {_BEGINNINGS[kind]}, in ASCII, with the host in lower case")
    return word


def _normal_host(word: str) -> str:
    try:
        if _HOST.fullmatch(word):
            return str(can_ada.parse(f"http://{word}/").hostname).removesuffix(".")
    except ValueError:
        pass
    raise ValueError("is not a host; allowed is a name such as example.org, without scheme, port, path or *")


def _normal_range(word: str) -> str:
    try:
        network = ipaddress.ip_network(word, strict=False)
    except ValueError:
        raise ValueError("is not an address range; allowed is one such as 192.0.2.0/24, 192.0.2.7 or 2001:db8::/32") from None
    address = word.partition("/")[0]
    if int(ipaddress.ip_address(address)) != int(network.network_address):
        raise ValueError(f"is an address inside a range; allowed is the range, {network}, or the address alone, {address}")
    return str(network)


def _normal_count(kind: str, word: str) -> str:
    least = 2 if kind == "repeats" else 0
    if not _COUNT.fullmatch(word) or int(word) < least:
        raise ValueError(f"does not fit; allowed is a whole number from {least} to {MOST_COUNT}")
    return str(int(word))


def _can_match(kind: str, word: str) -> bool:
    """Whether a glob or prefix can match any normalised URL: if not, it is surely not what was meant."""
    fixed = re.split(r"[*?]", word)[0] if kind == "glob" else word
    authority = _AUTHORITY.match(word)
    begins = any(scheme.startswith(fixed[: len(scheme)]) for scheme in ("http://", "https://"))
    return begins and word.isascii() and (authority is None or authority[0] == authority[0].lower())


# --- RE2 --------------------------------------------------------------------------------------------------------


class SearchSet:
    """Many patterns looked for in a single pass over a text, however many there are."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        """`patterns` in ascending rank; re2.error if they need more than SET_BYTES."""
        self._set = re2.Set.SearchSet(re2_options())
        for pattern in patterns:
            self._set.Add(_expression(pattern))
        # The last expression matches everything. RE2 would answer "no match" if it ever failed: here that is loud, not an accept.
        self._set.Add(b"")
        self._set.Compile()
        # Positions of the patterns that bytes match, and one past the last. Every link asks it, so no Python function is between.
        self.match: Callable[[bytes], list[int]] = self._set._set.Match
        self._size = len(patterns)

    def positions(self, text: str) -> list[int]:
        """The positions of all that match."""
        matched = self.match(text.encode())
        if not matched:
            raise RuntimeError(FAILED)
        return sorted(position for position in matched if position < self._size)


def glob_matcher(word: str) -> Callable[[bytes], bool]:
    """Whether a URL matches a glob, for millions of them; ValueError where none can, and says what is allowed."""
    match = SearchSet([Pattern("glob", normal_pattern("glob", word), 0)]).match

    def matches(url: bytes) -> bool:
        matched = match(url)
        if not matched:
            raise RuntimeError(FAILED)
        return len(matched) > 1

    return matches


def _expression(pattern: Pattern) -> bytes:
    if pattern.kind == "regex":
        return pattern.text.encode()
    if pattern.kind == "prefix":
        return rb"\A" + _escape(pattern.text)
    wild = {"*": b".*", "?": b"."}
    return rb"\A" + b"".join(wild.get(part) or _escape(part) for part in re.split(r"([*?])", pattern.text)) + rb"\z"


def _escape(text: str) -> bytes:
    return bytes(re2.escape(text.encode()))


def re2_options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # URLs are ASCII, and byte patterns make smaller automata
    options.log_errors = False
    options.never_capture = True
    options.max_mem = SET_BYTES
    return options
