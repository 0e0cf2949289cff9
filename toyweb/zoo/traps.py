"""Exhibits that lead astray: redirects to where nobody should go, spaces without end, and hostile robots files and certificates.

What a gatherer makes of a single page of an endless space is simple: it stores it. What it must not do is to store them all,
or to let them take the place of others: that is for limits, and no single fetch shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from itertools import repeat

from toyweb.http import Step, ToyRequest
from toyweb.zoo.exhibit import (
    DENIED,
    MALFORMED,
    MOVES,
    REDIRECT,
    STORED,
    UNREACHED,
    WAITS,
    ZOO_DOMAIN,
    Exhibit,
    Play,
    Verdict,
    head,
    whole,
)

_INNER = {
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "loopback": "http://127.0.0.1:1/",
    "loopback-6": "http://[::1]/",
    "private": "http://10.0.0.1/",
    "private-192": "http://192.168.1.1/",
    "mapped": "http://[::ffff:169.254.169.254]/",
    "nat64": "http://[64:ff9b::a9fe:a9fe]/",
    "6to4": "http://[2002:7f00:1::]/",
    "link-local-6": "http://[fe80::1]/",
    "nowhere": "http://0.0.0.0/",
    "hexadecimal": "http://0x7f.1/",
    "number": "http://2130706433/",
    "octal": "http://017700000001/",
    "localhost": "http://localhost/",
    "file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:25/_HELO",
}


def _moved(location: str) -> bytes:
    return whole(b"Moved.\n", f"Location: {location}", status="302 Found", kind="text/plain")


def _to(location: str) -> Play:
    def play(_request: ToyRequest) -> Iterator[Step]:
        yield _moved(location)

    return play


def _nowhere(_request: ToyRequest) -> Iterator[Step]:
    yield whole(b"Gone somewhere.\n", status="302 Found", kind="text/plain")


def _to_self(request: ToyRequest) -> Iterator[Step]:
    yield _moved(request.target)


def _www_loop(request: ToyRequest) -> Iterator[Step]:
    bare = request.host.removeprefix("www.")
    yield _moved(f"http://{bare if request.host.startswith('www.') else 'www.' + bare}{request.target}")


def _scheme_loop(request: ToyRequest) -> Iterator[Step]:
    yield _moved(f"{'http' if request.scheme == 'https' else 'https'}://{request.host}{request.target}")


def _ever_on(request: ToyRequest) -> Iterator[Step]:
    number = re.search(r"[0-9]+", request.target)
    yield _moved(f"/hop/{int(number[0][:9]) + 1 if number else 1}")


def _page(title: str, *hrefs: str) -> bytes:
    anchors = "".join(f'<li><a href="{href}">{href}</a></li>\n' for href in hrefs)
    return whole(f"<html><head><title>{title}</title></head><body><ul>{anchors}</ul></body></html>\n".encode())


def _days(request: ToyRequest) -> Iterator[Step]:
    match = re.search(r"day=([0-9]{1,9})", request.target)
    day = int(match[1]) if match else 0
    yield _page(f"Day {day}", *(f"/page.html?day={day + step}" for step in (1, 7, 30, 365)))


def _sessions(request: ToyRequest) -> Iterator[Step]:
    """The same ten pages for ever, under a new session id for each visitor and link."""
    path = request.target.partition("?")[0]
    ids = (blake2b(f"{request.target}/{n}".encode(), digest_size=8).hexdigest() for n in range(10))
    yield _page(path, *(f"/page-{n}.html?sid={mark}" for n, mark in enumerate(ids)))


def _deeper(request: ToyRequest) -> Iterator[Step]:
    here = request.target.partition("?")[0].rpartition("/")[0]
    yield _page(here, *(f"{here}/{name}/page.html" for name in ("wool", "hay", "oats"))) if len(here) < 1900 else _page("Deep")


def _names(request: ToyRequest) -> Iterator[Step]:
    match = re.match(r"n([0-9]{1,9})\.", request.host)
    first = 1 + 3 * int(match[1]) if match else 0
    yield _page(request.host, *(f"http://n{first + n}.names-endless.{ZOO_DOMAIN}/page.html" for n in range(3)))


def _rules(text: bytes, *headers: str, kind: str = "text/plain") -> Play:
    def play(_request: ToyRequest) -> Iterator[Step]:
        yield whole(text, *headers, kind=kind)

    return play


def _endless_rules(_request: ToyRequest) -> Iterator[Step]:
    yield head("Connection: close", kind="text/plain") + b"User-agent: *\nDisallow: /private/\n"
    yield from repeat(b"Disallow: /elsewhere/and-elsewhere/\n" * 1000)


def _slow_rules(_request: ToyRequest) -> Iterator[Step]:
    yield head("Content-Length: 100000", kind="text/plain")
    while True:
        yield 0.25
        yield b"#"


def _stall(_request: ToyRequest) -> Iterator[Step]:
    yield from repeat(10.0)


def _astray(name: str, about: str, play: Play, *verdicts: Verdict, leads_to: str = "", endless_names: bool = False) -> Exhibit:
    return Exhibit(name, about, play, frozenset(verdicts), leads_to=leads_to, endless_names=endless_names)


def _ruled(name: str, about: str, play: Play, *verdicts: Verdict, crawl_delay_s: float = 0.0) -> Exhibit:
    return Exhibit(f"robots-{name}", about, play, frozenset(verdicts), rules=True, crawl_delay_s=crawl_delay_s)


def _signed(name: str, about: str) -> Exhibit:
    return Exhibit(
        f"tls-{name}", about, _rules(b"Nobody should have come here.\n"), frozenset((UNREACHED, WAITS)), scheme="https"
    )


_STARS = b"User-agent: *\nDisallow: /" + b"*a" * 200 + b"$\n" + b"Disallow: /" + b"*p*" * 1000 + b"z\n"
_LONG_LINE = b"Disallow: /" + b"x" * 400_000 + b"\nUser-agent: *\nDisallow: /\n"
_HOUR = b"User-agent: *\nCrawl-delay: 3600\n"
_ABSURD = b"User-agent: *\nCrawl-delay: 1e30\nCrawl-delay: -5\nCrawl-delay: nan\n"
_PLAIN = b"User-agent: *\n" + b"Disallow: /x\n" * 10

EXHIBITS: tuple[Exhibit, ...] = (
    *(
        _astray(f"redirect-{name}", f"redirects to {where}", _to(where), REDIRECT, MALFORMED, leads_to=where)
        for name, where in _INNER.items()
    ),
    _astray("redirect-self", "redirects to itself", _to_self, REDIRECT, MOVES),
    _astray("redirect-www-loop", "x to www.x to x", _www_loop, REDIRECT, MOVES),
    _astray("redirect-scheme-loop", "http to https to http", _scheme_loop, REDIRECT, MOVES),
    _astray("redirect-endless", "redirects ever on", _ever_on, REDIRECT),
    _astray("redirect-without-location", "a redirect to nowhere", _nowhere, MALFORMED),
    _astray("redirect-long", "redirects to a URL of 30,000 bytes", _to("/" + "x" * 30_000), REDIRECT, MALFORMED),
    _astray("redirect-control", "redirects to a URL with control bytes", _to("/a\x01\x1b[2Jb"), REDIRECT, MALFORMED),
    _astray("calendar-endless", "a day links to days to come", _days, STORED),
    _astray("sessions-endless", "ten pages with ever new session ids", _sessions, STORED),
    _astray("paths-endless", "every directory has directories", _deeper, STORED),
    _astray("names-endless", "every name links to new names of the same address", _names, STORED, endless_names=True),
    _ruled("stars", "patterns that cost a careless matcher a lifetime", _rules(_STARS), STORED),
    _ruled("endless", "rules without end", _endless_rules, STORED),
    _ruled("slow", "rules that come a byte now and then", _slow_rules, WAITS),
    _ruled("silent", "rules that never come", _stall, WAITS),
    _ruled("redirect-loop", "rules that are always elsewhere", _to_self, STORED, WAITS),
    _ruled("redirect-inner", "rules at an inner address", _to("http://169.254.169.254/robots.txt"), STORED, WAITS),
    _ruled("binary", "rules that are noise", _rules(bytes(range(256)) * 400, kind="application/octet-stream"), STORED),
    _ruled("long-line", "one line of 400 KB, then a rule", _rules(_LONG_LINE), DENIED),
    _ruled("crawl-delay-long", "asks for an hour between pages", _rules(_HOUR), WAITS, crawl_delay_s=3600),
    _ruled("crawl-delay-absurd", "asks for 10^30 seconds, and less than none", _rules(_ABSURD), STORED, WAITS),
    _ruled("coding-unknown", "rules in a coding that nobody knows", _rules(_PLAIN, "Content-Encoding: rot13"), STORED, WAITS),
    _signed("expired", "a certificate of the past"),
    _signed("wrong-name", "a certificate for another name"),
    _signed("untrusted", "a certificate that nobody trusts"),
)
