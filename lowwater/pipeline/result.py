"""What a run returns: an iterator over its output, or the whole output in memory.

Both explain, draw and count the run in the same way
(:class:`~lowwater.pipeline.traced.Traced`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Self, final

import pyarrow as pa

from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.trace import Trace
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.records.pane_table import readable_table
from lowwater.engine.records.panes import ErrorRecord, LateRecord, Pane
from lowwater.engine.records.stage_output import Emitted
from lowwater.engine.window.standing import Replaced
from lowwater.errors import (
    InvalidArgument,
    NoItems,
    describe,
    explained,
    explains,
    nearest,
    shorten_own,
)
from lowwater.pipeline.forms import (
    BatchT,
    Element,
    ElementForm,
    Form,
    ItemT,
    PaneForm,
    as_pandas,
    as_polars,
)
from lowwater.pipeline.outcomes import Outcomes
from lowwater.pipeline.traced import Traced
from lowwater.pipeline.vocabulary import RESULTS_ELSEWHERE, no_step
from lowwater.time import Instant

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from lowwater.display.palette import Theme
    from lowwater.explain.incident import Incident
    from lowwater.explain.window import WindowLike
    from lowwater.io.paths import PathLike
    from lowwater.pipeline.final import FinalPanes
    from lowwater.viz import GraphDiagram


@explains
@final
class Run(Traced, Iterator[ItemT]):
    """An iterator over the output of a run, which also has the run's metrics and trace.

    Args:
        outcomes: The run.
        items: Reads the output. It must not refer to this object: sources are closed when this
            object is garbage-collected.
    """

    def __init__(self, outcomes: Outcomes, items: Iterator[ItemT]) -> None:
        self._outcomes = outcomes
        self._items = items
        self._is_over = False

    def __iter__(self) -> Self:
        if self._is_over:
            raise InvalidArgument(
                "this run has been iterated to its end, and keeps nothing of what it gave",
                where="run",
                hint="Keep the results, as in panes = list(pipeline.run()) or pipeline.collect(); "
                "or run it again",
            )
        return self

    def __next__(self) -> ItemT:
        try:
            return next(self._items)
        except StopIteration:
            self._is_over = True
            raise
        except Exception as error:
            shorten_own(error)
            raise

    def stop(self) -> None:
        """End the output after what was read so far; open windows emit nothing more.

        May be called from another thread, or between two items.
        """
        self._outcomes.stop()

    @property
    def metrics(self) -> Metrics:
        """The counts and watermarks of the run so far."""
        return self._outcomes.metrics

    @property
    def trace(self) -> Trace:
        """The trace of the run so far; needs ``trace=True``."""
        return self._outcomes.trace()

    def graph(self, *, theme: Theme = "auto") -> GraphDiagram:
        """Draw sources and stages with their current watermarks."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(self._outcomes.graph, self.metrics, theme=theme)

    if not TYPE_CHECKING:

        def __getitem__(self, at: object) -> NoReturn:
            hint = "Take the next one: next(run); or keep them all: pipeline.collect().panes[0]"
            raise NoItems("a run has no items: its panes come one by one", hint=hint)

    def _repr_html_(self) -> str:
        return self.metrics._repr_html_()

    def __repr__(self) -> str:
        return f"<Run, {self.metrics.events} events so far>"


_NOT_OUTPUTS = {
    "final": "For what stands now, write final=True",
    "late": "Late elements are in .late of a result",
    "errors": "Dead letters are in .errors of a result",
    "panes": "Panes are the main output: leave output out",
}
_COLUMNS = "columns are in .to_pandas()"
_INSTEAD = {
    **RESULTS_ELSEWHERE,
    **dict.fromkeys(
        ("to_parquet", "write_parquet", "write_jsonl", "write_to"),
        'Write the pipeline\'s output instead: pipeline.write_parquet("out/").run()',
    ),
}


