"""Lines of feedback that a pattern accepts as plain: the parser accepts them, too, and nothing else differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.expressions import StoredForm
from shepherd.formats import feedback as uploads
from shepherd.serve import lines

# The same without possessive quantifiers, of which hypothesis knows nothing: it finds no other texts.
TEXTS = st.from_regex(re.compile(re.sub(r"([}?*])[+]", r"\1", StoredForm.FEEDBACK_LINES.pattern.decode())), fullmatch=True)


@given(TEXTS)
def test_pattern_accepts_only_what_the_parser_accepts(text: str) -> None:
    for line in text.splitlines():
        uploads.parse_line(line, lines._footprint)


WORDS = [
    "http://a.example/", "HTTP://A.example", "https://b.example:8080/x?y=%20", "http://1.2.3.4/", "http://1.2.3/", "mailto:x",
    "0" * 32, "0" * 31, "http://xn--a.example/", "http://a..example/", "http://a.example/\u00e9", "x",
]  # fmt: skip
WEIGHTS = ["0", "5", "65535", "65536", "99999", "-", "-1", "x", "064999", ""]
FLAGS = ["", " referenced", " unreferenced", " other", " referenced unreferenced", "  referenced", "\t"]
LINES = st.builds("{}{}{}{}{}".format, st.sampled_from(WORDS), st.sampled_from([" ", "  ", ""]), st.sampled_from(WEIGHTS),
                  st.sampled_from(FLAGS), st.sampled_from(["\n", "\r\n", "\n\n"]))  # fmt: skip
GOOD = st.sampled_from(["http://a.example/ 5\n", f"{'1' * 32} 65000 referenced\n", "\n", "HTTP://A.example 7\n"])


@given(st.lists(GOOD, max_size=8), LINES, st.booleans())
def test_upload_is_judged_as_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], line: str, end: bool
) -> None:
    text = "".join(before) + (line if end else line.rstrip("\r\n"))
    path = tmp_path_factory.getbasetemp() / "upload"
    path.write_bytes(text.encode())
    count, fault = 0, ""
    for number, one in enumerate(text.split("\n"), 1):
        try:
            if one.strip():
                uploads.parse_line(one, lines._footprint)
                count += 1
        except ValueError as error:
            fault = fault or f"line {number}: {str(error)[:200]}"
    if fault or not count:
        with pytest.raises(ValueError, match=re.escape(fault or "it is empty")):
            lines.judge(path)
    else:
        assert lines.judge(path) == count


def test_line_across_blocks_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 7)
    (tmp_path / "upload").write_bytes(b"http://a.example/ 5\nHTTP://a.example 6\n\n" + b"0" * 32 + b" 7")
    assert lines.judge(tmp_path / "upload") == 3
    (tmp_path / "upload").write_bytes(b"http://a.example/ 5\nhttp://a.example/" + b"x" * lines.LINE_BYTES + b" 5\n")
    with pytest.raises(ValueError, match="line 2: longer than"):
        lines.judge(tmp_path / "upload")
