"""Values that can be run offer the same, and so do values that go on as records."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.pipeline.fluent import RecordSteps
from lowwater.pipeline.outputs import Writing
from lowwater.pipeline.runnable import Runnable
from lowwater.pipeline.tables import GroupedTable

ROWS = [{"t": 1, "k": "a", "v": 1}, {"t": 2, "k": "b", "v": 2}]
VALUES = [lw.Stream, lw.KeyedStream, lw.WindowedStream, lw.Pipeline, lw.Processed]
RUNNABLE = [each for each in VALUES if issubclass(each, Runnable)]
RECORDS = [each for each in VALUES if issubclass(each, RecordSteps)]


class Passed:
    def on_record(self, record: dict[str, Any], ctx: lw.ProcessContext) -> None:
        ctx.emit(record)


def keyed() -> lw.KeyedStream:
    return lw.from_iterable(ROWS, time="t", clock=lw.ManualClock(0)).key_by("k")


def runnables() -> list[lw.Stream | lw.Pipeline | lw.Processed]:
    windowed = keyed().window(lw.FixedWindows("1s"))
    return [
        lw.from_iterable(ROWS, time="t", clock=lw.ManualClock(0)),
        windowed.aggregate(n=lw.count()),
        keyed().process(Passed()),
        windowed.process(Passed()),
    ]


def public(kind: type) -> dict[str, object]:
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") or name == "__or__"
    }


def test_which_values_are_which() -> None:
    assert [lw.Stream, lw.Pipeline, lw.Processed] == RUNNABLE
    assert [lw.Stream, lw.Pipeline, lw.Processed] == RECORDS


@pytest.mark.parametrize(
    ("base", "kinds", "least"),
    [
        (
            Runnable,
            RUNNABLE,
            (
                "run run_batches to_arrow_batches collect to_arrow to_pandas "
                "write_parquet write_jsonl write_to to_spark explain to_mermaid graph"
            ),
        ),
        (
            RecordSteps,
            RECORDS,
            (
                "filter with_columns select map flat_map explode map_batches deduplicate union "
                "__or__ key_by"
            ),
        ),
    ],
)
def test_what_they_share_is_written_once(base: type, kinds: list[type], least: str) -> None:
    shared = public(base)
    assert set(least.split()) <= set(shared)
    for kind in kinds:
        own = public(kind)
        for name, method in shared.items():
            if name == "to_stream":  # the hook itself: each says what its records are
                signatures = [inspect.signature(getattr(each, name)) for each in (kind, base)]
                assert signatures[0] == signatures[1]
            else:
                assert own[name] is method, f"{kind.__name__}.{name} is written again"


def test_no_runnable_has_a_way_to_run_or_write_that_another_lacks() -> None:
    names = [
        {name for name in public(kind) if name.startswith(("run", "write", "to_", "collect"))}
        for kind in RUNNABLE
    ]
    assert [one - {"to_stream"} for one in names[1:]] == [names[0] - {"to_stream"}] * 2


@pytest.mark.parametrize("base", [Runnable, RecordSteps])
def test_shared_methods_are_documented_and_typed(base: type) -> None:
    for name, method in public(base).items():
        function: Any = method
        assert name.startswith("__") or inspect.getdoc(function), name
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty, name
        parameters = list(signature.parameters.values())[1:]
        assert all(each.annotation is not each.empty for each in parameters), name


@pytest.mark.parametrize(
    "kind",
    [*VALUES, lw.JoinedStream, lw.Table, GroupedTable, lw.Run, lw.Result, lw.RunHandle, Writing],
)
def test_calls_that_do_not_fit_are_explained(kind: type) -> None:
    """Of every method: none answers with the TypeError of Python."""
    for name, method in public(kind).items():
        if not inspect.isfunction(method) or name == "__or__":
            continue
        takes_any = inspect.unwrap(method).__code__.co_flags & inspect.CO_VARKEYWORDS
        if not takes_any:  # else it may be an option or a column
            with pytest.raises(lw.InvalidArgument, match=f"'no_such'.*at {name}"):
                method(object.__new__(kind), no_such=1)


@pytest.mark.parametrize("kind", VALUES)
def test_they_are_final_frozen_values_with_slots(kind: type) -> None:
    assert getattr(kind, "__final__", False)
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    for each in kind.__mro__[:-1]:
        assert "__slots__" in vars(each) or each.__module__ == "abc", each


@pytest.mark.parametrize("value", runnables(), ids=repr)
def test_all_ways_to_run_agree(
    value: lw.Stream | lw.Pipeline | lw.Processed, tmp_path: Path
) -> None:
    items = list(value.run())
    result = value.collect()
    assert items == (result.panes if isinstance(value, lw.Pipeline) else result.elements())
    assert len(items) == sum(map(len, value.run_batches())) == 2
    table = value.to_arrow()
    assert table.num_rows == sum(batch.num_rows for batch in value.to_arrow_batches()) == 2
    shown = table.drop_columns([n for n in ("emitted_at",) if n in table.column_names])
    assert shown.equals(result.to_arrow().select(shown.column_names))
    assert len(value.to_pandas()) == 2
    assert value.write_parquet(tmp_path / "out").run().events == 2
    run = value.run(trace=True)
    assert len(list(run)) == 2
    assert run.metrics.events == len(run.trace.stages[0].elements) == 2


def test_an_output_is_followed_by_each_way_to_run() -> None:
    class Two:
        odd = lw.output()

        def on_record(self, record: dict[str, Any], ctx: lw.ProcessContext) -> None:
            ctx.emit(record["v"], tag="odd" if record["v"] % 2 else "main")

    odd = keyed().process(Two()).output("odd")
    assert [element.value for element in odd.run()] == [1]
    assert odd.to_arrow()["value"].to_pylist() == odd.to_pandas()["value"].to_list() == [1]
    assert [batch["value"].to_pylist() for batch in odd.to_arrow_batches()] == [[1]]
    assert odd.collect().values("odd") == [1]
    with pytest.raises(lw.InvalidArgument, match="no output 'even'"):
        odd.collect().values("even")


def test_a_result_of_windows_has_no_elements() -> None:
    result = runnables()[1].collect()
    for ask in (result.elements, result.values):
        with pytest.raises(AttributeError, match=r"windowed stage has no(.|\n)*\.panes"):
            ask()


def test_what_a_process_emits_may_be_deduplicated() -> None:
    made = runnables()[2].deduplicate(id="v", within="1m")
    assert made.key_by("k").window(lw.FixedWindows("1s")).aggregate(n=lw.count()).collect().panes
