"""What a journal's contacts and settled records came to, in the words of a reap's report. Counts only, so always the same."""

from __future__ import annotations

import numpy as np

from shepherd.arrays.keys import with_flag
from shepherd.formats import kinds
from shepherd.formats.journal import FAILED
from shepherd.formats.tables import Array, JournalFlag, Kind, Records


def outcomes(journal: Records) -> dict[str, dict[str, int]]:
    """Contacts by HTTP status (`none` = no answer), and failures by class; those that there were none of are left out."""
    contacted = with_flag(journal["flags"], JournalFlag.CONTACTED) & np.isin(journal["kind"], (Kind.PAGE, Kind.ROBOTS))
    failed = ~with_flag(journal["flags"], JournalFlag.HOP) & np.isin(journal["result"], list(FAILED))
    statuses, reasons = _counts(journal["status"][contacted]), _counts(journal["reason"][failed])
    errors = {kinds.REASON.text(reason): count for reason, count in reasons.items()}
    told = {
        "statuses": {str(status or "none"): count for status, count in statuses.items()},
        "errors": dict(sorted(errors.items())),
    }
    return {name: counts for name, counts in told.items() if counts}


def _counts(values: Array) -> dict[int, int]:
    counts = np.bincount(values)
    return {int(value): int(counts[value]) for value in np.flatnonzero(counts)}
