"""Registrable domains: where the names of one owner begin."""

from __future__ import annotations

import pytest

from shepherd.domains import registrable


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("example.com", "example.com"),
        ("r7.www.example.com", "example.com"),
        ("r7.example.co.uk", "example.co.uk"),
        ("www.city.kobe.jp", "city.kobe.jp"),  # an exception to a rule for all below kobe.jp
        ("a.shop.other.kobe.jp", "shop.other.kobe.jp"),
        ("r7.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("tenant.github.io", "github.io"),
        ("r7.victim.example", "victim.example"),  # a suffix that the list does not know is one label
        ("r7.example.com.", "example.com"),
        ("co.uk", "co.uk"),
        ("localhost", "localhost"),
        ("192.0.2.7", "192.0.2.7"),
        ("[2001:db8::7]", "[2001:db8::7]"),
        ("a..example.com", "a..example.com"),
        ("", ""),
    ],
)
def test_names_of_one_owner_have_one_domain(host: str, domain: str) -> None:
    assert registrable(host) == domain
