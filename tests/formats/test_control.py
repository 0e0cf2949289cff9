"""Controls that are not what `pack` writes: damage is distinct from another version, and a number is a number."""

from __future__ import annotations

import pytest

from shepherd.errors import Corruption, OldFormat, UsageError
from shepherd.formats.check import check64
from shepherd.formats.control import Control, FileEntry, parse_control

WHOLE = Control(
    phase="closed",
    state=3,
    parent="000003.reap",
    now=1_790_000_000,
    key=bytes(range(16)),
    filter=7,
    equiv=8,
    unsure=9,
    segments=10,
    contribs=11,
    applied=("1790000000123-host-77-1",),
    files={"index/norm": FileEntry(80, 12)},
)


def altered(old: str, new: str) -> bytes:
    """Other text, and the check of it."""
    data = WHOLE.pack()
    assert data.count(old.encode()) == 1
    body = data.replace(old.encode(), new.encode()).rpartition(b"check ")[0]
    return body + f"check {check64(body):016x}\n".encode()


def test_control_reads_back() -> None:
    assert parse_control(WHOLE.pack(), "control") == WHOLE


@pytest.mark.parametrize("digit", b"012356789")
def test_damaged_version_digit_is_damage_and_no_other_version(digit: int) -> None:
    data = WHOLE.pack().replace(b"shepherd-control 4", b"shepherd-control " + bytes([digit]))
    with pytest.raises(Corruption, match="damaged or cut off"):
        parse_control(data, "control")


def test_other_version_under_a_valid_check_is_named() -> None:
    with pytest.raises(UsageError, match="use a newer Shepherd"):
        parse_control(altered("shepherd-control 4", "shepherd-control 5"), "control")
    with pytest.raises(OldFormat):
        parse_control(altered("shepherd-control 4", "shepherd-control 1"), "control")


@pytest.mark.parametrize("first", ["shepherd-control 0", "shepherd-control x", "shepherd 3"])
def test_control_without_a_version_is_corruption(first: str) -> None:
    with pytest.raises(Corruption, match="no version"):
        parse_control(altered("shepherd-control 4", first), "control")


@pytest.mark.parametrize("number", ["-3", "+3", "1_0", "0x3", "", "3.0", "9" * 19])
@pytest.mark.parametrize("line", ["state 3", "now 1790000000", "unsure 9", "segments 10", "contribs 11", "file index/norm 80"])
def test_what_is_not_a_number_is_corruption_under_a_valid_check(line: str, number: str) -> None:
    with pytest.raises(Corruption, match="is not a number"):
        parse_control(altered(line, f"{line.rpartition(' ')[0]} {number}"), "control")


@pytest.mark.parametrize("check", ["-000000000000007", "7", "0x00000000000007", "000000000000_007", "000000000000000G"])
@pytest.mark.parametrize("line", [f"filter {7:016x}", f"equiv {8:016x}", f"norm 80 {12:016x}"])
def test_what_is_not_a_check64_is_corruption_under_a_valid_check(line: str, check: str) -> None:
    with pytest.raises(Corruption, match="is not a check64"):
        parse_control(altered(line, f"{line.rpartition(' ')[0]} {check}"), "control")
