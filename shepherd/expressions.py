"""The regular expressions that meet bytes from outside, all of them: no other module that sees such bytes may have one.

Python's engine tries every place anew and takes back what it has taken, so a stranger finds the text on which an expression costs
the square of its length. Invariant: each of these takes time linear in the text, whatever the text is. Every repetition is
possessive (`*+`, `++`, `{0,9}+`) or of one; and an attempt that fails has taken without limit nothing with which an attempt can
begin. So blanks before what is looked for are not part of it, an end that may be missing is optional, and `(?:[^-]++|-(?!->))*+`
stands for the `.*?` before `-->`. tests/support/linear.py shows it from the parse of each; tests/base/test_expressions.py says
who may have others, and why.

An expression is compiled when it is first used: every program imports this module, and most need three of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import AnyStr, Final, Generic


class Expression(Generic[AnyStr]):
    """In a class, where it is read as the compiled one."""

    def __init__(self, source: AnyStr, flags: int = 0) -> None:
        self._source: AnyStr = source
        self._flags = flags

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> re.Pattern[AnyStr]:
        compiled = re.compile(self._source, self._flags)
        setattr(owner, self._name, compiled)  # from now on found without a call
        return compiled


def all_expressions() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """All of them, by the names by which they are used."""
    for group in list(globals().values()):
        if isinstance(group, type) and group.__module__ == __name__ and group is not Expression:
            for name in [name for name in vars(group) if name.isupper()]:
                yield f"{group.__name__}.{name}", getattr(group, name)


# --- what operators and strangers write -------------------------------------------------------------------------------


class TextForm:
    """text.py, lines.py, dates.py, and events of the master."""

    # What may stand before a password in a URL, up to its colon; the group of the scheme may have to give that back.
    USER = Expression(r"(\s*+(?:[a-z][a-z0-9+.-]*+:)?[/\\]*+[^/\\?#@:]*+):(?!\d*+[/\\?#])", re.IGNORECASE)
    COMMENT = Expression(r"(?:^|\s)#.*+")
    WORD = Expression(r"\S++")
    W3C_DATE = Expression(
        r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d++)?)?\s?(Z|[+-]\d\d:?\d\d)?)?)?)?", re.IGNORECASE
    )
    UNQUOTED = Expression(r"[^\s\"=\\]++")  # what an event shows as it is


class UrlForm:
    """urls.py, report/spelling.py, export/safe_names.py, readers/choice.py."""

    ODD = Expression(rb"""/\.|%2[eE]|\?\Z|[^\x21-\x7e]|[\\"#<>`{}^|']""")
    CONTROL_OR_BLANK = Expression(r"[\x00-\x20\x7f-\x9f\s]")
    SCHEME = Expression(r"([a-zA-Z][a-zA-Z0-9+.-]*+):")
    AUTHORITY = Expression(r"https?:[/\\]*+([^/\\?#]*+)", re.IGNORECASE)  # of a text that could not be parsed
    PARTS = Expression(r"([^:/?#]++:)([/\\]*+)([^/\\?#]*+)([^?#]*+)(\?[^#]*+)?(#.*+)?", re.DOTALL)
    PORT = Expression(r":([0-9]*+)$")
    DOT = Expression(r"\.|%2e", re.IGNORECASE)
    ADDRESS = Expression(r"[0-9.]++|\[[^\]]*+\]")
    NORMAL = Expression(r"(https?)://(\[[^]/?#]*+\]|[^]/:?#[]++)(?::([0-9]++))?(/[^?#]*+)(\?[^#]*+)?")
    UNSAFE = Expression(r"%(?!20|[89A-Fa-f][0-9A-Fa-f])|[^A-Za-z0-9._%+=@-]")  # in the name of a file
    SHARD = Expression(r"([0-9]{1,6}+)/([0-9]{1,6}+)")


# --- the web's protocol -----------------------------------------------------------------------------------------------


class RobotsForm:
    """robots.py."""

    LINE_END = Expression(rb"\r\n|\r|\n")
    TOKEN = Expression(rb"[A-Za-z0-9_.-]*+")
    ESCAPE = Expression(rb"%[0-9A-Fa-f]{2}|[\x80-\xff]")
    PATH_ESCAPE = Expression(r"%[0-9A-Fa-f]{2}")


