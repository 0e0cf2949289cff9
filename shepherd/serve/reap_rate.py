"""How fast the reap that runs is at the moment: what came between two looks at db/log/now.json, some seconds apart."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from shepherd.report.reports import number

WINDOW_S: Final = 30.0
LEAST_S: Final = 2.0  # apart; before that the average of the whole reap counts


@dataclass(frozen=True)
class _Look:
    time: float
    run: tuple[Any, ...]  # which program it was
    pages: float
    wire_bytes: float


class ReapSpeed:
    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()

    def of(self, notice: dict[str, Any] | None, now: float) -> dict[str, float] | None:
        """Pages and bytes in a second; None while nothing is reaped."""
        figures = (notice or {}).get("figures")
        if notice is None or not isinstance(figures, dict) or "wire_bytes" not in figures:
            self._looks.clear()
            return None
        look = _Look(
            now, (notice.get("pid"), notice.get("since")), number(figures.get("pages")), number(figures.get("wire_bytes"))
        )
        while self._looks and (self._looks[0].run != look.run or self._looks[0].time < now - WINDOW_S):
            self._looks.popleft()
        self._looks.append(look)
        first, seconds = self._looks[0], now - self._looks[0].time
        if seconds < LEAST_S:
            first, seconds = _Look(now, look.run, 0, 0), number(figures.get("seconds"))
        if seconds <= 0:
            return {"pages_per_s": 0.0, "bytes_per_s": 0.0}
        rates = ((look.pages - first.pages) / seconds, (look.wire_bytes - first.wire_bytes) / seconds)
        return {"pages_per_s": round(max(rates[0], 0), 3), "bytes_per_s": round(max(rates[1], 0), 1)}
