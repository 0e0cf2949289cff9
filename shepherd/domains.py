"""The registrable domain of a host: what somebody has registered, and everything below it.

Whoever registers a name makes as many names below it as they like, at no cost. So limits that are to bind one owner count by
this, never by the host. The rules are those of the public suffix list under which registries sell names. Its other part does not
count, the suffixes under which companies let others have names (github.io): such names cost nothing either, and one company
answers for them all.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

REMEMBERED: Final = 1 << 16  # hosts; about 10 MB when full


@lru_cache(REMEMBERED)
def registrable(host: str) -> str:
    """The registrable domain of a host as a site spells it, without a port; an address, or a suffix itself, stands for itself."""
    name = host.removesuffix(".")
    if _is_address(name):
        return name
    return _suffixes().privatesuffix(name) or name


def _is_address(name: str) -> bool:
    """As URL parsing leaves hosts: no name has a colon, or ends with a number."""
    return ":" in name or name.rpartition(".")[2].isdecimal()


@cache
def _suffixes() -> PublicSuffixList:
    """Read when first needed: it takes 25 ms, and most programs never ask."""
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(only_icann=True)
