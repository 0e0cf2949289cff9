"""The zoo: every hostile server that the toy web has, in one table. Served only when it is asked for.

A test that is parametrised over EXHIBITS meets them all: each has a URL (`Exhibit.url`), and what may come of it (`verdicts`).
"""

from __future__ import annotations

from toyweb.zoo import codings as zoo_codings
from toyweb.zoo import pages as zoo_pages
from toyweb.zoo import traps as zoo_traps
from toyweb.zoo import wire as zoo_wire
from toyweb.zoo.exhibit import Exhibit

EXHIBITS: tuple[Exhibit, ...] = (
    *zoo_wire.EXHIBITS,
    *zoo_codings.EXHIBITS,
    *zoo_pages.EXHIBITS,
    *zoo_traps.EXHIBITS,
)

assert len({exhibit.name for exhibit in EXHIBITS}) == len(EXHIBITS), "two exhibits of one name"
