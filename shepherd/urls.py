"""URLs, the sites and paths they fall into, and the footprints by which everything else knows them.

Invariants: `href == site + path`; an href is ASCII and has no fragment, no userinfo and no empty query; `parse(parse(x).href)`
equals `parse(x)`. `batch` gives for the links of a page exactly what `join` and `Footprints.of` give for each, only faster.
Where this differs from the web platform, docs/decisions.md says why.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import can_ada
import mmh3
import numpy as np
import numpy.typing as npt

from shepherd.errors import BadUrl
from shepherd.expressions import UrlForm

U64: TypeAlias = npt.NDArray[np.uint64]
Transform: TypeAlias = Callable[[str], str | None]

MAX_URL_BYTES: Final = 2_000
KEY_BYTES: Final = 16
ROOT_PATH: Final = "/"
ROBOTS_PATH: Final = "/robots.txt"
OWN_PATHS: Final = (ROOT_PATH, ROBOTS_PATH)  # of these every site has its own, whatever it is equivalent to
SITE_CACHE: Final = 65_536  # sites whose footprints are remembered: about 20 MB when full

_CHECK_SEED: Final = 0x5348
_KIND_IPV4: Final = 0x04
_KIND_IPV6: Final = 0x06
_SLASH, _QUESTION = b"/?"
_SCHEMES: Final = ("http://", "https://")
PAST_SCHEME: Final = 8  # the host has at least one byte, so the first slash from here on begins the path under both schemes

# Bytes that stay as they are in the path and in the query (`?` begins it, `#` begins what is cut off). Wider is possible, this is
# what nearly all links are made of. `%` is not among them, because `%2e` is a dot.
_PLAIN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&()*+,;=:@/?#"

# Bytes of a path and query that parsing leaves as they are, and where it may not do so.
_PATH_BYTES: Final = bytes(range(0x21, 0x7F)).translate(None, b"""\\"#<>`{}^|'""")


@dataclass(frozen=True)
class Url:
    """A URL that we would gather, in its one normalised spelling."""

    href: str
    site: str  # scheme://host[:port]
    path: str  # pathname + search
    norm: str  # host[:port] of the normalised site


def parse(text: str, *, strict: bool = False) -> Url:
    """The URL that `text` spells, or BadUrl with the reason.

    `strict` is for what an operator types or inserts: a control character or blank is then an error, not a thing to strip.
    """
    if strict and (match := UrlForm.CONTROL_OR_BLANK.search(text)):
        raise BadUrl(f"control character or blank at column {match.start() + 1}; write it percent-encoded or leave it out")
    try:
        return _url(can_ada.parse(_scalar_values(text)).href)
    except ValueError:
        raise BadUrl(_why_unparsable(text)) from None


def join(base: str, link: str) -> Url:
    """The URL that `link` means on a page whose base URL is `base`, or BadUrl with the reason."""
    try:
        return _url((_base(base) + _scalar_values(link)).href)
    except ValueError:
        raise BadUrl(_why_unparsable(link, base)) from None


def norm_of(site: str) -> str:
    """The normalised site of `scheme://host[:port]`: no scheme, and no `www.` while a dot remains in the rest."""
    host = site[site.index("://") + 3 :]
    if host.startswith("www.") and "." in host[4:]:
        return host[4:]
    return host


def is_site(name: bytes) -> bool:
    """Whether this is `scheme://host[:port]` as parsing spells it."""
    try:
        return parse(name.decode("ascii")).site.encode() == name
    except (UnicodeDecodeError, BadUrl):
        return False


