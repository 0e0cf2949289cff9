"""Pages in many charsets: which one, and how a page says so. A gatherer must read the same title from all of them.

How: `header`, `meta`, `http-equiv`, `mark` (a byte order mark), `nowhere`, or two of these that contradict each other, the first
of which is right: a mark goes before a header, a header before a meta element.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True)
class Charset:
    """`name` is what the bytes are; `header` and `meta` are what is said of them."""

    name: str
    text: str
    header: str = ""
    meta: str = ""
    equiv: bool = False  # the meta element is the old, long one
    mark: bytes = b""

    def encode(self, page: str) -> bytes:
        return self.mark + page.encode(self.name)

    @property
    def content_type(self) -> str:
        return f"text/html; charset={self.header}" if self.header else "text/html"

    @property
    def meta_element(self) -> str:
        if not self.meta:
            return ""
        if self.equiv:
            return f'<meta http-equiv="Content-Type" content="text/html; charset={self.meta}">'
        return f'<meta charset="{self.meta}">'


_FRENCH = (
    "Le caf\u00e9 de la bergerie sert de la cr\u00e8me fra\u00eeche \u00e0 No\u00ebl, et des \u0153ufs toute l\u2019ann\u00e9e."
)
_GERMAN = "Die Sch\u00e4fer \u00fcben f\u00fcr das gro\u00dfe Fest; dr\u00fcben bl\u00f6ken die L\u00e4mmer."
_POLISH = "Pasterz znalaz\u0142 zagubion\u0105 owc\u0119 w g\u0119stym lesie, a pies w\u0119szy\u0142 przy \u017ar\u00f3dle."
_RUSSIAN = (
    "\u041f\u0430\u0441\u0442\u0443\u0445 \u043f\u043e\u0442\u0435\u0440\u044f\u043b \u043e\u0432\u0446\u0443 \u0438 "
    "\u0438\u0441\u043a\u0430\u043b \u0435\u0451 \u0434\u043e \u0432\u0435\u0447\u0435\u0440\u0430 \u0443 "
    "\u0440\u0435\u043a\u0438, \u0433\u0434\u0435 \u0442\u0440\u0430\u0432\u0430 \u0437\u0435\u043b\u0435\u043d\u0435\u0435."
)
_JAPANESE = (
    "\u7f8a\u98fc\u3044\u306f\u4e18\u306e\u4e0a\u3067"
    "\u7f8a\u306e\u7fa4\u308c\u3092\u898b\u5b88\u3063\u3066\u3044\u307e\u3059\u3002"
)
_CHINESE = "\u7267\u7f8a\u4eba\u5728\u5c71\u4e0a\u770b\u7740\u4ed6\u7684\u7f8a\u7fa4\u3002"
_TAIWANESE = "\u7267\u7f8a\u4eba\u5728\u5c71\u4e0a\u770b\u8457\u4ed6\u7684\u7f8a\u7fa4\u3002"
_KOREAN = "\uc591\uce58\uae30\ub294 \uc5b8\ub355 \uc704\uc5d0\uc11c \uc591 \ub5bc\ub97c \uc9c0\ucf1c\ubcf8\ub2e4."

CHARSETS: dict[str, Charset] = {
    "utf-8 header": Charset("utf-8", _FRENCH, header="utf-8"),
    "utf-8 meta": Charset("utf-8", _RUSSIAN, meta="utf-8"),
    "utf-8 mark": Charset("utf-8", _JAPANESE, mark=codecs.BOM_UTF8),
    "utf-8 nowhere": Charset("utf-8", _POLISH),
    "utf-8 mark not header": Charset("utf-8", _FRENCH, header="iso-8859-1", mark=codecs.BOM_UTF8),
    "utf-8 header not meta": Charset("utf-8", _GERMAN, header="utf-8", meta="iso-8859-1"),
    "utf-16le mark": Charset("utf-16-le", _GERMAN, mark=codecs.BOM_UTF16_LE),
    "utf-16be mark": Charset("utf-16-be", _RUSSIAN, mark=codecs.BOM_UTF16_BE),
    "iso-8859-1 header": Charset("iso-8859-1", _GERMAN, header="iso-8859-1"),
    "iso-8859-2 header": Charset("iso-8859-2", _POLISH, header="ISO-8859-2"),
    "windows-1252 meta": Charset("windows-1252", _FRENCH, meta="windows-1252"),
    "windows-1252 nowhere": Charset("windows-1252", _GERMAN),
    "windows-1251 http-equiv": Charset("windows-1251", _RUSSIAN, meta="windows-1251", equiv=True),
    "windows-1251 nowhere": Charset("windows-1251", _RUSSIAN),
    "koi8-r header": Charset("koi8-r", _RUSSIAN, header="koi8-r"),
    "shift_jis meta": Charset("shift_jis", _JAPANESE, meta="Shift_JIS"),
    "euc-jp header": Charset("euc-jp", _JAPANESE, header="EUC-JP"),
    "gb18030 meta": Charset("gb18030", _CHINESE, meta="gb18030"),
    "big5 header": Charset("big5", _TAIWANESE, header="big5"),
    "euc-kr http-equiv": Charset("euc-kr", _KOREAN, meta="euc-kr", equiv=True),
}
