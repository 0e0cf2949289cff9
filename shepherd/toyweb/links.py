"""The links on a page: its children in the tree, then links drawn with Zipf's law, within the site and to others.

A link may name a site by either of its names, and may carry a tracking parameter (`utm_source`) that a filter is to strip:
both lead to the same document.
"""

from __future__ import annotations

from dataclasses import dataclass

from shepherd.toyweb.draw import Draw
from shepherd.toyweb.model import Model
from shepherd.toyweb.plan import HTML_KINDS, Kind, Page, Ref
from shepherd.toyweb.text import heading

_CAMPAIGNS = ("newsletter", "noticeboard", "market-day")


@dataclass(frozen=True)
class Link:
    """An anchor: `ref` is where it leads, `href` how it is written."""

    ref: Ref
    href: str
    text: str
    nofollow: bool = False


def links(model: Model, page: Page) -> tuple[list[Link], list[Link]]:
    """The links to a page's children, and its other links."""
    if page.kind not in HTML_KINDS:
        return [], []
    draw = Draw(model.seed, "links", *page.ref)
    children = [_link(model, draw, page, ref, plain=True) for ref in page.children]
    if page.kind is Kind.CALENDAR:
        return children, []
    site = model.sites[page.ref.site]
    refs = [Ref(site.number, "/")]
    if site.popular:
        refs += [Ref(site.number, draw.zipf(site.popular)) for _ in range(2 + draw.below(6))]
    for _ in range(draw.below(5)):
        other = draw.zipf(model.by_popularity)
        refs.append(Ref(other.number, draw.zipf(other.popular)))
    others = [_link(model, draw, page, ref, plain=False) for ref in dict.fromkeys(refs) if ref != page.ref]
    return children, others


def title(model: Model, ref: Ref) -> str:
    """The title of the page at a place, also where there is none."""
    site = model.sites[ref.site]
    if ref.path == "/":
        return site.title
    if ref.path.startswith("/calendar/"):
        return f"Calendar of {ref.path.removeprefix('/calendar/').replace('/', '-')}"
    if ref.path.startswith("/directory/"):
        return f"Farms we know, page {ref.path.removeprefix('/directory/')}"
    return heading(Draw(model.seed, "title", *ref), ref.path)


def _link(model: Model, draw: Draw, page: Page, ref: Ref, *, plain: bool) -> Link:
    target = model.page(ref)
    path = ref.path
    if not plain and draw.one_in(12):
        path += f"{'&' if '?' in path else '?'}utm_source={draw.pick(_CAMPAIGNS)}"
    if ref.site == page.ref.site and not draw.one_in(8):
        href = path
    else:
        href = f"http://{model.sites[ref.site].host(www=draw.one_in(4))}{path}"
    nofollow = target is not None and not target.linked and page.kind is not Kind.NOFOLLOW
    return Link(ref, href, title(model, ref), nofollow)