def are_paths(together: bytes, lengths: npt.NDArray[Any]) -> bool:
    """Whether these texts, one behind the other, are each the path and query of a URL as parsing spells it.

    They are looked at all at once, because of many few are odd and none is false; only then each by itself.
    """
    if not len(lengths):
        return not together
    data, ends = np.frombuffer(together, np.uint8), np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths
    if ends[-1] != len(data) or not lengths.all() or lengths.max() > MAX_URL_BYTES or (data[starts] != _SLASH).any():
        return False
    is_odd = any(dot in together for dot in (b"/.", b"%2e", b"%2E")) or together.translate(None, _PATH_BYTES)
    if not is_odd and not (data[ends - 1] == _QUESTION).any():
        return True
    return all(_is_path(together[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True))


def qkey_of_address(address: str) -> int:
    """The queue key of an IPv4 or IPv6 address, as docs/formats.md defines it."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:
        return _KIND_IPV4 << 56 | int(parsed)
    low, _ = mmh3.hash64(parsed.packed, _CHECK_SEED, signed=False)
    return _KIND_IPV6 << 56 | low & (1 << 56) - 1


def is_address_of(text: str, qkey: int) -> bool:
    """Whether it is the address with this queue key, as it is spelt here: without a scope, which could be any text."""
    try:
        return qkey_of_address(text) == qkey and str(ipaddress.ip_address(text)) == text and "%" not in text
    except ValueError:
        return False


class _Site(NamedTuple):
    name: str
    norm_digest: bytes
    site_digest: bytes


class Footprints:
    """Footprints under one database's key.

    Remembers those of the sites it met, because the links of many pages lead to few sites: let one object serve many pages.
    """

    def __init__(self, key: bytes, norm: Callable[[str], str] | None = None) -> None:
        """`norm` gives the normalised site of a site; by default it is the implicit rule alone."""
        self._norm = norm or norm_of
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of the footprints has {KEY_BYTES} bytes, not {len(key)}")
        self._keyed = hashlib.blake2b(digest_size=8, key=key)
        self._sites: dict[str, _Site] = {}

    @cached_property
    def root(self) -> int:
        """The half of ROOT_PATH."""
        return self.half(ROOT_PATH)

    @cached_property
    def robots(self) -> int:
        """The half of ROBOTS_PATH."""
        return self.half(ROBOTS_PATH)

    def half(self, text: str) -> int:
        """64 bits of a footprint: of a site, a normalised site or a path."""
        return int.from_bytes(self._digests([text])[0], "little")

    def halves(self, texts: Iterable[bytes]) -> bytes:
        """`half` of many texts in ASCII, 8 bytes each as in a column."""
        copy, digests = self._keyed.copy, []
        for text in texts:
            hasher = copy()
            hasher.update(text)
            digests.append(hasher.digest())
        return b"".join(digests)

    def norm(self, site: str) -> int:
        """Of the normalised site of `scheme://host[:port]`."""
        return self.half(self._norm(site))

    def of(self, url: Url) -> tuple[int, int, int]:
        """Footprints of the normalised site, of the path and of the site."""
        return self.norm(url.site), self.half(url.path), self.half(url.site)

    def _digests(self, texts: list[str]) -> list[bytes]:
        digests = []
        copy = self._keyed.copy  # two thirds of the price of constructing a keyed object
        for text in texts:
            hasher = copy()
            hasher.update(text.encode())
            digests.append(hasher.digest())
        return digests

    def _learn(self, href: str) -> _Site | None:
        """The site of an href, from now on remembered; None if it is not one that we would gather."""
        name = href[: href.find("/", PAST_SCHEME)]
        if not href.startswith(_SCHEMES) or "@" in name:
            return None
        if len(self._sites) >= SITE_CACHE:
            self._sites.clear()
        site = self._sites[name] = _Site(name, *self._digests([self._norm(name), name]))
        return site


@dataclass(frozen=True)
class Links:
    """The distinct URLs that a page links to, in the order of their first appearance; all fields are equally long."""

    hrefs: list[str]
    sites: list[str]
    paths: list[str]
    norm: U64
    path: U64
    site: U64

    def __len__(self) -> int:
        return len(self.hrefs)


def batch(base: str, raw_links: Iterable[str], footprints: Footprints, transform: Transform | None = None) -> Links:
    """The links of one page, joined, normalised and footprinted; what `join` refuses is left out.

    `transform` gets each href and returns what takes its place, or None to leave it out. It must return a normalised href of the
    same site, as Filter.clean does.
    """
    base_url = _base(base)
    find_site = footprints._sites.get
    base_site = find_site(base_url.href[: base_url.href.find("/", PAST_SCHEME)]) or footprints._learn(base_url.href)
    site_of_href: dict[str, _Site] = {}
    for link in dict.fromkeys(raw_links):
        # A link of plain bytes without dot segments, on this site or one we know, is its own normal form, and most links are
        # such: testing for it is cheaper than joining. docs/decisions.md has the figures.
        site = None
        if "/." not in link and link.isascii() and not link.encode().translate(None, _PLAIN):
            if link[:1] == "/":
                if link[:2] != "//" and base_site:
                    site, href = base_site, base_site.name + link
            elif (slash := link.find("/", PAST_SCHEME)) > 0:
                site, href = find_site(link[:slash]), link
        if site is None:
            try:
                href = (base_url + link).href
            except ValueError:
                continue
            except TypeError:  # a lone surrogate
                href = _join_scalar_values(base_url, link)
            site = find_site(href[: href.find("/", PAST_SCHEME)]) or footprints._learn(href)
            if site is None:
                continue
        if "#" in href:
            href = href.partition("#")[0]
        if href[-1] == "?":
            href = _without_empty_query(href)
        if len(href) > MAX_URL_BYTES:
            continue
        if transform is not None:
            changed = transform(href)
            if changed is None:
                continue
            href = changed
        site_of_href[href] = site
    names, norm_digests, site_digests = zip(*site_of_href.values(), strict=True) if site_of_href else ((), (), ())
    paths = [href[len(name) :] for href, name in zip(site_of_href, names, strict=True)]
    return Links(
        hrefs=list(site_of_href),
        sites=list(names),
        paths=paths,
        norm=_array(norm_digests),
        path=_array(footprints._digests(paths)),
        site=_array(site_digests),
    )


def _array(digests: Iterable[bytes]) -> U64:
    return np.frombuffer(b"".join(digests), "<u8")


def _base(text: str) -> can_ada.URL:
    """A base may be any URL of any scheme: what matters is where its links lead."""
    try:
        return can_ada.parse(_scalar_values(text))
    except ValueError:
        raise BadUrl(f"the base URL cannot be used: {_why_unparsable(text)}") from None


def _join_scalar_values(base: can_ada.URL, link: str) -> str:
    """The href, or nothing where `join` would refuse."""
    try:
        return str((base + _scalar_values(link)).href)
    except ValueError:
        return ""


def _scalar_values(text: str) -> str:
    """What the web platform makes of any string first: a lone surrogate, which no encoding can carry, becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _url(href: str) -> Url:
    href = _without_empty_query(href.partition("#")[0])
    if not href.startswith(_SCHEMES):
        raise BadUrl(_other_scheme(href.partition(":")[0]))
    site = href[: href.index("/", PAST_SCHEME)]
    if "@" in site:
        raise BadUrl("userinfo before the host; leave out the name and password")
    if len(href) > MAX_URL_BYTES:
        raise BadUrl(f"{len(href):,} bytes long; at most {MAX_URL_BYTES:,} are allowed")
    return Url(href, site, href[len(site) :], norm_of(site))


def _is_path(text: bytes) -> bool:
    """Whether a text that begins with a slash is what parsing makes of it."""
    if not UrlForm.ODD.search(text):
        return True
    try:
        return parse(f"http://a{text.decode('ascii')}").path.encode() == text
    except (UnicodeDecodeError, BadUrl):
        return False


def _without_empty_query(href: str) -> str:
    """A `?` with nothing behind it goes, so that href and (site, path) distinguish the same URLs."""
    return href[:-1] if href.find("?") == len(href) - 1 else href


def _other_scheme(name: str) -> str:
    scheme = name if len(name) <= 30 else f"{name[:30]}..."
    return f"scheme {scheme}: only http and https are gathered"


def _why_unparsable(text: str, base: str = "") -> str:
    """can_ada says only that it failed; this says where a person should look."""
    match = UrlForm.SCHEME.match(text.strip())
    if not match and not base:
        return "not an absolute URL; it must begin with http:// or https://"
    if not match and not base.startswith(_SCHEMES):
        return "a relative link, but the base URL is not http or https"
    if match and match[1].lower() not in ("http", "https"):
        return _other_scheme(match[1].lower())
    authority = UrlForm.AUTHORITY.match(text.strip())
    if authority and authority[1].rpartition("@")[2].partition(":")[0] == "":
        return "empty host"
    return "the host or port is not valid"
