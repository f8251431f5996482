"""Builds the stages of windows of a number of records, and checks them."""

from __future__ import annotations

from collections.abc import Mapping

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.graph.graph import Stage, is_signed
from lowwater.engine.records.stateless import require_names
from lowwater.engine.stages.counted import Counted
from lowwater.errors import InvalidArgument
from lowwater.pipeline.checks import check_adds_up, check_no_table
from lowwater.pipeline.stages import StreamParts, check_names
from lowwater.pipeline.window_options import WindowOptions
from lowwater.windows.counted import CountWindows


def refuse_options(options: WindowOptions) -> None:
    """Raise if windows of a count are given what only windows of event time have."""
    for name in options.given():
        raise InvalidArgument(
            f"{name}= is for windows of event time: a window of a number of records emits one "
            "pane, with the record that fills it, and no record is late for it",
            where=f"window({name}=)",
            hint=f"Leave {name}= out; or use Repeatedly(AfterCount(100)) in windows of event time, "
            "which is judged once per bundle",
        )


def count_stage(
    stream: StreamParts,
    keys: tuple[str, ...],
    names: tuple[str, ...],
    windows: CountWindows,
    aggregates: Mapping[str, AggregateSpec],
) -> Stage:
    """Return the stage, checked as far as can be without running.

    Raises:
        InvalidArgument: An aggregate has a reserved name or reads a column that is missing, or the
            input may retract records (C-4).
    """
    check_names(aggregates, names)
    check_no_table(stream._flows, "window")
    check_adds_up(stream._flows)
    if any(map(is_signed, stream._flows)):
        raise InvalidArgument(
            "the input may retract records, and a window of a number of records that is full "
            "cannot be filled again",
            where="window(CountWindows)",
            hint='Use windows of event time, or upstream accumulation="discarding" or '
            'unmatched="final", which retract nothing',
        )
    work = Counted(windows, dict(aggregates))
    if stream._known is not None:
        require_names(strictest_needs(aggregates), stream._known, "aggregate")
    return Stage(stream._flows, keys, names, work, stream._deduplication)
