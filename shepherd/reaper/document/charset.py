"""The charset of a page: from its byte order mark, header, meta tag, strict UTF-8, or else a detector.

Invariant: a charset is always one of the names below, each of which Python can decode without side effects: a page cannot choose
`unicode_escape` or `zip`. Labels mean what they mean to browsers, so `latin1` is windows-1252.
"""

from __future__ import annotations

from typing import Final

from shepherd.expressions import Beginning, HeaderForm

DEFAULT: Final = "windows-1252"
_META_BYTES: Final = 1024  # the web's rule for how far a declaration is looked for
_DETECTOR_BYTES: Final = 64 * 1024

# name -> Python's codec, and the labels that mean it beside the name itself
_CHARSETS: Final[dict[str, tuple[str, str]]] = {
    "utf-8": ("utf-8", "utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8 utf-8-sig"),
    "utf-16le": ("utf-16-le", "utf-16 unicode ucs-2 iso-10646-ucs-2 csunicode unicodefeff"),
    "utf-16be": ("utf-16-be", "unicodefffe"),
    "windows-1250": ("cp1250", "cp1250 x-cp1250"),
    "windows-1251": ("cp1251", "cp1251 x-cp1251"),
    "windows-1252": (
        "cp1252",
        "cp1252 x-cp1252 ascii us-ascii iso-8859-1 iso8859-1 iso88591 iso_8859-1 latin1 l1 cp819 ansi_x3.4-1968"
        " ibm819 iso-ir-100 csisolatin1",
    ),
    "windows-1253": ("cp1253", "cp1253 x-cp1253"),
    "windows-1254": (
        "cp1254",
        "cp1254 x-cp1254 iso-8859-9 iso8859-9 iso88599 iso_8859-9 iso-ir-148 csisolatin5 latin5 l5",
    ),
    "windows-1255": ("cp1255", "cp1255 x-cp1255"),
    "windows-1256": ("cp1256", "cp1256 x-cp1256"),
    "windows-1257": ("cp1257", "cp1257 x-cp1257"),
    "windows-1258": ("cp1258", "cp1258 x-cp1258"),
    "windows-874": ("cp874", "dos-874 tis-620 iso-8859-11 iso8859-11 iso885911"),
    "iso-8859-2": ("iso8859-2", "iso8859-2 iso88592 iso_8859-2 iso-ir-101 csisolatin2 latin2 l2"),
    "iso-8859-3": ("iso8859-3", "iso8859-3 iso88593 iso_8859-3 iso-ir-109 csisolatin3 latin3 l3"),
    "iso-8859-4": ("iso8859-4", "iso8859-4 iso88594 iso_8859-4 iso-ir-110 csisolatin4 latin4 l4"),
    "iso-8859-5": ("iso8859-5", "iso8859-5 iso88595 iso_8859-5 iso-ir-144 csisolatincyrillic cyrillic"),
    "iso-8859-6": (
        "iso8859-6",
        "iso8859-6 iso88596 iso_8859-6 iso-ir-127 csisolatinarabic asmo-708 arabic",
    ),
    "iso-8859-7": (
        "iso8859-7",
        "iso8859-7 iso88597 iso_8859-7 iso-ir-126 csisolatingreek greek greek8",
    ),
    "iso-8859-8": (
        "iso8859-8",
        "iso8859-8 iso88598 iso_8859-8 iso-ir-138 csisolatinhebrew hebrew visual iso-8859-8-e iso-8859-8-i logical",
    ),
    "iso-8859-10": ("iso8859-10", "iso8859-10 iso885910 iso-ir-157 csisolatin6 latin6 l6"),
    "iso-8859-13": ("iso8859-13", "iso8859-13 iso885913"),
    "iso-8859-14": ("iso8859-14", "iso8859-14 iso885914"),
    "iso-8859-15": ("iso8859-15", "iso8859-15 iso885915 iso_8859-15 csisolatin9 latin9 l9"),
    "iso-8859-16": ("iso8859-16", ""),
    "koi8-r": ("koi8-r", "koi koi8 koi8_r cskoi8r"),
    "koi8-u": ("koi8-u", "koi8-ru"),
    "ibm866": ("cp866", "cp866 866 csibm866"),
    "macintosh": ("mac-roman", "mac x-mac-roman csmacintosh"),
    "x-mac-cyrillic": ("mac-cyrillic", "x-mac-ukrainian"),
    "shift_jis": ("cp932", "shift-jis sjis x-sjis ms_kanji windows-31j ms932 cp932 csshiftjis"),
    "euc-jp": ("euc-jp", "x-euc-jp eucjp cseucpkdfmtjapanese"),
    "iso-2022-jp": ("iso2022-jp", "csiso2022jp"),
    "gb18030": ("gb18030", "gbk gb2312 gb_2312 gb_2312-80 x-gbk chinese csgb2312 csiso58gb231280 iso-ir-58 cp936 hz-gb-2312"),
    "big5": ("big5hkscs", "big5-hkscs cn-big5 x-x-big5 csbig5 cp950"),
    "euc-kr": (
        "cp949",
        "ks_c_5601-1987 ks_c_5601 ksc5601 ksc_5601 iso-ir-149 cseuckr korean windows-949 cp949 uhc",
    ),
}
_NAMES: Final[dict[str, str]] = {label: name for name, (_, labels) in _CHARSETS.items() for label in (name, *labels.split())}
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))
_HEADER_CHARACTERS: Final = 1_000  # of a Content-Type that are looked at; an honest one has 50


def find_charset(body: bytes, content_type: str) -> str:
    """The name of the charset; `content_type` is the header as it came."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name
    header = HeaderForm.CHARSET.search(content_type[:_HEADER_CHARACTERS])
    if header and (name_found := _name_of_label(header.group(1))):
        return name_found
    beginning = body[:_META_BYTES]
    declared = Beginning.META.search(beginning) or Beginning.XML.match(beginning)
    if declared and (name_found := _name_of_label(declared.group(1).decode("ascii"))):
        # The declaration was read as ASCII, so it cannot be UTF-16, whatever it says.
        return "utf-8" if name_found.startswith("utf-16") else name_found
    return "utf-8" if _is_utf8(body) else _detect(body)


def codec_of(label: str) -> str | None:
    """Python's codec for a charset of the web; None for all others of Python: `punycode`, for one, takes quadratic time."""
    name = _name_of_label(label)
    return None if name is None else _CHARSETS[name][0]


def as_utf8(body: bytes, charset: str) -> bytes:
    """The text in valid UTF-8, without a byte order mark; what cannot be decoded becomes U+FFFD."""
    for mark, name in _MARKS:
        if name == charset and body.startswith(mark):
            body = body[len(mark) :]
    if charset == "utf-8":
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            return body.decode("utf-8", "replace").encode("utf-8")
        return body
    # UTF-16 may decode to lone surrogates in no version of Python, but a codec of the East may: hence "replace" both ways.
    return body.decode(_CHARSETS[charset][0], "replace").encode("utf-8", "replace")


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A body that was cut may end inside a character.
        return error.reason == "unexpected end of data" and error.end == len(body)
    return True


def _detect(body: bytes) -> str:
    import cchardet

    label = cchardet.detect(body[:_DETECTOR_BYTES])["encoding"] or DEFAULT
    return _name_of_label(label) or DEFAULT


def _name_of_label(label: str) -> str | None:
    """The charset that a label names; a year in it, as in iso_8859-1:1987, is ignored."""
    return _NAMES.get(label.lower().partition(":")[0])
