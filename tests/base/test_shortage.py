"""Whether the kernel has killed for memory is read from the counters that it has, wherever these are."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd import shortage


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only counter that there is, after one that is not there."""
    path = tmp_path / "memory.events"
    monkeypatch.setattr(shortage, "_own_counters", lambda: (str(tmp_path / "missing"), str(path)))
    return path


@pytest.mark.parametrize(
    "text", ["low 0\nhigh 0\nmax 7\noom 4\noom_kill 3\noom_group_kill 9\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"]
)
def test_kills_are_counted(counter: Path, text: str) -> None:
    counter.write_text(text)
    assert shortage.kills() == 3
    assert shortage.reason(2) == "because memory ran short: the kernel has counted it"
    assert "most likely" in shortage.reason(3) and "dmesg" in shortage.reason(3)


@pytest.mark.parametrize("text", ["", "oom_kill\n", "oom_kill many\n", "oom 4\n"])
def test_system_that_counts_nothing_is_believed_nothing(counter: Path, text: str) -> None:
    counter.write_text(text)
    assert shortage.kills() == 0 and "most likely" in shortage.reason(0)


def test_counter_of_this_system_can_be_read() -> None:
    assert shortage.kills() >= 0
