"""Reading the toy web as its visitors do: answers by URL, and the links that a reader of their bytes alone would follow."""

from __future__ import annotations

import codecs
import gzip
import html
import re
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

from toyweb.answer import Desk
from toyweb.http import ToyAnswer, ToyRequest
from toyweb.plan import Via


def get(desk: Desk, url: str, **headers: str) -> ToyAnswer:
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return desk.answer(ToyRequest("GET", target, {"host": parts.netloc, **given}, parts.scheme))


def header(answer: ToyAnswer, name: str) -> str:
    return dict(answer.headers).get(name, "")


def text_of(answer: ToyAnswer) -> str:
    """Decoded as a reader must who knows of marks, headers and meta elements, and else guesses UTF-8."""
    for mark, charset in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if answer.body.startswith(mark):
            return answer.body[len(mark) :].decode(charset)
    _, _, said = header(answer, "Content-Type").partition("charset=")
    meta = re.search(rb'charset="?([a-zA-Z0-9_-]+)', answer.body[:1024])
    return answer.body.decode(said or (meta[1].decode() if meta else "utf-8"), "replace")


def followed(url: str, answer: ToyAnswer, ways: frozenset[Via]) -> list[str]:
    """The links that a reader of the bytes alone would follow, absolute."""
    kind = header(answer, "Content-Type").partition(";")[0]
    if kind in ("application/xml", "application/gzip") and Via.SITEMAP in ways:
        body = gzip.decompress(answer.body) if kind == "application/gzip" else answer.body
        return [str(loc.text) for loc in ElementTree.fromstring(body).iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")]
    if kind == "application/rss+xml" and Via.FEED in ways:
        return [str(link.text) for link in ElementTree.fromstring(answer.body).iter("link")]
    if kind == "application/atom+xml" and Via.FEED in ways:
        return [link.attrib["href"] for link in ElementTree.fromstring(answer.body).iter("{http://www.w3.org/2005/Atom}link")]
    if kind == "text/css" and Via.REQUISITE in ways:
        return [urljoin(url, found) for found in re.findall(r'url\("([^"]*)"\)', answer.body.decode())]
    text = text_of(answer) if kind == "text/html" else ""
    if url.endswith("/sitemap.txt"):
        return answer.body.decode().split()
    if '<meta name="robots" content="nofollow">' in text or "nofollow" in header(answer, "X-Robots-Tag"):
        return []
    base = re.search(r'<base href="([^"]*)">', text)
    found = re.findall(r'<a href="([^"]*)">', text)
    found += re.findall(r'<(?:frame|iframe) src="([^"]*)"', text) + re.findall(r'<area [^>]*href="([^"]*)"', text)
    found += re.findall(r'content="5; url=([^"]*)"', text) + re.findall(r'<link rel="(?:next|canonical)" href="([^"]*)"', text)
    if Via.REQUISITE in ways:
        found += re.findall(r'<(?:img|script) src="([^"]*)"', text) + re.findall(r'<link rel="stylesheet" href="([^"]*)"', text)
    return [urljoin(urljoin(url, base[1]) if base else url, html.unescape(href)) for href in found]
