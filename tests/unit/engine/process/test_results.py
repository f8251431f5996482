"""What runs of a process give: as it comes, and held in memory."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw


class Mixed:
    """Emits numbers and text."""

    other = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"x": record["v"] if record["v"] % 2 else "even"})
        ctx.emit(record["v"], tag="other")


def mixed() -> lw.Processed:
    rows = [{"at": at * 1_000_000, "k": "a", "v": at} for at in range(4)]
    return lw.from_iterable(rows, time="at", clock=lw.ManualClock(0)).key_by("k").process(Mixed())


def test_options_are_checked_when_a_run_is_asked_for() -> None:
    with pytest.raises(lw.InvalidArgument, match="no option 'bundel_size'"):
        mixed().run(bundel_size=1)  # type: ignore[call-arg]


def test_a_run_has_metrics_as_it_goes() -> None:
    run = mixed().output("other").run(bundle_size=1, trace=True)
    assert [next(run).value, next(run).value] == [0, 1]
    assert run.metrics.events == 2
    assert repr(run) == "<Run, 2 events so far>"
    assert [element.value for element in run] == [2, 3]
    assert run.metrics.events == len(run.trace.stages[0].elements) == 4
    assert "watermark" in str(run.graph())


def test_what_was_emitted_as_a_data_frame() -> None:
    result = mixed().collect()
    assert result.to_pandas()["x"].to_list() == ["even", 1, "even", 3]
    assert result.to_pandas("other")["value"].to_list() == [0, 1, 2, 3]
    assert list(result.to_pandas().columns) == ["k", "x", "timestamp"]


def test_a_result_can_be_looked_into() -> None:
    with pytest.raises(lw.InvalidArgument, match="was not traced"):
        _ = mixed().collect().trace
    result = mixed().collect(trace=True)
    assert len(result.trace.stages[0].elements) == 4
    assert "it was received" in str(result.why({"v": 1}))
    assert "a process without windows" in str(result.diagram())
    assert "watermark" in str(result.graph())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("elements", r"\.collect\(\)\.elements\(\)"),
        ("window", r'\.key_by\("\.\.\."\)\.window\(\.\.\.\)'),
        ("aggregate", r"\.aggregate\(\.\.\.\)"),
    ],
)
def test_what_a_process_has_not_is_told_with_what_has(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"a process has no '{name}'(.|\n)*{hint}"):
        getattr(mixed(), name)
    with pytest.raises(AttributeError, match=r"no 'panes'(.|\n)*elements\(\)"):
        _ = mixed().collect().panes


class SideFirst:
    side = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"of": "side"}, tag="side")
        ctx.emit({"of": "main"})


@pytest.mark.parametrize("order", [("main", "side"), ("side", "main")])
def test_outputs_in_a_union_come_in_its_order(order: tuple[str, str]) -> None:
    """S-C5: it does not depend on which output the process emits to first."""
    source = lw.from_iterable([{"at": 1, "key": "k"}], time="at")
    made = source.key_by("key").process(SideFirst())
    first, second = (made.output(tag).to_stream() for tag in order)
    panes = (
        (first | second)
        .key_by("key")
        .window(
            lw.GlobalWindow(),
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="discarding",
        )
        .aggregate(of=lw.collect("of"))
        .collect()
        .panes
    )
    assert [pane.value for pane in panes] == [[order[0]], [order[1]]]
