"""``explain`` of a match and of a start without one, and ``why`` of a row of either."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.explain import explain
from lowwater.explain.match_history import KeyHistory
from lowwater.testing import PipelineRun, Scenario
from lowwater.viz import Diagram

NOON = "2000-01-01T12:00:00Z"
UP_AND_DOWN: dict[str, Any] = {
    "define": {
        "down": lw.col("value") < lw.prev("value"),
        "up": lw.col("value") > lw.prev("value"),
    },
    "measures": {"n": lw.count(), "low": lw.min("value", of="down")},
    "within": "1h",
}
PRICES = (
    Scenario(start="12:00")
    .add((10, "12:00", "a"), (8, "12:01", "a"), (9, "12:02", "a"), (7, "12:01", "b"), at="12:02:10")
    .watermark("12:03", at="12:03")
    .add((5, "12:02:30", "a"), at="12:04")
    .watermark("12:05", at="12:05")
    .add((1, "12:00:30", "a"), at="12:06")
    .add((3, "11:30", "a"), at="12:07")
    .end(at="12:20")
)


def at(time: str) -> str:
    return f"2000-01-01T{time}Z"


def run_of(
    pattern: str = "start down+ up+", scenario: Scenario = PRICES, **options: Any
) -> PipelineRun:
    def matched(stream: Any) -> Any:
        every = {**UP_AND_DOWN, "allowed_lateness": "10m", **options}
        return stream.key_by("key").match(pattern, **every)

    return scenario.run_pipeline(matched, trace=True)


def views(*kinds: tuple[str, str], **options: Any) -> PipelineRun:
    """Return a run over kinds of one key, that match the names of variables."""
    scenario = Scenario(start="12:00").add(*((kind, time, "a") for kind, time in kinds))
    names = ("view", "cart", "buy")
    define = {name: lw.col("value") == name for name in names}
    return run_of(
        options.pop("pattern", "view .. cart .. buy"), scenario.watermark("12:03"),
        define={n: one for n, one in define.items() if n in options.get("names", names)},
        measures={}, allowed_lateness="0s",
        **{name: one for name, one in options.items() if name != "names"},
    )  # fmt: skip


def test_a_match_that_a_late_row_corrected() -> None:
    said = run_of().explain("a", NOON)
    assert list(said) == [
        "key 'a', pattern 'start down+ up+' on 2000-01-01, stage `stage 1`",
        "  down: col(value).__lt__(col(prev('value', 1)))",
        "  up: col(value).__gt__(col(prev('value', 1)))",
        "  within 1h, skip past_last, emit on_time, allowed lateness 10m",
        "  match from 12:00:00 to 12:02:00",
        "      start: element 10 at 12:00:00",
        "      down: element 1 at 12:00:30",
        "      up: element 8 at 12:01:00",
        "      up: element 9 at 12:02:00",
        "    12:04:00  emitted n=3, low=8: element 5 (below the watermark) arrived",
        "    12:06:00  retracted n=3, low=8: element 1 (below the watermark) arrived",
        "    12:06:00  changed: with element 1 as down, element 8 is up, no longer down",
        "    12:06:00  emitted n=4, low=1: element 1 (below the watermark) arrived",
        "    it stands, and nothing can change it any more",
    ]
    assert [element.values["value"] for element in said.elements] == [10, 1, 8, 9]


def test_what_emitted_stays_while_rows_change() -> None:
    said = run_of(measures={}).explain("a", at("12:01:30"))
    changed = "with element 1 as down, element 8 is up, no longer down"
    assert f"its rows changed ({changed}), what is emitted of it did not" in said
    assert "retracted" not in said


def test_a_match_that_the_watermark_decided() -> None:
    run = run_of("a b", define={}, measures={}, emit="final")
    assert "    12:20:00  emitted: the input ended" in list(run.explain("a", NOON))
    scenario = Scenario(start="12:00").add((1, "12:00", "a"), (2, "12:01", "a"))
    run = run_of("a b", scenario.watermark("12:30", at="12:31"), define={}, measures={})
    assert (
        "    12:31:00  emitted: the watermark reached 12:30:00; what it depends on ends at 12:01:00"
    ) in list(run.explain("a", NOON))


def test_a_retracted_match_says_where_its_rows_are_now() -> None:
    scenario = (
        Scenario(start="12:00")
        .add((1, "12:01", "a"), (2, "12:02", "a"))
        .watermark("12:05", at="12:05")
        .add((0, "12:00", "a"), at="12:06")
    )
    run = run_of("a b", scenario, define={}, measures={})
    said = run.explain("a", at("12:02"))
    assert "retracted match from 12:01:00 to 12:02:00" in said
    assert "1 row of it is in the match from 12:00:00 now" in said
    assert "it does not stand" in said
    assert "it stands; a row up to 10m late may change it" in run.explain("a", NOON)
    early = run_of("a b", scenario, define={}, measures={}, emit="early", allowed_lateness="0s")
    assert "emitted: this bundle made it" in early.explain("a", at("12:01"))


def test_where_an_attempt_failed() -> None:
    run = run_of()
    assert list(run.explain("b", at("12:01")))[4:] == [
        "  no match begins with element 7 at 12:01:00",
        "    it got as far as `start`; `down` did not come",
    ]
    said = run.explain("a", (at("12:02:10"), at("12:03")))
    assert "no match begins with element 5 at 12:02:30" in said
    assert "it got as far as `start`; `down` did not come" in said
    run = views(("view", "12:00"), ("cart", "12:01"), ("view", "12:02"), pattern="view cart buy")
    said = run.explain("a", NOON)
    assert "it got as far as `view cart`; element 'view' at 12:02:00 is not `buy`" in said
    run = views(("view", "12:00"), ("other", "12:01"), pattern="view (cart | buy)")
    assert "element 'other' at 12:01:00 is none of `cart` or `buy`" in run.explain("a", NOON)


def test_within_cut_an_attempt() -> None:
    run = views(("view", "12:00"), ("cart", "12:01"), ("buy", "12:02:30"), within="2m")
    assert (
        "it got as far as `view cart`; `buy` did not come within 2m of its first row: the next row "
        "is element 'buy' at 12:02:30"
    ) in run.explain("a", NOON)


def test_a_row_that_must_be_absent_came() -> None:
    run = views(
        ("view", "12:00"), ("cart", "12:01"), pattern="view",
        without=lw.absent(lw.col("value") == "cart", within="90s"), names=("view",),
    )  # fmt: skip
    said = run.explain("a", NOON)
    assert "it matched `view`, but element 'cart' at 12:01:00 came, which must be absent" in said


def test_an_undecided_start_says_what_it_waits_for() -> None:
    run = views(("view", "12:00"), ("cart", "12:01"), ("view", "12:01:30"))
    said = run.explain("a", NOON)
    assert "it got as far as `view .. cart`" not in said
    assert "it got as far as `view cart .." in said
    assert "`buy` has not come yet" in said
    assert "it waits for the watermark to pass 13:00:00" in said
    said = run.explain("a", at("12:01:30"))
    assert "it is not tried yet: it is behind the start at 12:00:00, which is undecided" in said
    endless = views(("view", "12:00"), within=None).explain("a", NOON)
    assert "it waits for a row that ends it, or for the end of the input" in endless
    waiting = views(
        ("view", "12:00"), pattern="view", names=("view",),
        without=lw.absent(lw.col("value") == "cart", within="9m"),
    )  # fmt: skip
    said = waiting.explain("a", NOON)
    assert "it matches `view` so far; what must be absent may still come" in said
    assert "it waits for the watermark to pass 12:09:00" in said


def test_conditions_on_the_match_so_far() -> None:
    define = {"b": lw.col("value") > lw.matched("a").last("value")}
    scenario = Scenario(start="12:00").add((3, "12:00", "a"), (2, "12:01", "a"), (5, "12:02", "a"))
    run = run_of("a b", scenario.end(), define=define, measures={})
    assert "it got as far as `a`; element 2 at 12:01:00 is not `b`" in run.explain("a", NOON)
    assert "b: element 5 at 12:02:00" in run.explain("a", at("12:01"))


def test_keys_and_instants_without_rows() -> None:
    run = run_of()
    assert "no element has this key; the keys are 'a', 'b'" in run.explain("c", NOON)
    said = run.explain("b", at("20:00"))
    assert "no attempt depends on a row there; the key has 1 row, from 12:01:00 to 12:01:00" in said
    with pytest.raises(lw.InvalidArgument, match=r"not \(start, end\)"):
        run.explain("a", (NOON,))  # type: ignore[arg-type]


def test_a_sample_cannot_be_searched() -> None:
    rows = [{"k": "a", "v": n, "at": n} for n in range(50)]
    stream = lw.from_iterable(rows, time="at").key_by("k")
    result = stream.match("a b").collect(trace=lw.Tracing(limit=10))
    said = result.explain("a", 3)
    assert "has only a sample of the elements" in said
    assert "trace=lw.Tracing(limit=None)" in said
    assert "has only a sample of the elements" in result.why(lambda record: True)
    assert "matches are not drawn" in result.diagram().to_text()


def lines_of(run: PipelineRun, value: object) -> list[str]:
    return repr(run.why(lambda record: record["value"] == value)).splitlines()[2:]


def test_why_a_row() -> None:
    run = run_of()
    match = "the match from 12:00:00 to 12:02:00"
    assert lines_of(run, 8) == [
        f"  it is `up` of {match} n=4, low=1",
        f"  12:06:00  it was `down` of {match} n=3, low=8, which was retracted",
    ]
    assert lines_of(run, 7) == [
        "  it is part of no match",
        "  as the first row: it got as far as `start`; `down` did not come",
    ]
    (late,) = lines_of(run, 3)
    assert late.startswith("  dropped (too_late): it was '35m' below the watermark")
    run = views(("view", "12:00"), ("x", "12:01"), ("cart", "12:02"), ("buy", "12:02"))
    assert lines_of(run, "x") == ["  it is a row of `..` of the match from 12:00:00 to 12:02:00"]


def test_why_a_row_that_is_taken_back() -> None:
    orders = [{"k": "a", "v": n, "at": n} for n in (1, 2)]
    stream = lw.from_iterable(orders, time="at", watermark=lw.Ascending()).key_by("k")
    early = stream.match("a b", rows="all", emit="early", within="10us")
    result = early.key_by("k").match("x y", within="10us").collect(trace=True)
    stages = [stage for stage in result.trace.stages if stage.matching is not None]
    assert len(stages) == 2
    for stage in stages:
        for element in stage.elements:
            assert "it was received; a trace" not in result.why(element)


def test_why_a_dead_letter() -> None:
    rows = [{"k": None, "v": 1, "at": 0}, {"k": "a", "v": 2, "at": 1}]
    stream = lw.from_iterable(rows, time="at").key_by("k")
    result = stream.match("a").collect(trace=True, on_error="dead_letter")
    assert "became a dead letter (null_key)" in result.why({"v": 1})


@pytest.mark.parametrize("emit", ["on_time", "final", "early"])
def test_what_is_found_again_is_what_was_emitted(emit: str) -> None:
    run = run_of(emit=emit)
    stage = run.trace.stage()
    for key in ("a", "b"):
        emitted: Counter[Any] = Counter()
        for one in run.elements:
            if one.key == key:
                value = one.value
                sign = -1 if one.kind == "retract" else 1
                emitted[str(value["match_start"]), value["n"], value["low"]] += sign
        found = Counter(
            (str(lw.Instant(one.start).to_datetime()), one.measures["n"], one.measures["low"])
            for one in KeyHistory(stage, key).standing
        )
        assert +emitted == found


def test_what_holds_the_watermark() -> None:
    run = views(("view", "12:00"), ("cart", "12:01"))
    (held,) = [move.held_by for move in run.trace.stage().moves][-1:]
    assert held == (
        "stage 1: key 'a', whether 'view .. cart .. buy' matches from 2000-01-01T12:00:00Z on is "
        "undecided, until 2000-01-01T13:00:00Z at the latest"
    )
    run = views(("view", "12:00"), within=None)
    assert str(run.trace.stage().moves[-1].held_by).endswith("on is undecided")


def test_a_window_behind_a_match_says_what_it_waits_for() -> None:
    scenario = Scenario(start="12:00").add(("view", "12:00", "a"), ("buy", "12:01", "a"))
    scenario = scenario.add(("view", "12:02", "a")).watermark("12:10")

    def counted(stream: Any) -> Any:
        define = {name: lw.col("value") == name for name in ("view", "buy")}
        matches = stream.key_by("key").match("view buy", define=define, within="1h")
        return matches.key_by("key").window(lw.FixedWindows("5m")).aggregate(n=lw.count())

    said = scenario.run_pipeline(counted, trace=True).explain("a", at("12:01"))
    assert "holds it: whether a match begins at 12:02:00 is undecided" in said


def test_each_row_of_a_match_is_emitted_and_starts_are_independent() -> None:
    run = run_of("a b", define={}, measures={}, rows="all", skip="next")
    said = run.explain("a", (NOON, at("12:03")))
    assert "match from 12:00:00 to 12:00:30" in said
    assert "retracted match" not in said  # each start stands, with another second row
    assert "changed: with element 1 as b, without element 8" in said
    assert lines_of(run, 8)[:2] == [
        "  it is `b` of the match from 12:00:30 to 12:01:00",
        "  it is `a` of the match from 12:01:00 to 12:02:00",
    ]


def test_a_run_that_resumed_another(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.jsonl").write_text('{"k": 1, "at": 0}\n{"k": 1, "at": 1}\n')
    stream = lw.read_jsonl(folder, time="at", unit="s", watermark=lw.Ascending()).key_by("k")
    sunk = stream.match("a b c", within="1h").write_jsonl(tmp_path / "out")
    options: Any = {"state": tmp_path / "state", "until": "available", "trace": True}
    first = sunk.run(**options).trace
    assert first is not None
    assert "the run resumed" not in explain(first, 1, 0)
    (folder / "2.jsonl").write_text('{"k": 1, "at": 2}\n')
    second = sunk.run(**options).trace
    assert second is not None
    assert "rows that came before are not in the trace" in explain(second, 1, 2_000_000)
    assert "rows that came before the run resumed are not in the trace" in str(Diagram.of(second))
