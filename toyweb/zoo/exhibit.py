"""An exhibit of the zoo: a hostile server under a name of its own, and what a good gatherer makes of it.

Each exhibit has its own site on its own server, so that none spoils another, or the ordinary web. `table.py` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shepherd.formats.tables import Reason, Result
from toyweb import robots as rules
from toyweb.http import Step, ToyAnswer, ToyRequest
from toyweb.plan import DOMAIN

ZOO_DOMAIN = f"zoo.{DOMAIN}"
PAGE = "/page.html"
NAMES_LISTED = 200  # of endless names: those that stand in the static table

Verdict = tuple[Result, Reason]
Play = Callable[[ToyRequest], Iterator[Step]]

STORED: Verdict = (Result.STORED, Reason.GATHERED)
REDIRECT: Verdict = (Result.REDIRECT, Reason.REDIRECT)
MALFORMED: Verdict = (Result.HARD, Reason.MALFORMED)
DECODING: Verdict = (Result.HARD, Reason.DECODING)
REFUSED: Verdict = (Result.HARD, Reason.CLIENT_ERROR)
UNREACHED: Verdict = (Result.CONNECTION, Reason.CONNECTION)
LATE: Verdict = (Result.SOFT, Reason.DEADLINE)
SLOW: Verdict = (Result.SOFT, Reason.TOO_SLOW)
MOVES: Verdict = (Result.HARD, Reason.MOVES)
WAITS: Verdict = (Result.DENIED, Reason.ROBOTS_UNREACHABLE)  # not asked for: not yet, or not until there are rules
DENIED: Verdict = (Result.DENIED, Reason.ROBOTS_DENIED)


@dataclass(frozen=True)
class Exhibit:
    """`name` is its defect. `play` answers every request to its site but robots.txt, or that alone where `rules` is true.

    `verdicts` are what may come of a fetch of its URL; where `rules` is true, of the harmless page behind that robots.txt.
    `cut`: what is stored must be marked as truncated. `leads_to` is a URL that it sends the client to, and that must never
    be asked for.
    """

    name: str
    about: str
    play: Play
    verdicts: frozenset[Verdict]
    path: str = PAGE
    cut: bool = False
    leads_to: str = ""
    rules: bool = False
    scheme: str = "http"
    crawl_delay_s: float = 0.0  # what its robots.txt asks for
    endless_names: bool = False  # every name below its own is its own, too

    @property
    def host(self) -> str:
        return f"{self.name}.{ZOO_DOMAIN}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"

    def hosts(self) -> Iterator[str]:
        """The names of the static table."""
        yield self.host
        yield f"www.{self.host}"
        if self.endless_names:
            yield from (f"n{number}.{self.host}" for number in range(NAMES_LISTED))

    def has(self, host: str) -> bool:
        if host == self.host or host == f"www.{self.host}":
            return True
        return self.endless_names and re.fullmatch(rf"[a-z0-9.-]+\.{re.escape(self.host)}", host) is not None

    def answer(self, request: ToyRequest) -> ToyAnswer:
        """The script that plays for a request. Its status is for the log, as far as it can be known beforehand."""
        if (request.target == rules.PATH) == self.rules:
            return ToyAnswer(200, close=True, lasting=False, script=lambda: self.play(request))
        if self.rules:
            return ToyAnswer(
                200, (("Content-Type", "text/html; charset=utf-8"),), b"<html><title>Harmless</title><p>A page.</p></html>\n"
            )
        return ToyAnswer(200, (("Content-Type", "text/plain"),), b"User-agent: *\nDisallow:\n")


def head(*headers: str, status: str = "200 OK", kind: str = "text/html; charset=utf-8") -> bytes:
    """The beginning of an answer, blank line included."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def whole(body: bytes, *headers: str, status: str = "200 OK", kind: str = "text/html; charset=utf-8") -> bytes:
    """A complete answer."""
    return head(*headers, f"Content-Length: {len(body)}", status=status, kind=kind) + body
