"""Graphs in words and as Mermaid text: nothing that changes what comes out is left unsaid."""

from __future__ import annotations

from typing import Any

import lowwater as lw


class Two:
    """Emits to two outputs."""

    other = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit(record, tag="other")


def read(**options: Any) -> lw.Stream:
    return lw.from_iterable([{"at": 1, "k": "a", "v": 2}], time="at", **options)


def test_what_is_said_of_a_source() -> None:
    source = read(max_ahead="1h", idle_after="1m", clock=lw.ArrivalClock("at"))
    text = source.key_by("k").process(Two()).explain()
    assert "  clock: ArrivalClock('at', tick='1m')\n" in text
    assert "  max_ahead: 1h\n  idle_after: 1m\n" in text
    hand = read(clock=lw.ManualClock(0)).key_by("k").process(Two()).explain()
    assert "  clock: ManualClock\n" in hand  # and not where in memory it is
    assert "clock" not in read().key_by("k").process(Two()).explain()


def test_which_output_is_read() -> None:
    two = read().key_by("k").process(Two()).named("two")
    stream = two.output("other").filter(lw.col("v") > 1)
    behind = stream.key_by("k").process(Two())
    assert "  reads: two, output 'other' → filter(" in behind.explain()
    assert "process(Two)['other'] → filter(" in repr(stream)
    assert "['main']" not in repr(two.filter(lw.col("v") > 1))
    assert "output 'other'<br/>filter(" in behind.to_mermaid()


def test_what_mermaid_shows_of_a_stage() -> None:
    trigger = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
    counts = (
        read()
        .deduplicate(id="v", within="1m")
        .key_by("k")
        .window(
            lw.FixedWindows("1m"),
            trigger=trigger,
            accumulation="discarding",
            allowed_lateness="5s",
        )
        .aggregate(n=lw.count())
    )
    lines = (
        "stage 1", "deduplicate(id='v', within='1m')", "FixedWindows('1m')",
        f"{trigger!r}", "discarding", "allowed lateness: 5s", "n = count()",
    )  # fmt: skip
    assert f'n1["{"<br/>".join(lines)}"]' in counts.to_mermaid()
    plain = read().key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count()).to_mermaid()
    assert "Default" not in plain
    assert "lateness" not in plain


def test_which_side_of_a_join_is_which() -> None:
    left = read().named("left").select("at", "k", "v")
    right = read().named("right").select("at", "v", key=lw.col("k"))
    joined = left.join(
        right, left_on="k", right_on="key", within=lw.between("-5m", "1h"), allowed_lateness="1m"
    )
    lines = joined.explain().splitlines()
    assert lines[-7:] == [
        "stage 1",
        "  reads left: left → select('at', 'k', 'v')",
        "  reads right: right → select('at', 'v', key=col(k))",
        "  exchanges records by: k (left), key (right)",
        "  keeps: left records for 1h1m, right records for 6m",
        "  inner join within between('-5m', '1h')",
        "  allowed lateness: 1m",
    ]
    assert "==\"select('at', 'v', key=col(k))<br/>right, by key\"==>" in joined.to_mermaid()
    history = left.join_as_of(right.select("at", "key"), left_on="k", right_on="key")
    assert "  reads facts: left" in history.explain()
    assert "  reads versions: right" in history.explain()
    assert "  exchanges records by: k (facts), key (versions)" in history.explain()
