"""What the filter says of sites and sections: the deciding line, the columns, and many sites at once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from shepherd.cycle.common.site_table import FILTERED, settings_of
from shepherd.errors import FilterError
from shepherd.filters import SiteSettings, parse_filter
from shepherd.filters.settings import group_number
from shepherd.formats import tables
from shepherd.formats.check import check64
from shepherd.sections import Section, section_name, section_number
from shepherd.urls import qkey_of_address

NONE = tables.NO_LIMIT


def test_first_matching_set_line_decides_each_setting_by_itself() -> None:
    rules = parse_filter(
        """set min_delay 2.5 host slow.example
        set min_delay 30 glob https://* http://*:8080
        set soft_limit 10 host example
        set hard_limit 0 glob http://x.slow.example
        """
    )
    assert rules.site_settings("http://x.slow.example") == SiteSettings(2_500, 10, 0)
    assert rules.site_settings("https://other.example") == SiteSettings(30_000, 10, NONE)
    assert rules.site_settings("http://a.org:8080") == SiteSettings(30_000, NONE, NONE)
    assert rules.site_settings("http://a.org") == SiteSettings()


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ("set min_delay 0.25", "delay_ms", 250),
        ("set slots 4", "slots", 4),
        ("set soft_limit 0", "soft_limit", 0),
        ("set hard_limit 999999999", "hard_limit", 999_999_999),
        ("set fresh_limit 50", "fresh_limit", 50),
        ("set section pdf", "section", Section.PDF),
        ("set section 200", "section", 200),
        ("set select_bonus -32768", "select_bonus", -32_768),
        ("set queue_bonus +7", "queue_bonus", 7),
        ("set refresh_boost 255", "refresh_boost", 255),
        ("set robots ignore", "policy", 1),
        ("set robots obey", "policy", 0),
        ("group a.b-c", "group", check64(b"a.b-c") | 1 << 63),
    ],
)
def test_each_setting_fills_its_column_and_no_other(line: str, column: str, value: int) -> None:
    rules = parse_filter(f"{line} host a.example")
    (told,) = rules.set_lines("https://www.a.example:81")
    assert (told.line, told.text, told.value) == (1, f"{line} host a.example", value)
    assert rules.site_settings("http://a.example") == dataclasses.replace(SiteSettings(), **{column: value})
    columns = settings_of([b"http://b.example", b"http://a.example"], rules)
    assert columns[column].tolist()[1] == value
    for name, values in columns.items():
        assert values.dtype == np.dtype(tables.SITES[name])
        assert values.tolist()[0] == getattr(SiteSettings(), name)


def test_columns_without_a_line_are_the_defaults_of_the_format() -> None:
    columns = settings_of(iter([b"http://a.example", b"http://b.example"]), parse_filter("reject host a.example"))
    limits = ("delay_ms", "soft_limit", "hard_limit", "fresh_limit")
    assert {name: values.tolist() for name, values in columns.items()} == {
        name: [NONE if name in limits else 0] * 2 for name in FILTERED
    }
    assert set(columns) <= set(tables.SITES)


def test_robots_are_ignored_only_by_a_line_that_says_so() -> None:
    rules = parse_filter("set robots obey host intern.example\nset robots ignore host example")
    names = [b"http://intern.example", b"http://a.example", b"http://a.org"]
    assert settings_of(names, rules)["policy"].tolist() == [0, 1, 0]


def test_set_lines_do_not_judge_urls() -> None:
    assert parse_filter("set soft_limit 1 host a.example\nreject ext gif").judge("http://a.example/").line == 0


def test_server_counts_where_it_is_known_and_in_the_order_of_lines() -> None:
    rules = parse_filter("set slots 2 host a.example\nset slots 3 address 10.0.0.0/8\ngroup g address 10.0.0.0/8 2001:db8::1")
    names = [b"http://a.example", b"http://b.example", b"http://10.0.0.1", b"http://c.example", b"http://[2001:db8::1]"]
    ten, none = qkey_of_address("10.0.0.9"), tables.qkey_unresolved(5)
    qkeys = np.array([ten, ten, none, qkey_of_address("2001:db8::1"), none], np.uint64)
    assert settings_of(names, rules)["slots"].tolist() == [2, 0, 3, 0, 0]
    columns = settings_of(names, rules, qkeys)
    assert columns["slots"].tolist() == [2, 3, 3, 0, 0]
    assert columns["group"].tolist() == [group_number("g")] * 5
    for name, qkey, slots in zip(names, qkeys.tolist(), columns["slots"].tolist(), strict=True):
        assert rules.site_settings(name.decode(), qkey).slots == slots


def test_no_sites_make_empty_columns() -> None:
    for text in ("", "set slots 2 address 10.0.0.0/8"):
        columns = settings_of([], parse_filter(text), np.zeros(0, np.uint64))
        assert {len(values) for values in columns.values()} == {0}


# --- sections ---------------------------------------------------------------------------------------------------


def test_section_of_a_url_goes_before_that_of_its_site() -> None:
    rules = parse_filter(
        """section none prefix http://a.example/plain/
        section pdf ext pdf
        section 40 glob *://*/forum/*
        section feed regex [./](rss|atom)
        set section html host a.example
        set section image address 10.0.0.0/8
        """
    )
    found = [
        ("http://a.example/plain/x.pdf", Section.NONE, 1),
        ("http://b.example/x.pdf?y", Section.PDF, 2),
        ("http://b.example/forum/1", 40, 3),
        ("http://b.example/x.rss", Section.FEED, 4),
        ("http://a.example/", Section.HTML, 5),
        ("http://10.0.0.1/", Section.IMAGE, 6),
        ("http://b.example/", Section.NONE, 0),
    ]
    for _twice in range(2):
        for href, section, line in found:
            assert (rules.section_of(href).section, rules.section_of(href).line) == (section, line)
    assert rules.section_of("http://b.example/", qkey_of_address("10.0.0.1")).section == Section.IMAGE
    assert parse_filter("").section_of("http://a.example/").section == Section.NONE


def test_section_has_a_name_that_reads_back() -> None:
    for number in [*Section, 32, 255]:
        assert section_number(section_name(number)) == number
    assert section_name(30) == "30"
    for name in ("30", "256", "0", "HTML", "²²²", "", "1e2"):
        with pytest.raises(ValueError, match="is not a section"):
            section_number(name)


def test_setting_without_a_column_changes_no_column_and_is_listed() -> None:
    filters = parse_filter("set requisites yes host a.example\nset slots 3 host a.example\nset requisites no host example")
    assert filters.site_settings("http://a.example") == SiteSettings(slots=3)
    assert [(line.name, line.value_text) for line in filters.set_lines("http://b.example")] == [("requisites", "no")]
    told = [filters.requisites_of(f"http://{host}/x") for host in ("a.example", "b.example", "other.org")]
    assert told == [True, False, None]
    with pytest.raises(FilterError, match="yes or no"):
        parse_filter("set requisites perhaps host a.example")
