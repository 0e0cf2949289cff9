"""The pages that bench/reap serves to everybody alike: files of some 44 KB with about a hundred links, for any web server.

All hosts serve the same files. Page k links to its children in a tree, so that whoever starts at the root finds all of them; the
other links follow Zipf's law, some of them to other hosts. Made from a seed, so every run reads the same bytes.
"""

from __future__ import annotations

import random
from pathlib import Path

LINKS = 97
WORDS = 6_500  # some 44 KB with the markup
CHILDREN = 4
ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /search?\nAllow: /private/open/\nCrawl-delay: 0\n"
_SYLLABLES = [
    "ba",
    "de",
    "fi",
    "go",
    "hu",
    "ka",
    "le",
    "mi",
    "no",
    "pu",
    "ra",
    "se",
    "ti",
    "vo",
    "wu",
    "za",
    "che",
    "ler",
    "min",
    "tan",
]


def name_of(page: int) -> str:
    return "/" if page == 0 else f"/section{page % 7}/page-{page}.html"


def write_site(root: Path, pages: int, hosts: list[str], scheme: str) -> list[str]:
    """Write robots.txt and so many pages below `root`; their paths."""
    draw = random.Random(1)
    vocabulary = ["".join(draw.choice(_SYLLABLES) for _ in range(draw.randint(1, 4))) for _ in range(5_000)]
    (root / "robots.txt").parent.mkdir(parents=True, exist_ok=True)
    (root / "robots.txt").write_text(ROBOTS)
    for page in range(pages):
        path = root / (name_of(page).lstrip("/") or "index.html")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_html(page, pages, [f"{scheme}://{host}" for host in hosts], vocabulary, draw))
    return [name_of(page) for page in range(pages)]


def _html(page: int, pages: int, hosts: list[str], vocabulary: list[str], draw: random.Random) -> str:
    children = [name_of(n) for n in range(CHILDREN * page + 1, CHILDREN * page + CHILDREN + 1) if n < pages]
    others = [_popular(pages, hosts, draw) for _ in range(LINKS - len(children))]
    words = iter(draw.choices(vocabulary, k=WORDS))
    parts = [f'<a href="{href}">{next(words)} {next(words)}</a>' for href in children + others]
    text = [f"<p>{' '.join(next(words) for _ in range(60))} {link}.</p>" for link in parts]
    title = f"Page {page} of many"
    head = f'<meta charset="utf-8"><title>{title}</title><meta name="description" content="{next(words)}">'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><h1>{title}</h1>\n' + "\n".join(text) + "\n</body></html>\n"
    )


def _popular(pages: int, hosts: list[str], draw: random.Random) -> str:
    page = min(int(draw.paretovariate(0.6)) - 1, 10 * pages) % pages
    return (draw.choice(hosts) if draw.random() < 0.1 else "") + name_of(page)
