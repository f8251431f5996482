"""The shipped laws: what they catch in a user's pipeline, what they refuse, what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product, starmap
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

import lowwater as lw
from lowwater.pipeline import Pipeline, Stream
from lowwater.testing import (
    Scenario,
    check_batch_equal,
    check_bundle_insensitive,
    check_match_equal_batch,
    check_merge_associative,
    check_no_loss,
    check_order_insensitive,
    check_pane_labels,
    check_retractions_telescope,
    rebundled,
    reordered,
    replay,
    waiting,
)
from lowwater.testing import strategies as lws
from lowwater.testing._broken import timeline
from tests.examples import examples, is_campaign, sampled

DISORDER = (
    Scenario(start="12:00")
    .add((5, "12:00:26", "A"), (7, "12:02:24", "A"), at="12:05")
    .add((3, "12:03:06", "B"))
    .watermark("12:02", at="12:06")
    .add((9, "12:01:26", "A"), (8, "12:02:24", "A"))
)


def sums(stream: Stream) -> Pipeline:
    return (
        stream.key_by("key")
        .window(
            lw.FixedWindows("2m"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="1m",
        )
        .aggregate(total=lw.sum("value"))
    )


@dataclass(frozen=True)
class Latest:
    """A combiner that depends on the order of arrival: the value that came last."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, value: Any) -> Any:
        return value

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        given = [one for one in accumulators if one is not None]
        return given[-1] if given else None

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


@dataclass(frozen=True)
class Longest(Latest):
    """The longest text: right, whatever the order, but for one that loses what is merged first."""

    loses: bool = False

    def create_accumulator(self) -> Any:
        return ""

    def add_input(self, accumulator: Any, value: Any) -> Any:
        return max(accumulator, value, key=lambda text: (len(text), text))

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        given = list(accumulators)[1:] if self.loses else list(accumulators)
        return max(given, key=lambda text: (len(text), text), default="")


# -- replay ---------------------------------------------------------------------------------------


def test_a_replay_is_what_the_scenario_gives_by_itself() -> None:
    wanted = DISORDER.end().run(
        lw.FixedWindows("2m"),
        trigger=lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1)),
        accumulation="retracting",
        allowed_lateness="1m",
        aggregate={"total": lw.sum()},
    )
    assert replay(sums, DISORDER).panes == wanted.panes


def test_a_scenario_takes_the_place_of_a_pipelines_source() -> None:
    rides = [{"landed": "2000-01-01T12:00:26Z", "team": "A", "points": 5}]
    pipeline = (
        lw.from_iterable(rides, time="landed", watermark=lw.BoundedDisorder("5m"))
        .key_by("team")
        .window(lw.FixedWindows("2m"))
        .aggregate(points=lw.sum("points"))
    )
    scenario = Scenario().add(({"points": 2}, "12:00", "B"), ({"points": 3}, "12:01", "B"))
    assert [(pane.key, pane.value) for pane in replay(pipeline, scenario).panes] == [("B", 5)]
    assert [(pane.key, pane.value) for pane in pipeline.run()] == [("A", 5)]
    check_no_loss(pipeline, scenario)


def test_a_pipeline_of_two_sources_is_refused() -> None:
    one = lw.from_iterable([], time="at")
    two = lw.from_iterable([], time="at")
    pipeline = (one | two).key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    with pytest.raises(lw.InvalidArgument, match="reads 2 sources"):
        replay(pipeline, DISORDER)


def test_what_is_no_pipeline_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="neither a pipeline nor a function"):
        replay(lambda stream: stream.key_by("key"), DISORDER)  # type: ignore[arg-type, return-value]
    with pytest.raises(lw.InvalidArgument, match="after its end"):
        replay(sums, DISORDER.end().add((1, "12:09", "A")))


# -- laws -----------------------------------------------------------------------------------------


def test_laws_hold_for_a_pipeline_that_is_right() -> None:
    check_order_insensitive(sums, DISORDER)
    check_bundle_insensitive(sums, DISORDER)
    check_no_loss(sums, DISORDER)
    check_pane_labels(sums, DISORDER)
    check_retractions_telescope(sums, DISORDER)


def test_a_combiner_that_depends_on_the_order_is_caught() -> None:
    def build(stream: Stream) -> Pipeline:
        windowed = stream.key_by("key").window(lw.FixedWindows("2m"))
        return windowed.aggregate(latest=lw.combine(Latest(), "value"))

    with pytest.raises(AssertionError) as broken:
        check_order_insensitive(build, DISORDER)
    said = str(broken.value)
    assert "order of arrival changed final results (S-W7)" in said
    assert "latest=8 in the first order, but 7 in the other" in said
    scope: dict[str, Any] = {"pipeline": build}
    code = said[said.index("from lowwater.testing") : said.index("\n\n12:0")]
    with pytest.raises(AssertionError, match="order of arrival"):
        exec(compile(code, "the message", "exec"), scope)
    assert scope["other"] != scope["scenario"]


