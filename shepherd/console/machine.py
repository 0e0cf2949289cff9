"""What makes numpy quicker in a batch program. It changes no result, and must be done before numpy is imported.

Measured at 10 million rows, all phases together: 13.5 s of CPU without, 11.8 with the first, 11.4 with the second
(docs/decisions.md).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 1 << 30  # free memory that is not given back
LARGE_BYTES: Final = 1 << 25  # what is larger is mapped, and given back at once; glibc allows no more
FEATURES: Final = "NPY_DISABLE_CPU_FEATURES"
AVX512: Final = "X86_V4 AVX512_ICL AVX512_SPR"
ZEN4: Final = ("AuthenticAMD", "cpu family\t: 25\n", " avx512f ")


def tune() -> None:
    _keep_memory()
    _sort_narrowly(Path("/proc/cpuinfo"))


def _keep_memory() -> None:
    """Columns of a partition come and go: memory that was given back is cleared by the kernel each time it is taken again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # only glibc has it
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def _sort_narrowly(cpuinfo: Path) -> None:
    """On AMD's Zen 4 numpy sorts 500,000 numbers in 25 ms with AVX-512 and in 6 ms with AVX2: storing what a mask leaves of a
    vector, of which its sort does most, is slow there. Whoever has set the variable knows better.
    """
    try:
        with cpuinfo.open() as file:
            first = file.read(4096)
    except OSError:
        return
    if FEATURES not in os.environ and all(sign in first for sign in ZEN4):
        os.environ[FEATURES] = AVX512
