"""The links on a page: its children in the tree, then links drawn with Zipf's law, within the site and to others.

A link may name a site by either of its names, some also by either scheme, and may carry a tracking parameter (`utm_source`)
that a filter is to strip: all of them lead to the same document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from toyweb.draw import Draw
from toyweb.model import Model
from toyweb.plan import HTML_KINDS, PageKind, Ref, Secure, ToyPage, Via
from toyweb.text import heading

_CAMPAIGNS = ("newsletter", "noticeboard", "market-day")


@dataclass(frozen=True)
class Link:
    """An anchor: `ref` is where it leads, `href` how it is written."""

    ref: Ref
    href: str
    text: str
    nofollow: bool = False


def links(model: Model, page: ToyPage) -> tuple[list[Link], list[Link]]:
    """The links to a page's children, and its other links."""
    if page.kind not in HTML_KINDS:
        return [], []
    draw = Draw(model.seed, "links", *page.ref)
    children = [_child(model, draw, page, ref) for ref in page.children]
    if page.kind is PageKind.CALENDAR:
        return children, []
    site = model.sites[page.ref.site]
    refs = [Ref(site.number, "/")]
    if site.popular:
        refs += [Ref(site.number, draw.zipf(site.popular)) for _ in range(3 + draw.below(12))]
    for _ in range(draw.below(6)):
        other = model.sites[draw.zipf(model.ranking)]
        refs.append(Ref(other.number, draw.zipf(other.popular)))
    others = [_other(model, draw, page, ref) for ref in dict.fromkeys(refs) if ref != page.ref]
    return children, others


def title(model: Model, ref: Ref) -> str:
    """The title of the page at a place, also where there is none."""
    return model.sites[ref.site].title if ref.path == "/" else _title(model.seed, *ref)


@lru_cache(maxsize=65536)
def _title(seed: int, site: int, path: str) -> str:
    if path.startswith("/calendar/"):
        return f"Calendar of {path.removeprefix('/calendar/').replace('/', '-')}"
    if path.startswith("/directory/"):
        return f"Farms we know, page {path.removeprefix('/directory/')}"
    return heading(Draw(seed, "title", site, path), path)


def _child(model: Model, draw: Draw, page: ToyPage, ref: Ref) -> Link:
    """Within a site always a path: so a copy of the site leads to its own pages."""
    href = ref.path if ref.site == page.ref.site else _absolute(model, draw, ref, ref.path)
    target = model.page(ref)
    hidden = target is not None and target.via is Via.NOFOLLOW and page.kind is not PageKind.NOFOLLOW
    return Link(ref, href, title(model, ref), hidden)


def _other(model: Model, draw: Draw, page: ToyPage, ref: Ref) -> Link:
    path = ref.path
    if draw.one_in(12):
        path += f"{'&' if '?' in path else '?'}utm_source={draw.pick(_CAMPAIGNS)}"
    within = ref.site == page.ref.site and not draw.one_in(8)
    return Link(ref, path if within else _absolute(model, draw, ref, path), title(model, ref))


def _absolute(model: Model, draw: Draw, ref: Ref, path: str) -> str:
    site = model.sites[ref.site]
    scheme = "https" if site.secure is not Secure.SAME and draw.one_in(2) else "http"
    return f"{scheme}://{site.host(www=draw.one_in(4))}{path}"