def test_steps_that_depend_on_bundles_are_caught() -> None:
    def build(stream: Stream) -> Pipeline:
        first = stream.map_batches(lambda batch: batch.slice(0, 1))  # the first of each bundle
        return first.key_by("key").window(lw.FixedWindows("2m")).aggregate(n=lw.count())

    with pytest.raises(AssertionError, match=r"bundle boundaries .*\(S-O1\)"):
        check_bundle_insensitive(build, DISORDER)


def test_a_stage_that_counts_another_ones_panes_is_caught() -> None:
    def build(stream: Stream) -> Pipeline:
        each = stream.key_by("key").window(
            lw.FixedWindows("1m"), trigger=lw.Always(), accumulation="discarding"
        )
        panes = each.aggregate(n=lw.count()).key_by("key").window(lw.FixedWindows("5m"))
        return panes.aggregate(n=lw.sum("n"), panes=lw.count())

    pair = Scenario().add((1, "12:00:01", "A"), (2, "12:00:02", "A"))
    with pytest.raises(AssertionError, match="panes=1 in the first bundles, but 2 in the others"):
        check_bundle_insensitive(build, pair)


def test_a_wrong_batch_answer_is_caught() -> None:
    def right(records: Any) -> dict[Any, Any]:
        assert [record["value"] for record in records] == [5, 7, 3, 9, 8]
        return {
            ("A", ("12:00", "12:02")): 14,
            ("A", ("12:02", "12:04")): {"total": 15},
            ("B", ("12:02", "12:04")): 3,
        }

    check_batch_equal(sums, right, DISORDER)
    with pytest.raises(AssertionError, match="not in the batch result"):
        check_batch_equal(sums, lambda records: {}, DISORDER)
    with pytest.raises(AssertionError, match="'total': 15"):
        check_batch_equal(
            sums, lambda records: right(records) | {("A", ("12:02", "12:04")): 16}, DISORDER
        )
    with pytest.raises(lw.InvalidArgument, match=r"not \(key, window\)"):
        check_batch_equal(sums, lambda records: {"A": 3}, DISORDER)


def rises(stream: Stream) -> Any:
    return stream.key_by("key").match(
        "low up+", define={"up": lw.col("value") > lw.prev("value")},
        measures={"top": lw.last("value")}, within="5m", allowed_lateness="1m",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("skip", "emit"),
    sampled(
        starmap(pytest.param, product(["past_last", "next"], ["on_time", "final", "early"])),
        every=2,
    ),
)
def test_matches_are_those_of_the_batch(emit: Any, skip: Any) -> None:
    @examples(0.4)
    @given(lws.scenarios(disorder="3m", unit="20s", values=st.integers(0, 5)), lws.patterns())
    def holds(scenario: Scenario, text: str) -> None:
        define = {name: lw.col("value") > at for at, name in enumerate("abc") if name in text}
        check_match_equal_batch(
            lambda stream: stream.key_by("key").match(
                text, define=define, measures={"values": lw.collect("value")}, within="3m",
                emit=emit, skip=skip, allowed_lateness="1m",
            ),
            scenario,
        )  # fmt: skip

    holds()


def test_a_condition_that_remembers_is_caught() -> None:
    asked: list[Any] = []

    def first_time(match: Any) -> bool:
        asked.append(match.row["value"])
        return asked.count(match.row["value"]) < 2

    def once(stream: Stream) -> Any:
        asked.clear()
        return stream.key_by("key").match(
            "low new", define={"new": first_time}, within="5m", allowed_lateness="1m"
        )

    check_match_equal_batch(rises, DISORDER)
    with pytest.raises(AssertionError, match="differs from the matches of a batch") as error:
        check_match_equal_batch(once, DISORDER)
    assert "check_match_equal_batch(build, scenario)" in str(error.value)


def test_what_is_no_match_over_the_elements_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="the function did not build a stage of match"):
        check_match_equal_batch(sums, DISORDER)
    with pytest.raises(lw.InvalidArgument, match="reads another stage"):
        check_match_equal_batch(
            lambda stream: sums(stream).key_by("key").match("a b", within="1h"), DISORDER
        )


