"""What ``lw.check`` says of a pattern."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.graph.finding import Severity


def findings_of(pattern: str, watermark: Any = None, **options: Any) -> list[tuple[Severity, str]]:
    stream = lw.from_iterable(
        [{"k": 1, "v": 1, "at": 0}], time="at", watermark=watermark or lw.Ascending()
    )
    found = lw.check(stream.key_by("k").match(pattern, **options))
    return [(one.severity, one.what) for one in found]


def test_a_sound_pattern_has_no_findings() -> None:
    define = {"b": lw.col("v") > lw.matched("a").last("v"), "c": lw.col("v").is_null()}
    assert not findings_of("a b+ c", define=define, within="1h")
    assert not findings_of("a b c", define=define)


@pytest.mark.parametrize("pattern", ["a b+", "a .. b", "(a b)* a", "a{2,}"])
def test_a_repeat_without_bound_and_without_within(pattern: str) -> None:
    ((severity, what),) = findings_of(pattern)
    assert severity == "note"
    assert "repeats without bound, and there is no within=" in what
    assert not findings_of(pattern, within="1h")


def test_it_is_a_warning_where_the_input_does_not_end(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"k": 1, "at": 0}\n')
    for watermark, text in ((lw.Ascending(), "repeats without bound"), (None, "no watermark")):
        stream = lw.read_jsonl(tmp_path, time="at", follow=True, watermark=watermark)
        found = lw.check(stream.key_by("k").match("a b+"))
        severity, what = max((one.severity, one.what) for one in found if text in one.what)
        assert severity == "warning", what


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (lw.lit(False) if hasattr(lw, "lit") else lw.col("v").is_in([]), "its condition is"),
        (lw.col("v") == None, "compares with null"),  # noqa: E711  # the mistake
        (lw.prev("v") != None, "compares with null"),  # noqa: E711
        (lw.col("v") > lw.matched("c").last("v"), "reads rows of 'c', and none can come before"),
    ],
)
def test_a_variable_that_no_row_can_be(condition: Any, why: str) -> None:
    ((severity, what),) = findings_of("a b c", define={"b": condition})
    assert severity == "error"
    assert "no row can be 'b'" in what
    assert why in what
    assert what.endswith("so nothing can match the pattern")
    ((severity, what),) = findings_of("a b? c", define={"b": condition})
    assert severity == "warning"
    assert "nothing can match" not in what


def test_a_variable_that_comes_again_may_be_read() -> None:
    condition = lw.col("v") > lw.matched("c").last("v")
    assert not findings_of("(a | b | c){3}", define={"b": condition})
    assert not findings_of("a b c", define={"b": lw.matched("c").count() == 0})
    either = (lw.col("v") > lw.matched("c").last("v")) | (lw.col("v") == 1)
    assert not findings_of("a b c", define={"b": either})


def test_a_pattern_that_can_match_nothing() -> None:
    ((severity, what),) = findings_of("a* b?", within="1h")
    assert (severity, "can also match no row" in what) == ("note", True)
