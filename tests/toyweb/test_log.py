"""The toy web's access log: what is written can be read, and its audit sees every contact that came too soon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shepherd.errors import UsageError
from toyweb.log import AccessEntry, Gap, audit, gaps, header_line, line, read_log
from toyweb.model import Model

MODEL = Model()
ENTRY = AccessEntry(100.0, 100.5, "127.1.0.1", 80, "http", "a.toy.example", "/", 200, 10, "shepherd/1", False)


def entries(*times: tuple[float, float], **fields: str) -> list[AccessEntry]:
    return [replace(ENTRY, start_s=start, end_s=end, **fields) for start, end in times]  # type: ignore[arg-type]


def test_a_line_survives_whatever_a_client_sends(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(header_line() + line(ENTRY) + line(replace(ENTRY, agent="evil\tagent\n", path="/\u2028", conditional=True)))
    first, second = read_log(path)
    assert first == ENTRY
    assert second == replace(ENTRY, agent="evil?agent?", path="/?", conditional=True)


@pytest.mark.parametrize("text", [b"", b"nonsense\n", header_line() + b"1.0\t2.0\n"])
def test_a_file_that_is_no_access_log_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(text)
    with pytest.raises(UsageError):
        read_log(path)


def test_audit_accepts_exactly_the_delay() -> None:
    assert audit(entries((1_790_000_000.1, 1_790_000_000.3), (1_790_000_000.5, 1_790_000_000.6)), {"127.1.0.1": 0.2}) == []


def test_audit_catches_a_gap_that_is_too_short() -> None:
    found = audit(entries((1.0, 1.1), (1.25, 1.3)), {"127.1.0.1": 0.2})
    assert [violation.whom for violation in found] == ["127.1.0.1", "http://a.toy.example"]
    assert "0.150000 s after the end" in str(found[0])
    assert audit(entries((1.0, 1.1), (1.25, 1.3)), {"127.1.0.1": 0.2}, tolerance_s=0.06) == []


def test_audit_catches_overlap_where_no_delay_is_due() -> None:
    assert audit(entries((1.0, 2.0), (1.5, 1.6)), lambda _name: 0.0)


def test_audit_catches_two_hosts_of_one_address() -> None:
    found = audit(entries((1.0, 1.1)) + entries((1.2, 1.3), host="b.toy.example"), {"127.1.0.1": 0.5})
    assert [violation.whom for violation in found] == ["127.1.0.1"]


def test_audit_applies_a_longer_delay_of_one_host() -> None:
    found = audit(entries((1.0, 1.1), (1.2, 1.3)), {"127.1.0.1": 0.1, "a.toy.example": 0.3})
    assert [violation.whom for violation in found] == ["http://a.toy.example"]


def test_audit_gives_each_slot_its_own_delay() -> None:
    two_hosts = [*entries((1.0, 1.2), (3.2, 3.3)), *entries((1.1, 1.5), (3.5, 3.6), host="b.toy.example")]
    assert audit(two_hosts, {"127.1.0.1": 2.0}, slots=2) == []
    assert audit([*two_hosts, *entries((3.55, 3.6), host="c.toy.example")], {"127.1.0.1": 2.0}, slots=2)


def test_gaps_report_the_smallest_and_the_overlaps() -> None:
    seen = [*entries((1.0, 1.5), (2.0, 5.0)), *entries((2.25, 2.5), (4.0, 4.25), host="b.toy.example")]
    servers, sites = gaps(seen)
    assert servers == [Gap("127.1.0.1", 4, -2.75, 2, 2)]
    assert sites == [Gap("http://a.toy.example", 2, 0.5, 0, 1), Gap("http://b.toy.example", 2, 1.5, 0, 1)]
    assert gaps(seen[:1])[0] == [Gap("127.1.0.1", 1, None, 0, 1)]


def test_two_schemes_of_a_host_are_two_sites_of_one_server() -> None:
    seen = [*entries((1.0, 1.5)), *entries((1.25, 1.5), scheme="https")]
    assert audit(seen, lambda _: 0.0, slots=2) == []
    assert [violation.whom for violation in audit(seen, lambda _: 0.0)] == ["127.1.0.1"]


def test_delays_of_a_model_are_known_for_every_address_and_host() -> None:
    delays = MODEL.delays_s(0.05)
    assert delays["site7.toy.example"] == delays["www.site7.toy.example"] == 0.1
    assert delays["127.1.0.40"] == delays["site0.toy.example"] == 0.05
