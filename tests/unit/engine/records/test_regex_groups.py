"""Which text a group of a regular expression has, and when that can be told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lowwater as lw
from lowwater.engine.records.regex_groups import extraction_of

ONLY_GROUP = r"\1"

TEXTS: dict[tuple[str, int | str, str], str | None] = {
    ("a(b)", 1, "xab"): "b",
    ("(a)|(b)", 1, "ba"): None,
    ("(a)|(b)", 2, "ba"): "b",
    ("(a*)b", 1, "cb"): "",
    (r"(?:\?(.*))?$", 1, "x?"): "",
    (r"x(?:\?(.*))?$", 1, "x"): None,
    ("(?:(a)|b)+", 1, "bab"): "a",
    ("(?:(a)|b)+", 1, "bb"): None,
    ("(?i)A(B)", 1, "ab"): "b",
    ("x(?s)(.)(?-s).", 1, "x\n\n"): None,
    ("(?:(?s)(.))", 1, "\n"): "\n",
    (r"\Qa(b\E(c)", 1, "a(bc"): "c",
    (r"(b)\Q(", 1, "b("): "b",
    (r"[(](a)[)\]]", 1, "(a]"): "a",
    (r"[]()](a)", 1, "]a"): "a",
    (r"[[:alpha:](]+([0-9])", 1, "(a(7"): "7",
    (r"\x{61}?(b)", 1, "b"): "b",
    (r"\141?(b)", 1, "b"): "b",
    (r"(\pN)|\p{Greek}", 1, "\u03b1"): None,
    (r"(?:\x{61}?(b*)|c)d", 0, "cd"): "cd",
    (r"((((((((((k))))))))))", 10, "k"): "k",
    (r"(?P<one>a)(?:(?<two>b)|c)", "two", "ac"): None,
    (r"(?P<one>a)(?:(?<two>b)|c)", "two", "ab"): "b",
    (r"()", 1, "a"): "",
    (r"(a){0}b", 1, "b"): None,
    (r"(a){2}", 1, "aa"): "a",
    (r"a{,2}(b)", 1, "a{,2}b"): "b",
    (r"", 0, ""): "",
    (r"\bb\b(.)", 1, "ab b!"): "!",
    (r"(?m)^(b)$", 1, "a\nb\nc"): "b",
    (r"^(b)$", 1, "a\nb\nc"): None,
    (r"(?U)(a+)", 1, "aa"): "a",
    (r"a|b|(c)", 1, "c"): "c",
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_the_text_of_a_group(case: tuple[str, int | str, str]) -> None:
    regex, group, text = case
    assert extracted(regex, group, text) == TEXTS[case]


def extracted(regex: str, group: int | str, text: str) -> str | None:
    made = extraction_of(regex, group)
    given = pa.array([text])
    if not pc.match_substring_regex(given, regex)[0].as_py():
        return None
    if made.part is not None and not replaced(given, made.part):
        return None
    return replaced(given, made.text)


def replaced(given: pa.Array, regex: str) -> str:
    found: str = pc.replace_substring_regex(given, regex, ONLY_GROUP)[0].as_py()
    return found


@pytest.mark.parametrize(
    ("regex", "group"),
    [("(a*)|b", 1), ("(a*)?b", 1), ("(?:(a*)|(?i)b)x", 1), ("((a*))|b", 2), ("(?:(a?)b?|c)", 1)],
)
def test_a_group_of_which_it_cannot_be_told_is_refused(regex: str, group: int) -> None:
    with pytest.raises(lw.InvalidArgument, match=r"cannot be told apart \(at str.extract\)\. Let"):
        extraction_of(regex, group)


@pytest.mark.parametrize(
    ("regex", "group", "message"),
    [
        ("(a", 1, r"missing \).*Its syntax is that of RE2"),
        ("a)(b", 1, r"regex='a\)\(b' \(str\) is not a regular expression"),
        ("(?<=a)b", 0, "RE2 has no look-around"),
        ("a(?!b)", 0, "RE2 has no look-around"),
        (r"(a)\1", 1, "RE2 has no references back"),
        ("a", 1, "no group=1 .* Put what is wanted in parentheses"),
        ("(a)", 2, "no group=2 .* groups are 1 to 1"),
        ("(a)", -1, "no group=-1"),
        ("(a)", True, r"no group=True \(bool\)"),
        ("(a)", 1.0, r"no group=1.0 \(float\)"),
        ("(a)", None, "no group=None"),
        ("(?P<word>a)", "wrod", "Did you mean 'word'"),
        ("(a)", "word", "groups are 1 to 1"),
        (r"\C", 0, "one byte"),
        ("\ud800", 0, "half of a surrogate pair"),
        (b"a", 0, "is not text"),
        (None, 0, "is not text"),
    ],
)
def test_what_cannot_be_extracted_is_refused(regex: Any, group: Any, message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message) as caught:
        extraction_of(regex, group)
    assert caught.value.where == "str.extract"
    assert caught.value.hint
