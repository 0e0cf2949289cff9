"""Which of several rows of one document stands for all of them: the representative.

Root pages are kept for every site of a class, so one document may have several rows. Readers get one of them, and rank gives its
rank to all. Both must mean the same one, and it must stay the same one for as long as it can: a reader who keeps documents by
footprint sees another one as one document gone and another added. So it depends on what the rows are, and on no weight.
"""

from __future__ import annotations

import numpy as np

from shepherd.arrays.keys import run_ends, run_starts, with_flag
from shepherd.formats.tables import I64, Columns, Flag, RowType


def representatives(index: Columns, rows: I64) -> I64:
    """For each of some rows of the index, in order and without robots files, the one of them that stands for its document.

    A page stands before a redirect, and that before what was not gathered; then the first does, by the footprint of the site.
    """
    starts = run_starts(index["norm"].take(rows), index["path"].take(rows))
    shared = np.flatnonzero(~(starts & run_ends(starts)))  # few
    representative, some, run = rows.copy(), rows[shared], np.cumsum(starts)[shared]
    gathered = index["type"][some] == RowType.GATHERED
    worse = np.where(gathered, np.where(with_flag(index["flags"][some], Flag.REDIRECT), 1, 0), 2)
    order = np.lexsort((some, worse, run))
    first = run_starts(run[order])
    representative[shared[order]] = some[order][first][np.cumsum(first) - 1]
    return representative