def test_pipelines_that_a_law_does_not_apply_to_are_refused() -> None:
    def closing(stream: Stream) -> Pipeline:
        windowed = stream.key_by("key").window(
            lw.FixedWindows("2m"), trigger=lw.AfterCount(2), allow_data_loss="two are enough"
        )
        return windowed.aggregate(n=lw.count())

    for law in (check_order_insensitive, check_bundle_insensitive):
        with pytest.raises(lw.InvalidArgument, match="Repeatedly"):
            law(closing, DISORDER)
    check_no_loss(closing, DISORDER)  # what is dropped as closed is not lost silently

    def discarding(stream: Stream) -> Pipeline:
        windowed = stream.key_by("key").window(lw.FixedWindows("2m"))
        return windowed.aggregate(n=lw.count())

    with pytest.raises(lw.InvalidArgument, match="emits no retractions"):
        check_retractions_telescope(discarding, DISORDER)

    def behind(stream: Stream) -> Pipeline:
        total = sums(stream)
        windowed = total.key_by("key").window(lw.GlobalWindow(), accumulation="accumulating")
        return windowed.aggregate(total=lw.sum("total"))

    with pytest.raises(
        lw.InvalidArgument, match="elements of the last stage may rightly disappear"
    ):
        check_no_loss(behind, DISORDER)


def test_dead_letters_and_duplicates_are_no_loss() -> None:
    def build(stream: Stream) -> Pipeline:
        once = stream.deduplicate(id="value", within="1h")
        return once.key_by("key").window(lw.FixedWindows("2m")).aggregate(n=lw.count())

    scenario = DISORDER.add((5, "12:02:30", "A"), (6, None, "A"), (11, "12:02:31", None))
    assert len(replay(build, scenario).errors) == 2
    check_no_loss(build, scenario)


# -- combiners ------------------------------------------------------------------------------------


def test_combiners_that_may_merge() -> None:
    check_merge_associative(Longest(), ["a", "ccc", "bb", ""])
    check_merge_associative(lw.combine(Longest()), ["a", "ccc", "bb"])
    for aggregate in (lw.sum(), lw.count(), lw.mean(), lw.min(), lw.max(), lw.var()):
        check_merge_associative(aggregate, [3, 1, 2, 2])


def test_combiners_that_may_not() -> None:
    with pytest.raises(AssertionError, match=r"\(c a\) b: 2 instead of 3"):
        check_merge_associative(Latest(), [1, 2, 3])
    with pytest.raises(AssertionError, match="a b c at once"):
        check_merge_associative(Longest(loses=True), ["aaa", "b", "c"])
    with pytest.raises(AssertionError, match="merged every other one first"):
        check_merge_associative(lw.combine(Longest(loses=True)), ["aaa", "b", "c"])
    check_merge_associative(Latest(), [1, 2, 3], equal=lambda one, other: True)
    with pytest.raises(lw.InvalidArgument, match="neither a combiner nor an aggregate"):
        check_merge_associative(sum, [1])  # type: ignore[arg-type]


# -- orders and strategies ------------------------------------------------------------------------


def test_other_orders_and_bundles_of_a_scenario() -> None:
    turned = reordered(DISORDER, [4, 3, 2, 1, 0])
    assert [element.value for element in turned.elements] == [8, 9, 3, 7, 5]
    assert len(turned.steps) == len(DISORDER.steps)
    single = rebundled(DISORDER, [1])
    assert [len(getattr(step, "elements", ())) for step in single.steps] == [1, 1, 1, 0, 1, 1]
    assert rebundled(single, [2, 1]) == DISORDER
    assert str(waiting(DISORDER)).count("12:01:26") == 2
    with pytest.raises(lw.InvalidArgument, match="not a permutation"):
        reordered(DISORDER, [0, 0, 1, 2, 3])
    with pytest.raises(lw.InvalidArgument, match="not sizes"):
        rebundled(DISORDER, [])


def test_scenarios_shrink_to_few_events_in_order() -> None:
    def has_two_keys(scenario: Scenario) -> bool:
        return len({element.key for element in scenario.elements}) > 1

    quick = settings(derandomize=True, database=None, max_examples=500)
    least = find(lws.scenarios(), has_two_keys, settings=quick)
    assert (
        least
        == (Scenario(start="00:00").add((0, "00:00:00", "A", {}), (1, "00:00:00", "B", {})).end())
        or len(least.elements) == 2
    )
    assert [element.time for element in least.elements] == [Scenario().start] * 2
    assert len(least.steps) <= 3
    order = find(
        st.just(DISORDER).flatmap(lws.reorderings), lambda other: other != DISORDER, settings=quick
    )
    moved = [
        at
        for at, (a, b) in enumerate(zip(order.elements, DISORDER.elements, strict=True))
        if a != b
    ]
    assert len(moved) == 2, "two neighbours change places"