class HeaderForm:
    """reaper/document/headers.py, charset.py and sniff.py. Quoted strings are of at most 500 characters: so they have an end."""

    LINK = Expression(r"<([^<>]{1,4096}+)>((?:\s*+;\s*+[a-zA-Z*]{1,20}+\s*+(?:=\s*+(?:\"[^\"]{0,500}+\"|[^\s\",;]{0,500}+))?)*+)")
    REL = Expression(r";\s*+rel\s*+=\s*+(?:\"([^\"]{0,500}+)\"|([^\s\",;]++))", re.IGNORECASE)
    LANGUAGE = Expression(r"[a-zA-Z]{2,8}+(?:[-_][a-zA-Z0-9]{1,8}+)*+")
    CHARSET = Expression(r"""charset\s{0,99}+=\s{0,99}+["']?\s{0,99}+([^\s"';,]++)""", re.IGNORECASE)
    MEDIA_TYPE = Expression(r"\s*+([a-zA-Z0-9!#$&^_.+*-]{1,64}+/[a-zA-Z0-9!#$&^_.+*-]{1,64}+)")


class MessageHead:
    """Heads of HTTP messages: formats/httphead.py, export/warc.py, reaper/document/recording.py."""

    STATUS = Expression(rb"HTTP/([0-9](?:\.[0-9])?)[ \t]++([0-9]{3})(?![0-9])([^\r\n\0]*+)")
    # A line end first, which is quickly found; so the text begins with one.
    BODY_HEADER = Expression(rb"\n(transfer-encoding|content-encoding|content-length)([ \t]*+:[ \t]*+)([^\n]*+)", re.IGNORECASE)
    BARE_END = Expression(rb"(?<!\r)\n")
    BLANK = Expression(rb"(?:\r?\n){2,}+")
    CONTENT_TYPE = Expression(rb"^content-type[ \t]*+:[ \t]*+([^;\s]*+)", re.IGNORECASE | re.MULTILINE)
    PLACE = Expression(rb"https?://([^/?#]*+)(/[^#]*+)?")
    LINE_ENDS = Expression(rb"[\r\n\0]++")
    UNPRINTABLE = Expression(r"[\x00-\x1f\x7f\x85\u2028\u2029]++")
    END = Expression(rb"\n\r?\n")
    RECORDED_STATUS = Expression(rb"HTTP/[0-9](?:\.[0-9])? ++([1-9][0-9]{2})(?:[ \t].*+)?")
    CHUNK = Expression(rb"([0-9A-Fa-f]{1,8}+)[ \t]*+(?:;[^\r\n]*+)?\r?\n")


# --- documents --------------------------------------------------------------------------------------------------------


