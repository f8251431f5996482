"""What a process emits, as a stream, as something to run, and as something to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, final

from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import MAIN, Computed, Flow, Graph, Stage
from lowwater.engine.graph.outline import output_suffix, stage_outline
from lowwater.engine.graph.plan import Plan
from lowwater.engine.local.delivery import Sink
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.emitted import TIME, emitted_table
from lowwater.engine.records.stateless import BatchFunction, RecordFunction
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InternalError, InvalidArgument, describe, nearest
from lowwater.explain.graph_text import explain_graph, mermaid_graph
from lowwater.io.paths import PathLike
from lowwater.pipeline.checks import no_step
from lowwater.pipeline.elements import Elements, ProcessResult
from lowwater.pipeline.outputs import Writing, jsonl_sink, parquet_sink
from lowwater.pipeline.run import Outcomes, RunOptions

if TYPE_CHECKING:
    import narwhals as nw

    from lowwater.pipeline.keyed import KeyedStream
    from lowwater.pipeline.pipeline import Pipeline
    from lowwater.pipeline.streams import Key, Stream
    from lowwater.viz import GraphDiagram


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Processed:
    """A keyed computation: made by ``process``. It goes on as a stream of what is emitted.

    The records behind it have the keys, and the fields of what was emitted (a plain value is a
    column ``value``); their event time is the one they were emitted with.
    """

    _stage: Stage
    _clock: ClockLike | None = None
    _output: str = MAIN

    def __repr__(self) -> str:
        return f"Processed({stage_outline(self._stage)}{output_suffix(self._output)})"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tags that the process may emit to, the main one first."""
        work = self._stage.work
        return work.outputs if isinstance(work, Computed) else (MAIN,)

    def output(self, tag: str) -> Processed:
        """Return the same computation, with what it emits to ``tag`` as what goes on from it."""
        if tag not in self.outputs:
            raise InvalidArgument(
                f"the process has no output {tag!r}", hint=nearest(str(tag), self.outputs)
            )
        return replace(self, _output=tag)

    def named(self, name: str) -> Processed:
        """Return the same computation, called ``name`` in metrics and explanations."""
        if not isinstance(name, str) or not name:
            raise InvalidArgument(
                f"{describe('name', name)} is not a name", hint='Write, say, named("joined")'
            )
        return replace(self, _stage=replace(self._stage, name=name))

    def explain(self) -> str:
        """Return the stages in words."""
        return explain_graph(Graph.of([self._stage]))

    def to_mermaid(self) -> str:
        """Return the graph of stages as Mermaid text."""
        return mermaid_graph(Graph.of([self._stage]))

    def graph(self) -> GraphDiagram:
        """Return the graph of stages as a picture."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(Graph.of([self._stage]))

    def run(self, **options: Unpack[RunOptions]) -> Elements:
        """Run, and give what is emitted to this output one by one as it comes.

        What comes back is an iterator that also has ``metrics``.
        """
        return Elements(Outcomes((self._stage,), options), self._output)

    def collect(self, **options: Unpack[RunOptions]) -> ProcessResult:
        """Run to the end and keep everything, of all outputs."""
        run = Outcomes((self._stage,), options)
        result = ProcessResult(self._stage.key_names, run)
        for outcome in run:
            for tag, emitted in outcome.emitted.items():
                result._emitted.setdefault(tag, []).append(emitted)
            if outcome.late is not None:
                result.late.extend(outcome.late.to_records())
            result.errors.extend(outcome.errors)
        return result

    def write_parquet(self, folder: PathLike, *, overwrite: bool = False) -> Writing:
        """Return it with Parquet files as its output: see ``Pipeline.write_parquet``."""
        return self._to(parquet_sink(folder, overwrite=overwrite))

    def write_jsonl(self, path: PathLike, *, overwrite: bool = False) -> Writing:
        """Return it with JSON lines as its output: see ``Pipeline.write_jsonl``."""
        return self._to(jsonl_sink(path, overwrite=overwrite))

    def write_to(self, *sinks: Sink) -> Writing:
        """Return it with sinks as its output; tables of panes refuse records without windows."""
        return self._to(*sinks)

    def to_stream(self) -> Stream:
        """Return what is emitted to this output as a stream."""
        from lowwater.pipeline.streams import Stream  # streams lead to processes, and on

        return Stream((Flow(self._stage, (), TIME, None, self._output),), self._clock)

    def to_spark(self, spark: Any, **options: Any) -> NoReturn:
        """Raise ``UnsupportedByRunner``: Spark cannot run processes; the error says what can be."""
        Plan.of(self._stage, "to_spark")
        raise InternalError("a process was planned for Spark")

    def filter(self, condition: nw.Expr | Callable[[Any], bool]) -> Stream:
        """Go on with what is emitted: see :meth:`Stream.filter`."""
        return self.to_stream().filter(condition)

    def with_columns(self, *expressions: nw.Expr, **named: nw.Expr) -> Stream:
        """Go on with what is emitted: see :meth:`Stream.with_columns`."""
        return self.to_stream().with_columns(*expressions, **named)

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Stream:
        """Go on with what is emitted: see :meth:`Stream.select`."""
        return self.to_stream().select(*expressions, **named)

    def map(self, function: RecordFunction) -> Stream:
        """Go on with what is emitted: see :meth:`Stream.map`."""
        return self.to_stream().map(function)

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Stream:
        """Go on with what is emitted: see :meth:`Stream.flat_map`."""
        return self.to_stream().flat_map(function)

    def map_batches(self, function: BatchFunction) -> Stream:
        """Go on with what is emitted: see :meth:`Stream.map_batches`."""
        return self.to_stream().map_batches(function)

    def key_by(self, *keys: Key, **named: nw.Expr) -> KeyedStream:
        """Go on with what is emitted: see :meth:`Stream.key_by`."""
        return self.to_stream().key_by(*keys, **named)

    def union(self, *others: Stream | Pipeline | Processed) -> Stream:
        """Bring what is emitted together with other streams: see :meth:`Stream.union`."""
        return self.to_stream().union(*others)

    def __or__(self, other: Stream | Pipeline | Processed) -> Stream:
        return self.to_stream().union(other)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            collected = f"Run it first: .collect().{name}()"
            group = f'Group what is emitted first: .key_by("...").{name}(...)'
            hints = {
                **dict.fromkeys(("to_arrow", "to_pandas", "elements", "values"), collected),
                **dict.fromkeys(("window", "process"), group),
                **dict.fromkeys(
                    ("aggregate", "group"),
                    'Group what is emitted first: .key_by("...").window(...).aggregate(...)',
                ),
                "deduplicate": "Call .to_stream().deduplicate(...)",
                "run_batches": "Use run() or collect()",
            }
            raise no_step("a process", name, hints)

    def _to(self, *sinks: Sink) -> Writing:
        empty = emitted_table((), self._stage.key_names)
        return Writing(self._stage, empty, sinks, self._output)


def process_stage(
    flows: Sequence[Flow],
    keys: tuple[str, ...],
    names: tuple[str, ...],
    process: object,
    windowing: Windowing | None,
) -> Stage:
    """Return the stage of a process, checked.

    Raises:
        InvalidArgument: The object is no process, or not one for these windows.
    """
    definition = Definition.of(process, windowing)
    work = Computed(process, windowing, definition.outputs)
    return Stage(tuple(flows), keys, names, work)
