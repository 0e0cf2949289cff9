"""Counts as text: a label, a number, its share and a bar in each line, all within 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

WIDTH = 80
SHORTEST, LONGEST = 10, 40


def bars(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    """The lines of one histogram under its title; none where nothing was counted. The largest count has the whole bar, and what
    is there at all has some of it."""
    total, most = sum(counts.values()), max(counts.values(), default=0)
    if not total:
        return
    labels, figures = max(map(len, counts)), max(len(f"{count:,}") for count in counts.values())
    length = min(max(WIDTH - labels - figures - len("      100.0%  "), SHORTEST), LONGEST)
    yield title
    for label, count in counts.items():
        bar = "#" * -(-count * length // most)
        yield f"  {label:<{labels}}  {count:>{figures},}  {count / total:>6.1%}  {bar}".rstrip()