class Beginning:
    """What a body begins with, of which no more than 1,024 bytes are looked at: reaper/document/sniff.py and charset.py."""

    HTML = Expression(
        rb"<(?:!doctype html|!--|(?:html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|meta|link)[\s/>])",
        re.IGNORECASE,
    )
    PROLOGUE = Expression(
        rb"(?:\s++|<\?(?:[^?]++|\?(?!>))*+(?:\?>)?+|<!--(?:[^-]++|-(?!->))*+(?:-->)?+|<!DOCTYPE[^>\[]*+>?+)*+", re.IGNORECASE
    )
    ROOT = Expression(rb"<([A-Za-z_][A-Za-z0-9_.-]*+)(?::([A-Za-z_][A-Za-z0-9_.-]*+))?[\s/>]")
    BINARY = Expression(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
    META = Expression(
        rb"""<meta\s(?:(?!charset\s{0,9}+=)[^>]){0,500}+charset\s{0,9}+=\s{0,9}+["']?\s{0,9}+([a-z0-9_:.-]{1,40}+)""",
        re.IGNORECASE,
    )
    XML = Expression(
        rb"""\s*+<\?xml\s(?:(?!encoding\s{0,9}+=)[^>]){0,200}+encoding\s{0,9}+=\s{0,9}+["']([a-z0-9_:.-]{1,40}+)""", re.IGNORECASE
    )


_SPACE: Final = rb"[\t\n\f\r ]"
_GAP: Final = rb"[\t\n\f\r /]*+"  # between attributes
_VALUE: Final = rb"""(?:=%b*+(?:"(?:[^"]*+)"?+|'(?:[^']*+)'?+|(?:[^\t\n\f\r >"'][^\t\n\f\r >]*+))?+)?+""" % _SPACE
_NAME: Final = rb"(?:=?+[^\t\n\f\r />=]++|=)"
_ATTRIBUTES: Final = rb"(?:%b%b%b*+%b)*+" % (_GAP, _NAME, _SPACE, _VALUE)


class Markup:
    """Tags of a page: reaper/document/scan.py, html_page.py and visible_text.py."""

    NEXT = Expression(rb"<(?:!--|[!?]|/?[A-Za-z]|/)")
    TAG = Expression(rb"<(/?)([A-Za-z][^\t\n\f\r />]*+)(%b)%b>" % (_ATTRIBUTES, _GAP))
    OPEN_TAG = Expression(rb"<[A-Za-z]")
    WHOLE_TAG = Expression(rb"<[A-Za-z][^\t\n\f\r />]*+" + _ATTRIBUTES)
    LONG_TAG = Expression(rb"<[A-Za-z][^>]{4096}")  # of a page of at most 10,000 tags, each of which is walked so far
    # An attribute: its name, then its value in double quotes, in single ones, or bare. The same as above, with groups.
    ATTRIBUTE = Expression(
        rb"""(=?[^\t\n\f\r />=]++|=)%b*+(?:=%b*+(?:"([^"]*+)"?+|'([^']*+)'?+|([^\t\n\f\r >"'][^\t\n\f\r >]*+))?)?"""
        % (_SPACE, _SPACE)
    )
    # b, big, code, em, font, i, nobr, s, small, strike, strong, tt, u, and some that are none: a first letter rules most tags out
    FORMATTING = Expression(rb"<[bcefinstu](?:|ig|ode|m|ont|obr|mall|trike|trong|t)[\t\n\f\r /]")
    COMMENT_END = Expression(rb"--!?>")
    REFERENCE = Expression(r"&(?:#[0-9]{1,9}+;?|#[xX][0-9a-fA-F]{1,9}+;?|([A-Za-z][A-Za-z0-9]{1,40}+(?:;|(?![=A-Za-z0-9]))))")
    REFRESH = Expression(
        r"""\s*+[\d.]++(?:\s*+[;,]|\s)\s*+(?:url\s*+=\s*+)?(?:"([^"]*+)|'([^']*+)|(.*+))""", re.IGNORECASE | re.DOTALL
    )
    HIDDEN = Expression(
        rb"<(?:script|style)\b(?:[^<]++|<(?!/(?:script|style)))*+(?:</(?:script|style))?+|<!--(?:[^-]++|-(?!->))*+(?:-->)?+"
        rb"|<[^>]*+>?+",
        re.IGNORECASE,
    )
    LINE = Expression(rb"[^\r\n]++")
    LISTED_URL = Expression(rb"\s*+https?://[^\s<>\"]{1,4096}+\s*+", re.IGNORECASE)  # a line of a list: sitemap.py


class RawEnd:
    """Where a tag ends whose content has no tags."""

    SCRIPT, STYLE, TEXTAREA, TITLE, XMP, IFRAME, NOEMBED, NOFRAMES = (
        Expression(rb"</%b[\t\n\f\r />]" % name, re.IGNORECASE)
        for name in (b"script", b"style", b"textarea", b"title", b"xmp", b"iframe", b"noembed", b"noframes")
    )


class StyleSheet:
    """Of CSS, and of lists of images: reaper/document/requisites.py."""

    COMMENT = Expression(r"/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+")
    # A string that a line end breaks is no URL: it is taken with that line end.
    URL = Expression(
        r"""url\(\s*+(?:"([^"\n]*+)["\n]?+|'([^'\n]*+)['\n]?+|((?:[^\s"'()\\]++|\\[0-9a-fA-F]{1,6}+[^\S\n]?+|\\.)*+))"""
        r"""|@import\s{1,99}+(?:"([^"\n]*+)["\n]?+|'([^'\n]*+)['\n]?+)""",
        re.IGNORECASE,
    )
    ESCAPE = Expression(r"\\(?:([0-9a-fA-F]{1,6}+)\s?|(.))", re.DOTALL)
    CANDIDATE = Expression(r"[\s,]*+([^\s]++)")
    DESCRIPTORS = Expression(r"(?:[^,(]++|\([^)]*+\)?+)*+")


def _unseen() -> str:
    """Elements whose content nobody reads, and comments."""
    names = ("script", "style", "template", "noscript")
    elements = (rf"<{name}\b(?:[^<]++|<(?!/{name}))*+(?:</{name}[^>]*+>?+)?+" for name in names)
    return "|".join((*elements, r"<!--(?:[^-]++|-(?!->))*+(?:-->)?+"))


class Readable:
    """console/readable.py."""

    UNSEEN = Expression(_unseen(), re.IGNORECASE)
    BLOCK = Expression(
        r"</?(?:address|article|aside|blockquote|body|br|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|h[1-6]"
        r"|head|header|hr|li|main|nav|ol|option|p|pre|section|summary|table|title|tr|ul)\b[^>]*+>?",
        re.IGNORECASE,
    )
    CELL = Expression(r"</?(?:td|th)\b[^>]*+>?", re.IGNORECASE)
    TAG = Expression(r"<[a-z/!?][^>]*+>?", re.IGNORECASE)
    # Such a number stands for no character, and int() takes no 5,000 digits.
    OVERLONG = Expression(r"&#(?:[0-9]{10}[0-9]*+|[xX][0-9a-fA-F]{9}[0-9a-fA-F]*+);?")
    BLANKS = Expression(r"\s++")


# --- what peers, readers and older programs send ----------------------------------------------------------------------

_LABEL: Final = rb"[a-z0-9]{1,20}+(?:-[a-z0-9]{1,20}+){0,2}+"
_HOST: Final = rb"(?:%b\.){0,8}+[a-z]{1,20}+(?::[1-9][0-9]{0,3}+)?+" % _LABEL
_URL: Final = rb"https?+://%b/[A-Za-z0-9._~!$&()+*,;=:@/?%%-]{0,1500}+" % _HOST
_WEIGHT: Final = rb"(?:[1-5][0-9]{4}|6[0-4][0-9]{3}|[0-9]{1,4}+)"


class AttributeForm:
    """Attributes of a bucket that a reaper sends: dispatch/attribute_judges.py."""

    LINE_END = Expression(rb"[\r\n\0]")
    TYPE = Expression(rb"[a-z0-9!#$&^_.+*-]{1,64}+/[a-z0-9!#$&^_.+*-]{1,64}+")
    CHARSET = Expression(rb"[a-z0-9_-]{1,40}+")
    LANGUAGE = Expression(rb"[a-z]{2,8}+(?:-[a-z0-9]{1,8}+){0,8}+")
    WORD = Expression(rb"[a-z]{1,20}+")


class StoredForm:
    """formats/ and serve/."""

    FOOTPRINT = Expression(r"([0-9a-f]{16})([0-9a-f]{16})")
    WEIGHT = Expression(r"[0-9]{1,5}+")
    FEEDBACK_LINES = Expression(rb"(?:(?:[0-9a-f]{32}|%b) %b(?: (?:un)?referenced)?\n)*+" % (_URL, _WEIGHT))
    CONTROL_TITLE = Expression(rb"shepherd-control ([1-9][0-9]{0,8}+)\n")
    LINE = Expression(r"[^\n]++")
    COUNT = Expression(r"[0-9]{1,18}+")  # all of them fit into 64 bits
    CHECK = Expression(r"[0-9a-f]{16}")
    BODY_LINE = Expression(rb"^[Bb]", re.MULTILINE)
    HEX = Expression(rb"(?:[0-9a-f]{2})*+")
    NUMBER = Expression(rb"0|[1-9][0-9]{0,19}+")
    BYTE_RANGE = Expression(r"bytes=([0-9]{0,18}+)-([0-9]{0,18}+)")
    LENGTH = Expression(r"[0-9]{1,15}+")
