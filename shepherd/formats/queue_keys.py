"""Queue keys: by which server a site is asked (docs/formats.md, "queue key")."""

from __future__ import annotations

from typing import Final

QKEY_IPV4: Final = 0x04
QKEY_IPV6: Final = 0x06
QKEY_NONE: Final = 0x7F


def qkey_unresolved(site: int) -> int:
    return QKEY_NONE << 56 | site & 0xFFFFFF


def is_resolved(qkey: int) -> bool:
    return qkey >> 56 != QKEY_NONE


def show_qkey(qkey: int) -> str:
    kind, value = qkey >> 56, qkey & (1 << 56) - 1
    if kind == QKEY_IPV4:
        return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
    if kind == QKEY_IPV6:
        return f"[v6:{value:014x}]"
    return f"7f{value & 0xFFFFFF:06x}?"