def batches_of(outcomes: Outcomes, form: Form[ItemT, BatchT]) -> Iterator[BatchT]:
    """Yield the batches of an output while the run proceeds."""
    with closing(iter(outcomes)) as found:
        for outcome in found:
            if (batch := form.batch_of(outcome)) is not None:
                yield batch


def items_of(outcomes: Outcomes, form: Form[ItemT, BatchT]) -> Iterator[ItemT]:
    """Yield the items of an output while the run proceeds."""
    for batch in batches_of(outcomes, form):
        yield from form.items(batch)


def arrow_batches_of(outcomes: Outcomes, form: Form[ItemT, BatchT]) -> Iterator[pa.RecordBatch]:
    """Yield an output as Arrow batches while the run proceeds."""
    for batch in batches_of(outcomes, form):
        yield from form.to_arrow(batch)


@explains
@final
class Result(Traced):
    """The whole output of a run, held in memory: panes or elements, late elements, dead letters.

    Args:
        stage: The stage that was run for its output.
        outcomes: The run.
        nothing: The table without rows.
    """

    def __init__(self, stage: Stage, outcomes: Outcomes, nothing: pa.Table) -> None:
        self._stage = stage
        self._outcomes = outcomes
        self._nothing = nothing
        self._batches: dict[str, list[Any]] = {}  # by output, in its form
        self._replaced: list[Replaced] = []
        self._emitted_rows = 0
        self._late: list[LateElements] = []
        self._errors: list[ErrorRecord] = []
        self._panes: list[Pane] | None = None
        self._late_records: list[LateRecord] | None = None
        self._trace: Trace | None = None
        self._final: FinalPanes | None = None

    def _add(self, outcome: Outcome) -> None:
        self._replaced.extend(Replaced(one, self._emitted_rows) for one in outcome.replaced)
        for output, emitted in outcome.outputs.items():
            self._batches.setdefault(output, []).append(emitted)
            self._emitted_rows += len(emitted)
        if outcome.late is not None:
            self._late.append(outcome.late.compact())
        self._errors.extend(outcome.errors)

    @property
    def panes(self) -> list[Pane]:
        """The panes of a windowed stage, in the order of emission."""
        if not self._stage.work.emits_panes:
            hints = {"panes": "A process emits elements: .elements(), .values()"}
            raise no_step("the result of a process", "panes", hints)
        if self._panes is None:
            self._panes = [pane for batch in self._batches.get(MAIN, ()) for pane in batch]
        return self._panes

    def elements(self, output: str = MAIN) -> list[Element]:
        """Return what a process emitted to an output, in order.

        Args:
            output: The tag of the output.
        """
        form = ElementForm(self._stage.key_names, output)
        return [each for part in self._emitted("elements", output) for each in form.items(part)]

    def values(self, output: str = MAIN) -> list[Any]:
        """Return the values that a process emitted to an output, in order.

        Args:
            output: The tag of the output.
        """
        return [value for part in self._emitted("values", output) for value in part.to_list()]

    def _emitted(self, asked: str, output: str) -> list[Emitted]:
        if self._stage.work.emits_panes:
            hints = {asked: "A windowed stage emits panes: .panes"}
            raise no_step("the result of a windowed stage", asked, hints)
        return self._of(output)

    def _of(self, output: str) -> list[Any]:
        """Return the batches of an output."""
        outputs = self._stage.work.outputs
        if output not in outputs:
            raise InvalidArgument(
                f"there is no output {output!r}",
                hint=_NOT_OUTPUTS.get(str(output)) or nearest(str(output), outputs),
            )
        return self._batches.get(output, [])

    @property
    def late(self) -> list[LateRecord]:
        """The elements dropped from one of their windows, with the reason."""
        if self._late_records is None:
            self._late_records = [late for part in self._late for late in part.to_records()]
        return self._late_records

    @property
    def errors(self) -> list[ErrorRecord]:
        """The dead letters (S-B1)."""
        return self._errors

    @property
    def metrics(self) -> Metrics:
        """The counts and watermarks of the run."""
        return self._outcomes.metrics

    @property
    def trace(self) -> Trace:
        """The trace of the run; needs ``collect(trace=True)``."""
        if self._trace is None:
            self._trace = self._outcomes.trace()
        return self._trace

    def graph(self, *, theme: Theme = "auto") -> GraphDiagram:
        """Draw sources and stages with their watermarks at the end."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(self._outcomes.graph, self.metrics, theme=theme)

    @explained()
    def scenario(
        self, key: Any, window: WindowLike | None = None, *, of: str | None = None
    ) -> Incident:
        """Return a test in Python that repeats what was emitted of a window; needs ``trace=True``.

        It has the fewest elements and bundles after which the window emits the same: the same
        panes, with the same values, timing and kind, and the same late records. Of the run of a
        scenario use :func:`lowwater.testing.incident`; see ``docs/howto/incident.md``.

        Args:
            key: The key: a plain value, or a tuple for several key columns.
            window: The window, a ``(start, end)`` pair, or an instant inside; of a stage without
                windows the event time of what it emitted. All of the key if left out.
            of: Where the test can import the pipeline from, ``"module:pipeline"``. Without it, the
                test has windows and aggregates as code if they can be, and else a parameter.

        Raises:
            InvalidArgument: Nothing was emitted of the window, and nothing dropped from it; or the
                trace does not have all that is needed.
        """
        # Scenarios stand above this room, and the test comes from there.
        testing = import_module("lowwater.testing.incidents")
        found: Incident = testing.incident(self, key, window, of=of)
        return found

    def report(self, path: PathLike, *, theme: Theme = "auto") -> None:
        """Write what the run did to one HTML file, for a browser; it needs no server.

        It has the graph, the counts, watermarks and dropped records of each stage and source, dead
        letters, and of a run with ``trace=True`` diagrams of the busiest keys. With ``serve=True``
        it also has how fast the run was, from its beginning to its end. See
        ``docs/howto/watch.md``.

        Args:
            path: A file whose name ends in ``.html``; it is replaced.
            theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.

        Raises:
            InvalidArgument: The name ends otherwise, or the file cannot be written.
        """
        # Imported on use: few results are reported.
        from lowwater.live.report import write_report

        watch = self._outcomes.watched(self._late, self._errors)
        write_report(watch, path, where="Result.report", theme=theme)

    def final(self) -> FinalPanes:
        """Return what stands now: for each key and window the net of all panes.

        *Accumulating* and *retracting* (S-A2, S-A3): the last pane of the window, unless it was
        retracted. *Discarding* (S-A1): the results of all its panes, combined. Windows that have
        merged into others do not stand; what their panes contained is in the merged window.

        Raises:
            InvalidArgument: The output is that of a process or a join; or the stage is discarding,
                may emit several panes per window, and computes an aggregate whose results cannot be
                combined, such as ``mean``.
        """
        from lowwater.pipeline.final import FinalPanes

        work, windowing = self._stage.work, self._stage.windowing
        if not work.emits_panes:
            raise _no_final(work.noun)
        if self._final is None:
            self._final = FinalPanes.of(
                self._batches.get(MAIN, []), self._replaced, windowing, work.aggregates,
                self._stage.key_names, self._nothing,
            )  # fmt: skip
        return self._final

    def to_arrow(self, output: str = MAIN, *, final: bool = False) -> pa.Table:
        """Return the panes, or the elements of an output, as an Arrow table with a row for each.

        Panes have the columns of ``panes_to_arrow``, with text in ``timing`` and ``kind``;
        ``weight``, which is 1 for an insert and -1 for a retraction, so that sums over a column
        times ``weight`` are right (left out if a key or an aggregate has that name); and null in
        ``emitted_at`` and ``watermark`` where these are not known yet, or beyond all times.
        Elements have the keys, their fields and ``timestamp``. A column whose values have no common
        Arrow type holds msgpack; its metadata says so.

        Args:
            output: The tag of an output of a process.
            final: Whether to return only what stands now: see :meth:`final`.
        """
        batches, keys = self._of(output), self._stage.key_names
        if not isinstance(final, bool):
            raise InvalidArgument(
                f"{describe('final', final)} is neither True nor False", hint="Write final=True"
            )
        if final:
            return self.final().to_arrow()
        if not self._stage.work.emits_panes:
            return ElementForm(keys, output).table(batches) if batches else self._nothing
        return PaneForm(keys).table(batches) if batches else readable_table(self._nothing)

    def to_pandas(self, output: str = MAIN, *, final: bool = False) -> pd.DataFrame:
        """Return the same as a pandas DataFrame.

        A column whose values have no common Arrow type holds the Python values.

        Args:
            output: The tag of an output of a process.
            final: Whether to return only what stands now: see :meth:`final`.
        """
        return as_pandas(self.to_arrow(output, final=final))

    def to_polars(self, output: str = MAIN, *, final: bool = False) -> pl.DataFrame:
        """Return the same as a polars DataFrame; needs ``pip install "lowwater[polars]"``.

        A column whose values have no common Arrow type holds the Python values.

        Args:
            output: The tag of an output of a process.
            final: Whether to return only what stands now: see :meth:`final`.
        """
        return as_polars(self.to_arrow(output, final=final))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export :meth:`to_arrow`, so that ``pa.table(result)`` and polars and DuckDB read it."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from lowwater.viz.output_html import Rejected, elements_html, panes_html

        metrics, keys = self.metrics, self._stage.key_names
        late = (record for part in self._late for record in part.to_records())
        rejected = Rejected(metrics.late, metrics.errors, late, self._errors)
        name = f"Result of {metrics.events:,} events"
        if self._stage.work.emits_panes:
            panes = (pane for batch in self._batches.get(MAIN, ()) for pane in batch)
            of = metrics.stages[self._name()]
            counts = {**of.panes, "retract": of.retractions}
            return panes_html(name, panes, counts, rejected, keys=keys)
        outputs = {
            tag: (self._emissions(tag), sum(map(len, self._of(tag))))
            for tag in self._stage.work.outputs
        }
        return elements_html(name, outputs, rejected, keys=keys)

    def _emissions(self, output: str) -> Iterator[tuple[Any, Any, Instant]]:
        form = ElementForm(self._stage.key_names, output)
        for part in self._of(output):
            yield from ((each.key, each.value, each.timestamp) for each in form.items(part))

    def _name(self) -> str:
        return self._outcomes.graph.name_of(self._stage)

    if not TYPE_CHECKING:

        def __getitem__(self, at: object) -> NoReturn:  # and so it is for `for ... in result`
            found = ".panes" if self._stage.work.emits_panes else ".elements()"
            hint = f"They are in {found}, as in result{found}[0]; {_COLUMNS}"
            raise NoItems("a result has no items", hint=hint)

        def __getattr__(self, name: str) -> NoReturn:
            if isinstance(own := getattr(type(self), name, None), property):
                own.__get__(self)  # it has said better what is wrong
            raise no_step("a result", name, _INSTEAD, dir(type(self)))

    def __repr__(self) -> str:
        metrics = self.metrics
        if not self._stage.work.emits_panes:
            name = "emitted"
            counts = {output: sum(map(len, parts)) for output, parts in self._batches.items()}
        else:
            name, counts = "panes", dict(metrics.panes)
        given = ", ".join(f"{number} {kind}" for kind, number in counts.items())
        return (
            f"Result({metrics.events} events, {name}: {given or 'none'}, "
            f"{metrics.late.total()} late, {metrics.errors.total()} errors)"
        )


def _no_final(noun: str) -> InvalidArgument:
    each = f"Each element that a {noun} emits stands by itself"
    if noun == "join":
        each = "A record of a join stands until it is retracted, and kind says which retract"
    hint = (
        f"{each}: .elements(), or to_pandas() without final=True. Only a stage with "
        ".window(...).aggregate(...) emits panes"
    )
    return no_step(f"the result of a {noun}", "final", {"final": hint})