def test_what_is_not_late_stays_so() -> None:
    quick = settings(derandomize=True, database=None, max_examples=200 if is_campaign() else 60)

    def drops(scenario: Scenario) -> bool:
        mark = scenario.watermark_at_start
        for step in scenario.steps:
            mark = max(mark, getattr(step, "to", mark))
            if any(element.time < mark for element in getattr(step, "elements", ())):
                return True
        return False

    with pytest.raises(NoSuchExample):
        find(lws.scenarios(late=False), drops, settings=quick)
    assert drops(find(lws.scenarios(late=True), drops, settings=quick))


def test_a_strategy_names_a_field_that_is_not_there() -> None:
    with pytest.raises(lw.InvalidArgument, match="has no size="):
        lws.windowings(size=3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lws.scenarios(keys=[]), r"keys=\[\] \(list\) is not a sequence of at least one"),
        (lambda: lws.scenarios(keys=4), r"keys=4 \(int\)"),  # type: ignore[arg-type]
        (lambda: lws.scenarios(max_steps=0), r"max_steps=0 \(int\) is not a whole number of 1"),
        (lambda: lws.scenarios(values=4), r"values=4 \(int\) is not a strategy.*just\(4\)"),  # type: ignore[arg-type]
        (lambda: lws.scenarios(values=st.nothing()), r"values is nothing\(\)"),
        (lambda: lws.scenarios(columns={"gap": 4}), r"columns\['gap'\]=4"),  # type: ignore[dict-item]
        (lambda: lws.scenarios(columns=4), r"columns=4 \(int\) is not a mapping"),  # type: ignore[arg-type]
        (lambda: lws.scenarios(inputs="left"), "inputs='left' .* is one text"),
        (lambda: lws.scenarios(inputs=("a", "a")), "two inputs have one name"),
        (lambda: lws.scenarios(disorder="-3s"), "disorder='-3s'"),
        (lambda: lws.durations(least=5, most=2), r"most=2 \(int\) is not a whole number of 5"),
        (lambda: lws.durations(least=1.5), r"least=1.5 \(float\)"),  # type: ignore[arg-type]
        (lambda: lws.timestamps(units=-1), r"units=-1 \(int\) is not a whole number of 0"),
        (lambda: lws.windows(gap_column=""), "gap_column='' .* is not the name"),
        (lambda: lws.sessions(gap_column=7), "gap_column=7 .* is not the name"),  # type: ignore[arg-type]
        (lambda: lws.windows(merging=False, gap_column="g"), "is for sessions, which merge"),
        (lambda: lws.triggers(depth=0), r"depth=0 \(int\)"),
        (lambda: lws.triggers(leaves=3), r"leaves=3 \(int\) is not a strategy"),  # type: ignore[arg-type]
        (lambda: lws.windowings(windows=3), "windows=3"),  # type: ignore[arg-type]
        (lambda: lws.windowings(triggers=st.nothing()), r"triggers is nothing\(\)"),
        (lambda: lws.windowings(accumulation="x"), "accumulation='x'"),
        (lambda: lws.windowings(allowed_lateness=-1), "allowed_lateness=-1"),
        (lambda: lws.reorderings(3), r"scenario=3 \(int\) is not a Scenario"),  # type: ignore[arg-type]
        (lambda: lws.bundlings(3), r"scenario=3 \(int\) is not a Scenario"),  # type: ignore[arg-type]
    ],
)
def test_strategies_of_nothing_are_refused_when_they_are_made(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises(lw.InvalidArgument, match=said):
        make()


def test_no_disorder_may_be_written_in_any_form() -> None:
    def is_out_of_order(scenario: Scenario) -> bool:
        times = [element.time for element in scenario.elements]
        return times != sorted(times)

    quick = settings(max_examples=50, database=None)
    for none in (0, "0s"):
        with pytest.raises(NoSuchExample):
            find(lws.scenarios(disorder=none, late=False), is_out_of_order, settings=quick)


def test_a_timeline_shows_the_late_and_the_watermark() -> None:
    shown = timeline(DISORDER, replay(sums, DISORDER).panes)
    assert "9@A late, 8@A" in shown
    assert "watermark 12:02:00 at 12:06:00" in shown
    assert "retracts 5 @A EARLY #0" in shown
    assert all(len(line) < 120 for line in shown.splitlines())


def test_laws_say_nothing_of_late_records(capsys: pytest.CaptureFixture[str]) -> None:
    """A property test runs a law a thousand times."""
    scenario = Scenario().add((1, "12:00:10", "A")).watermark("12:05").add((2, "12:00:20", "A"))

    def counted(stream: Any) -> Any:
        return stream.key_by("key").window(lw.FixedWindows("2m")).aggregate(n=lw.count())

    check_bundle_insensitive(counted, scenario)
    lw.testing.check_pane_labels(counted, scenario)
    out, said = capsys.readouterr()
    assert (out, said) == ("", "")
