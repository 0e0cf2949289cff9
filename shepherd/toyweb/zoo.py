"""The zoo: every hostile server that the toy web has, in one table. Served only when it is asked for.

A test that is parametrised over EXHIBITS meets them all: each has a URL (`Exhibit.url`), and what may come of it (`verdicts`).
"""

from __future__ import annotations

from shepherd.toyweb import zoo_codings, zoo_pages, zoo_traps, zoo_wire
from shepherd.toyweb.exhibit import Exhibit

EXHIBITS: tuple[Exhibit, ...] = (
    *zoo_wire.EXHIBITS,
    *zoo_codings.EXHIBITS,
    *zoo_pages.EXHIBITS,
    *zoo_traps.EXHIBITS,
)

assert len({exhibit.name for exhibit in EXHIBITS}) == len(EXHIBITS), "two exhibits of one name"
