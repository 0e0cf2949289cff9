"""The guard: every way to spell an inner address, and the ranges an operator opens."""

from __future__ import annotations

import re

import pytest

from shepherd.errors import ConfigError
from shepherd.reaper.fetch.guard import Guard
from shepherd.reaper.fetch.machine import is_own

REFUSED = [
    "0.0.0.0", "0.1.2.3", "0.255.255.255",
    "10.0.0.0", "10.1.2.3", "10.255.255.255",
    "100.64.0.0", "100.100.100.200", "100.127.255.255",
    "127.0.0.0", "127.0.0.1", "127.0.1.1", "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1", "169.254.169.254", "169.254.170.2",
    "172.16.0.0", "172.16.0.1", "172.17.0.1", "172.31.255.255",
    "192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.170", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "192.88.99.2",
    "192.168.0.1", "192.168.1.1", "192.168.255.255",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
    "224.0.0.1", "224.0.0.251", "239.255.255.250", "232.1.2.3",
    "240.0.0.1", "250.1.2.3", "255.255.255.254", "255.255.255.255",
    "::", "::1", "0:0:0:0:0:0:0:1", "::2",
    "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:93.184.216.34", "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8",
    "::127.0.0.1", "::8.8.8.8", "::a9fe:a9fe",
    "64:ff9b::7f00:1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8",
    "64:ff9b:1::1", "64:ff9b:1:ffff::127.0.0.1", "64:ff9b:2::1",
    "100::1", "100:0:0:1::1",
    "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:5ef5:79fb:0:59c:80ff:fffe",
    "2001:2::1", "2001:10::1", "2001:20::1", "2001:1::1", "2001:db8::1", "2001:db8:85a3::8a2e:370:7334",
    "2002:7f00:1::", "2002:7f00:1::1", "2002:a00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1", "2002::",
    "3fff::1", "5f00::1",
    "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:10.0.0.1",
    "4000::1", "8000::1", "c000::1", "e000::1", "fe00::1",
    "fc00::1", "fd00::1", "fd00:ec2::254", "fdff:ffff::1",
    "fe80::1", "fe80::1%eth0", "2606:4700::1%lo", "febf::1", "fec0::1", "feff::1",
    "ff00::1", "ff02::1", "ff05::2", "ff0e::1",
]  # fmt: skip

SPELLINGS = ["0x7f.1", "0x7f000001", "2130706433", "017700000001", "127.1", "127.0.1", "0177.0.0.1", "127.0.0.01", "127.0.0.1 ",
             "127.0.0.1:80", "[::1]", "localhost", "", "①②⑦.0.0.1", "8.8.8.8/32", "1.1", "8.8.8.8\n"]  # fmt: skip

GLOBAL = [
    "1.1.1.1", "8.8.8.8", "9.9.9.9", "11.0.0.1", "93.184.216.34", "100.63.255.255",
    "100.128.0.1", "126.255.255.255", "128.0.0.1", "168.63.129.15", "169.253.1.1", "172.15.255.255",
    "172.32.0.1", "192.0.1.1", "192.0.3.1", "192.88.98.1", "192.167.1.1", "192.169.0.1",
    "198.17.1.1", "198.20.0.1", "223.255.255.254", "2000::1", "2001:200::1", "2001:4860:4860::8888",
    "2003::1", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "3ffe::1",
]  # fmt: skip


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_that_is_not_global_is_not_contacted(address: str) -> None:
    assert Guard([]).refuses(address)


@pytest.mark.parametrize("text", SPELLINGS)
def test_an_odd_spelling_is_not_an_address(text: str) -> None:
    assert Guard([]).refuses(text)


@pytest.mark.parametrize("address", GLOBAL)
def test_a_global_address_may_be_contacted(address: str) -> None:
    assert Guard([]).refuses(address) is None


def test_enough_targets_are_tried() -> None:
    assert len(set(REFUSED)) + len(SPELLINGS) >= 120


def test_allowed_range_allows_itself_and_nothing_else() -> None:
    guard = Guard(["127.0.0.0/8"])
    assert guard.refuses("127.3.2.1") is None
    for address in ("::1", "10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "128.0.0.1%lo"):
        assert guard.refuses(address), address


def test_a_transition_form_is_allowed_only_by_its_own_range() -> None:
    assert Guard(["64:ff9b::/96"]).refuses("64:ff9b::8.8.8.8") is None
    assert Guard(["8.8.8.8/32"]).refuses("64:ff9b::8.8.8.8")


def test_the_reason_names_the_address_inside() -> None:
    assert Guard([]).refuses("2002:7f00:1::") == "2002:7f00:1:: is 6to4, for 127.0.0.1"
    assert Guard([]).refuses("::ffff:10.0.0.1") == "::ffff:10.0.0.1 is IPv4-mapped, for 10.0.0.1"
    assert Guard([]).refuses("64:ff9b::7f00:1") == "64:ff9b::7f00:1 is NAT64, for 127.0.0.1"


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1"])
def test_own_address_is_known_in_every_spelling(address: str) -> None:
    assert is_own(address)
    assert not is_own("8.8.8.8") and not is_own("::ffff:8.8.8.8")


def test_a_mistyped_range_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=re.escape("127.0.0.1/8")):
        Guard(["127.0.0.1/8"])


def test_only_this_machine_is_contacted_without_a_contact_address() -> None:
    guard = Guard(["127.0.0.0/8", "10.0.0.0/8"], anonymous=True)
    assert guard.refuses("127.0.0.1") is None
    for address in ("10.0.0.1", "93.184.216.34", "2606:2800:220:1::1"):
        assert "no contact address" in (guard.refuses(address) or "")
