"""kill -9 of every batch phase at each call that changes the disk: all of them with `bin/test --crash`, a few calls of some
phases by default."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from shepherd.store import failpoints
from tests.crash.farm import NOW, SOME, Farm, contents, reference

SAMPLE_STEP = 89


@pytest.mark.parametrize("program", SOME)
def test_phase_killed_at_any_call_is_as_if_it_had_not_run_or_had(
    before_each: dict[str, Farm], program: str, crash_sweep: bool, tmp_path: Path
) -> None:
    """One call after the other, until the phase completes."""
    stage = before_each[program]
    name, expected = reference(stage, program, tmp_path)
    for op in failpoints.OPS:
        for ordinal in range(1, 10_000, 1 if crash_sweep else SAMPLE_STEP):
            one = stage.copy(tmp_path / f"{op}-{ordinal}")
            done = one.run(program, "--now", str(NOW), fail=f"{op}::{ordinal}=kill")
            if done.returncode == 0:
                break  # it has fewer calls of this kind
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert one.furthest() in (stage.furthest(), name)
            one.must("shep-recover")
            assert one.run(program, "--now", str(NOW)).returncode in (0, 4)
            assert contents(one.db / "state" / name) == expected, (op, ordinal)
            one.must("shep-check")
            shutil.rmtree(one.db)
