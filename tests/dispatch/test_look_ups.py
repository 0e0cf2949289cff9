"""How often names may be looked up, by a clock of the test's own, and what a page of made-up names does to their name servers."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shepherd.dispatch.look_ups import MOST_MS, ROW, SPACING_MS, LookUps
from shepherd.dispatch.sites import Site
from shepherd.formats.tables import qkey_unresolved
from shepherd.urls import qkey_of_address
from tests.support.dns import SERVFAIL, dns_beside
from tests.support.origin import ok
from tests.support.reaping import planned

FAR = 10_000
KNOWN = qkey_of_address("127.0.0.1")


def site(number: int, name: str, qkey: int = 0) -> Site:
    return Site(number, number, f"http://{name}", qkey=qkey)


def below(domain: str, count: int, qkey: int = 0) -> list[Site]:
    return [site(n, f"r{n}.{domain}", qkey) for n in range(count)]


def look_ups(per_s: float = 0, per_domain: int = 0) -> LookUps:
    return LookUps(per_s, per_domain, lambda host: host != "table.example", now_ms=0)


def run(made: LookUps, has_address: bool, until_ms: int, step_ms: int = 10) -> list[str]:
    """All that is looked up until then, answered at once."""
    names = []
    for now_ms in range(0, until_ms, step_ms):
        for token, begun in made.take(FAR, now_ms):
            names.append(begun.name)
            assert made.answered(token, has_address) is begun
    return names


def test_row_of_names_without_address_ends_the_look_ups_of_their_domain() -> None:
    made = look_ups()
    made.add([*below("victim.example", 500), *below("other.example", 5)])
    names = run(made, has_address=False, until_ms=100_000)
    assert sum(name.endswith("victim.example") for name in names) == ROW
    assert sum(name.endswith("other.example") for name in names) == 5
    assert len(made.take_refused()) == 500 - ROW and not made.waiting and not made.under_way


def test_row_holds_also_while_nothing_is_answered() -> None:
    made = look_ups()
    made.add(below("victim.example", 500))
    begun = [pair for now_ms in range(0, 30_000, 100) for pair in made.take(FAR, now_ms)]
    assert len(begun) == ROW
    assert made.wait_ms(30_000) is None
    for token, _ in begun[:5]:
        made.answered(token, has_address=False)
    assert made.take(FAR, 40_000) == []
    made.answered(begun[5][0], has_address=True)
    assert len(made.take(FAR, 50_000)) == 6


def test_names_with_addresses_are_looked_up_at_a_rate_up_to_their_number() -> None:
    made = look_ups(per_domain=100)
    made.add(below("farm.example", 300))
    begun = [now_ms for now_ms in range(0, 60_000, 10) for token, _ in made.take(FAR, now_ms) if made.answered(token, True)]
    assert len(begun) == 100 and len(made.take_refused()) == 200
    for start_ms in begun:
        count = sum(start_ms <= at_ms < start_ms + 1_000 for at_ms in begun)
        assert count <= ROW + 1 + 1_000 // SPACING_MS


def test_site_that_had_an_address_is_looked_up_beside_made_up_names() -> None:
    made = look_ups(per_domain=50)
    made.add([*below("shared.example", 200), site(900, "old.shared.example", KNOWN)])
    made.add([site(901, "new.shared.example", qkey_unresolved(901))])
    names = run(made, has_address=False, until_ms=60_000)
    assert "http://old.shared.example" in names and "http://new.shared.example" not in names
    assert len(names) == ROW + 1


def test_rate_over_all_domains_is_kept() -> None:
    made = look_ups(per_s=10)
    made.add(site(n, f"d{n}.example") for n in range(100))
    counts = [len(made.take(FAR, now_ms)) for now_ms in range(0, 5_000, 100)]
    assert counts[0] == 10 and max(counts[1:]) == 1 and sum(counts) == 10 + 49
    assert made.wait_ms(4_900) == 100


def test_what_needs_no_name_server_waits_for_nothing() -> None:
    made = look_ups(per_s=1, per_domain=1)
    made.add(Site(n, n, f"http://table.example:{n + 1}") for n in range(500))
    assert len(made.take(FAR, 0)) == 500


def test_lost_and_late_look_ups_are_no_misses() -> None:
    made = look_ups()
    made.add(below("victim.example", ROW))
    tokens = [token for token, _ in made.take(FAR, 0)]
    made.reaper_lost(tokens[:5])
    assert len(made.take(FAR, 10_000)) == 5
    assert len(made.expire(MOST_MS)) == ROW - 5 and made.under_way == 5
    assert made.answered(tokens[10], has_address=False) is None


@given(st.lists(st.booleans(), max_size=300), st.integers(1, 40))
def test_never_more_than_a_row_is_asked_after_the_last_address(answers: list[bool], at_once: int) -> None:
    made, misses = look_ups(), 0
    made.add(below("victim.example", 400))
    queue: list[int] = []
    for number, has_address in enumerate(answers):
        queue += [token for token, _ in made.take(at_once, number * 1_000)]
        if queue:
            made.answered(queue.pop(0), has_address)
            misses = 0 if has_address else misses + 1
            assert misses <= ROW


# --- the real programs --------------------------------------------------------------------------------------------


def test_page_of_made_up_names_makes_a_row_of_queries_and_is_kept(tmp_path: Path) -> None:
    """As a page would have them: each of another host below one domain that belongs to somebody else."""
    names = {f"r{n}.victim.example" for n in range(150)}
    with dns_beside({}) as (dns, nameserver):
        dns.codes |= {name: SERVFAIL for name in names if name < "r5"}
        urls = [f"http://{name}/" for name in names]
        with planned(tmp_path, {"a.example/": ok(b"<html>")}, ["http://a.example/", *urls], []) as made:
            toml = made.path / "cf" / "shepherd.toml"
            toml.write_text(toml.read_text().replace("[network]", f'[network]\nnameservers = ["{nameserver}"]'))
            made.must("shep-reap", "-q")
            asked = {name for name, _kind in dns.asked}
            assert len(asked) == ROW and asked < names
            made.must("shep-cork", "-q")
            reasons = [row["reason"] for row in made.journal() if row["kind"] == "qkey"]
            assert reasons.count("look-ups") == len(names) - ROW
            fates = {url: fate for url, fate in made.fates().items() if not url.endswith("/robots.txt")}
            assert fates.pop("http://a.example/")[0] == "gathered"
            assert {url for url, (type_, _) in fates.items() if type_ == "error"} == {f"http://{name}/" for name in asked}
            assert made.run("shep-plan").returncode == 4  # what was learnt is kept: nothing is due
            assert "its domain has too many names to look up" in made.must("shep", "explain", f"http://{min(names - asked)}/")
