"""``str.extract`` gives what Python's ``re`` gives, wherever both dialects mean the same (S-B1)."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from hypothesis import given, target
from hypothesis import strategies as st

import lowwater as lw
from lowwater.errors import InvalidArgument
from tests.examples import examples


class Pattern(NamedTuple):
    """A regular expression as RE2 and as Python write it.

    Args:
        ours: For RE2.
        theirs: For Python.
        least: The fewest characters that it matches: what may match none is not repeated, because
            the dialects differ in how often.
    """

    ours: str
    theirs: str
    least: int


def same(text: str, least: int = 1) -> Pattern:
    return Pattern(text, text, least)


ATOMS = st.sampled_from([
    *map(same, ("a", "b", "é", "\u03b1", r"\n", ".", "[ab]", "[^a]", r"[\n-a]", r"\(", "[)(]")),
    same("", 0), same("^", 0), same(r"\A", 0), Pattern("$", r"\Z", 0), Pattern(r"\z", r"\Z", 0),
    Pattern(r"\b", r"(?a:\b)", 0), Pattern(r"\d", r"(?a:\d)", 1), Pattern(r"\w", r"(?a:\w)", 1),
    Pattern(r"\Qa(\E", r"a\(", 2), Pattern(r"\x{61}", "a", 1),
])  # fmt: skip


def grown(inner: Any) -> Any:
    return st.one_of(
        st.builds(grouped, inner, st.sampled_from(["(", "(", "(?:", "(?s:", "(?i:", "(?m:"])),
        st.builds(repeated, inner, st.sampled_from(["?", "??", "*", "*?", "+", "+?", "{1,2}"])),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: joined("|", parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: joined("", parts)),
    )


def grouped(one: Pattern, opening: str) -> Pattern:
    return Pattern(f"{opening}{one.ours})", f"{opening}{one.theirs})", one.least)


def repeated(one: Pattern, times: str) -> Pattern:
    if not one.least and times not in ("?", "??"):
        return one
    some = grouped(one, "(?:")
    least = 0 if times[0] in "?*" else one.least
    return Pattern(some.ours + times, some.theirs + times, least)


def joined(by: str, parts: list[Pattern]) -> Pattern:
    widths = [one.least for one in parts]
    made = Pattern(
        by.join(one.ours for one in parts),
        by.join(one.theirs for one in parts),
        min(widths) if by else sum(widths),
    )
    return grouped(made, "(?:")


PATTERNS = st.recursive(ATOMS, grown, max_leaves=8)
TEXTS = st.lists(st.none() | st.text(st.sampled_from("ab(1é\n\u03b1A "), max_size=7), max_size=9)


@examples(4)
@given(PATTERNS, TEXTS, st.data())
def test_a_group_is_what_python_finds(pattern: Pattern, texts: list[Any], data: Any) -> None:
    compiled = re.compile(pattern.theirs)
    group = data.draw(st.integers(0, compiled.groups), label="group")
    try:
        expression = lw.col("s").str.extract(pattern.ours, group)
    except InvalidArgument as error:
        if "cannot be told apart" not in str(error):
            raise
        return
    target(compiled.groups)
    records = [{"at": 0, "n": n, "s": text} for n, text in enumerate(texts)]
    stream = lw.from_iterable(records, time="at").with_columns(x=expression)
    found = {one.value["n"]: one.value["x"] for one in stream.run(bundle_size=4)}
    matches = [None if text is None else compiled.search(text) for text in texts]
    assert found == {n: None if one is None else one[group] for n, one in enumerate(matches)}
