"""The zoo: every hostile server that the toy web has, in one table. Served only when it is asked for."""

from __future__ import annotations

from shepherd.toyweb.exhibit import Exhibit

EXHIBITS: tuple[Exhibit, ...] = ()
