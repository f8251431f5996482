"""The names of virtual columns: each is read back as what it was made of, and no other is."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.records.other_rows import MatchedValue, Prev, reference_of

NAMES = st.text(min_size=1) | st.sampled_from(
    [
        "it's",
        'say "it"',
        "both ' and \"",
        "prev('price', 1)",
        "matched('a').first('b', 0)",
        "\\d",
        "a.b(c)",
        ").first('x', 1)",
        "µs",
        "雪",
        "\ud800",
        "line\nbreak",
        "\0",
        "{}",
        "None",
        " ",
    ]
)
WITH_PLACE = st.builds(
    MatchedValue, st.none() | NAMES, st.sampled_from(["first", "last"]), NAMES, st.integers(0)
)
OVER_COLUMN = st.builds(
    MatchedValue, st.none() | NAMES, st.sampled_from(["min", "max", "sum", "mean", "count"]), NAMES
)
OVER_ROWS = st.builds(MatchedValue, st.none() | NAMES, st.just("count"), st.none())


@given(st.builds(Prev, NAMES, st.integers(1)) | WITH_PLACE | OVER_COLUMN | OVER_ROWS)
def test_a_name_is_read_back_as_what_it_was_made_of(reference: Prev | MatchedValue) -> None:
    assert reference_of(reference.name) == reference


@given(NAMES)
def test_other_names_are_columns(name: str) -> None:
    found = reference_of(name)
    assert found is None or found.name == name


@pytest.mark.parametrize(
    "name",
    [
        "price", "prev", "prev()", "prev('price')", "prev('price', 0)", "prev('price', -1)",
        "prev('price', True)", "prev('price', 1.0)", "prev('price',1)", 'prev("price", 1)',
        "prev(price, 1)", "prev('price', 1) ", "prev('price', 1, 2)", "prev('price', k=1)",
        "prev('a', 1)('b', 2)", "prev('a', open('b'))", "prev('", "prev('\\q', 1)", "prev('" * 999,
        "matched()", "matched('a')", "matched('a').first('b')", "matched('a').first('b', -1)",
        "matched('a').min('b', 0)", "matched('a').median('b')", "matched('a').sum()",
        "matched(1).first('b', 0)", "matched(None).first(None, 0)", "matched('a').b.first('c', 0)",
        "matched('a').count('b', 0)", "x.matched('a').count()", "matched.count()",
        "matched('a', 'b').count()", "matched(*a).count()", "matched((())).count()",
        "matched" + "(" * 400 + ")" * 400, "nextmatched('a').count()", "matched('a')('b')",
    ],
)  # fmt: skip
def test_what_only_looks_like_one_is_a_column(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reference_of(name) is None
