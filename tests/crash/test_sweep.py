"""kill -9 of every batch phase at each call that changes the disk: all of them with `bin/test --crash`, some of each phase by
default."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from shepherd.store.disk import failpoints
from tests.support import sampling
from tests.support.toy_farm import NOW, PHASES, Farm, contents, reference

SAMPLE = 1  # kills of a phase
DEEPEST = 40  # call of one kind that a sample begins with


@pytest.mark.parametrize("program", PHASES)
def test_phase_killed_at_any_call_is_as_if_it_had_not_run_or_had(
    before_each: dict[str, Farm], program: str, crash_sweep: bool, tmp_path: Path
) -> None:
    """One call after the other, until the phase completes; or by dice."""
    stage = before_each[program]
    name, expected = reference(stage, program, tmp_path)
    if crash_sweep:
        for op in failpoints.OPS:
            ordinal = 1
            while struck(stage, program, op, ordinal, tmp_path, name, expected):
                ordinal += 1
        return
    dice, kills = sampling.dice(program), 0
    for op in dice.sample(failpoints.OPS, len(failpoints.OPS)):
        ordinal = dice.randint(1, DEEPEST)
        while ordinal and not struck(stage, program, op, ordinal, tmp_path, name, expected):
            ordinal //= 2  # it has fewer calls of this kind
        kills += ordinal > 0
        if kills == SAMPLE:
            return
    pytest.fail(f"{program} makes calls of {kills} kinds only")


def struck(stage: Farm, program: str, op: str, ordinal: int, home: Path, name: str, expected: dict[str, bytes]) -> bool:
    """Kill the phase at this call and judge what is left; False if it came to its end before."""
    one = stage.copy(home / f"{op}-{ordinal}")
    done = one.run(program, "--now", str(NOW), fail=f"{op}::{ordinal}=kill")
    if done.returncode != 0:
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert one.furthest() in (stage.furthest(), name)
        one.must("shep-recover")
        assert one.run(program, "--now", str(NOW)).returncode in (0, 4)
        assert contents(one.db / "state" / name) == expected, (op, ordinal)
        one.must("shep-check")
    shutil.rmtree(one.db)
    return done.returncode != 0
