"""Select against a plain walk over sorted rows, and its laws."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

from hypothesis import given, settings

from shepherd.formats.tables import Flag, Reason, RowType
from tests.cycle.select.select_model import EXEMPT, Model
from tests.cycle.select.select_rows import STATE, Sample, run, samples
from tests.support import sampling
from tests.support.random_rows import Row

GroupOf = Callable[[int], int | None]

HARD = {Reason.SITE_HARD, Reason.SERVER_HARD, Reason.SECTION_HARD}
GONE = (RowType.FORGOTTEN,)
NOT_AWAKE = (RowType.FORGOTTEN, RowType.SLEEPING)


def model_of(sample: Sample) -> Model:
    return Model(sample.index, sample.sites, sample.servers, sample.config, sample.speed)


@settings(max_examples=sampling.examples(150), deadline=None)
@given(samples())
def test_select_agrees_with_a_plain_walk(sample: Sample) -> None:
    assert run(sample) == model_of(sample).rows(STATE)


@settings(max_examples=sampling.EXAMPLES // 6, deadline=None)  # a pool of processes for each
@given(samples())
def test_neither_partitions_nor_processes_matter(sample: Sample) -> None:
    assert run(sample, partition_rows=1) == run(sample, partition_rows=1_000) == run(sample, jobs=3, partition_rows=2)


@settings(max_examples=sampling.examples(60), deadline=None)
@given(samples(fresh_before=False))
def test_select_of_select_changes_nothing(sample: Sample) -> None:
    once = run(sample)
    assert run(dataclasses.replace(sample, index=once)) == once


@settings(max_examples=sampling.examples(60), deadline=None)
@given(samples())
def test_no_limit_is_exceeded(sample: Sample) -> None:
    """Counted are the rows that are not exempt, against the room that the exempt ones leave."""
    model, after = model_of(sample), run(sample)
    select, factor = sample.config.select, sample.config.select.hard_factor
    pages = [n for n, row in enumerate(after) if not row["flags"] & Flag.ROBOTS or row["flags"] & EXEMPT]
    groups: dict[str, tuple[GroupOf, Callable[[int], tuple[int, int]]]] = {
        "site": (lambda n: after[n]["norm"], model.site_limits),
        "server": (model.server, lambda g: (model.server_limit(g), model.server_limit(g) * factor)),
        "section": (lambda n: after[n]["section"], lambda g: (model.section_limit(g), model.section_limit(g) * factor)),
        "all": (lambda n: 0, lambda g: (model.most(), model.most() + select.sleeping)),
    }
    for name, (group_of, limits) in groups.items():
        exempt, awake, living = Counter[int](), Counter[int](), Counter[int]()
        for n in pages:
            group = group_of(n)
            if group is not None and after[n]["type"] not in GONE:
                is_exempt = bool(after[n]["flags"] & EXEMPT)
                exempt[group] += is_exempt
                awake[group] += not is_exempt and after[n]["type"] not in NOT_AWAKE
                living[group] += not is_exempt
        for group in living:
            soft, hard = limits(group)
            assert awake[group] <= max(soft - exempt[group], 0), name
            assert living[group] <= max(hard - exempt[group], 0) + (name == "all") * exempt[group], name
    if select.space_bytes:
        taken = [n for n in pages if after[n]["type"] not in NOT_AWAKE]
        exempt_bytes = sum(model.cost(n) for n in taken if after[n]["flags"] & EXEMPT)
        assert sum(map(model.cost, taken)) <= max(select.space_bytes, exempt_bytes)
    for norm in {row["norm"] for row in after}:
        new = [n for n in pages if after[n]["norm"] == norm and model.is_new(n) and not after[n]["flags"] & EXEMPT]
        let_in = sum(after[n]["type"] not in NOT_AWAKE for n in new)
        assert let_in <= model.of_site(norm, "fresh_limit", select.fresh)


@settings(max_examples=sampling.examples(60), deadline=None)
@given(samples())
def test_no_better_row_goes_for_a_worse_of_its_site_server_or_section(sample: Sample) -> None:
    """If a limit struck a row, no worse row of the same group has passed that limit."""
    model, after = model_of(sample), run(sample)

    def order(n: int) -> tuple[int, int]:
        return -model.key(n), n

    def rank(row: Row) -> int:
        return {RowType.FORGOTTEN: 2, RowType.SLEEPING: 1}.get(RowType(row["type"]), 0)

    groups: dict[Reason, GroupOf] = {
        Reason.SITE_SOFT: lambda n: after[n]["norm"],
        Reason.SITE_HARD: lambda n: after[n]["norm"],
        Reason.SERVER_SOFT: model.server,
        Reason.SERVER_HARD: model.server,
        Reason.SECTION_SOFT: lambda n: after[n]["section"],
        Reason.SECTION_HARD: lambda n: after[n]["section"],
        Reason.BELOW_BAR: lambda n: 0,
        Reason.SPACE: lambda n: 0,
    }
    common = [n for n in model.living if n not in model.exempt | model.robots | model.unreferenced]
    struck = [n for n in common if rank(after[n]) and after[n]["reason"] in groups]
    for n in struck:
        group_of = groups[Reason(after[n]["reason"])]
        for other in common:
            if order(other) > order(n) and group_of(other) == group_of(n):
                assert rank(after[other]) >= rank(after[n])


def test_every_limit_strikes_in_the_samples() -> None:
    """A limit that the random databases never reach would not be tested."""
    seen: Counter[int] = Counter()

    @settings(max_examples=100, database=None, derandomize=True)
    @given(samples())
    def look(sample: Sample) -> None:
        after = model_of(sample).rows(STATE)
        seen.update(row["reason"] for row in after if row["type"] in NOT_AWAKE and row["touched"] == STATE)

    look()
    softs = {Reason.SITE_SOFT, Reason.SERVER_SOFT, Reason.SECTION_SOFT, Reason.FRESH, Reason.SPACE, Reason.BELOW_BAR}
    assert all(seen[reason] > 5 for reason in softs | HARD | {Reason.BELOW_SLEEP, Reason.UNREFERENCED}), seen
