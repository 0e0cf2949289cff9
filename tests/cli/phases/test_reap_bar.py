"""The bar of shep-reap on a terminal of 80 columns."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
from shepherd.cli.phases import reap
from shepherd.console import common
from shepherd.console.progress import Progress
from shepherd.dispatch.statistics import Figures

before, total, pages, wire, errors, active = (int(text) for text in sys.argv[1:])
with common.progress(total, "reap", "page", narrow=True) as bar:
    bar.start_t -= 36_000  # ten hours ago
    watch = reap.ReapProgress(Progress(bar, None))
    watch.resumed(before)
    watch.settled(pages)
    watch.show(Figures(pages, wire, errors, active, 36_000.0))
"""


def drawn(before: int, *figures: int) -> list[str]:
    """What a terminal was shown, one text for each time."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-c", PROGRAM, str(before), *map(str, figures)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=theirs, check=True)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    return [text for text in re.split(r"[\r\n]", shown) if text.strip()]


@pytest.mark.parametrize(
    ("figures", "behind"),
    [
        ((10_000, 4_500, 182_400_000, 53, 26), "page/s, 182 MB, 53 err, 26 srv"),
        ((10_000_000, 4_500_000, 9_999 * 10**6, 9_999, 9_999), "page/s, 9999 MB, 9999 err, 9999 srv"),
    ],
)
def test_bar_of_a_reap_fits_the_terminal_without_cutting_a_word(figures: tuple[int, ...], behind: str) -> None:
    last = drawn(0, *figures)[-1]
    assert last.endswith(behind) and len(last) <= 80, last


def test_bar_of_a_resumed_reap_begins_where_it_stopped() -> None:
    shown = drawn(4_000, 10_000, 500, 0, 0, 1)
    assert any("4.00k/10.0k" in text for text in shown), shown
    assert "4.50k/10.0k" in shown[-1], shown
    assert " 0.01page/s" in shown[-1], shown  # 500 pages in ten hours; what was there before took another run
