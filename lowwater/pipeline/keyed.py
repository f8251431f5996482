"""Grouped streams: by key, by key and window; and how a pipeline is built from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, final

from lowwater.engine.aggregates import AggregateSpec, collect, signed_specs
from lowwater.engine.graph.graph import Stage, Windowed
from lowwater.engine.graph.outline import outline
from lowwater.engine.graph.plan import admission_of
from lowwater.engine.local.process_stage import kind_taken
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.pane_table import RESERVED
from lowwater.engine.records.stateless import AddWhole, require_names
from lowwater.engine.window.result_types import result_type
from lowwater.engine.window.windowing import Accumulation, Closing, OnTime, TimestampRule, Windowing
from lowwater.errors import InvalidArgument
from lowwater.pipeline.checks import (
    STEPS,
    check_adds_up,
    check_lateness,
    check_taken_back_in_time,
    checked_aggregate,
    inherited_lateness,
    no_records,
    no_step,
)
from lowwater.pipeline.pipeline import Pipeline
from lowwater.pipeline.process_stage import Processed, process_stage
from lowwater.time import DurationLike
from lowwater.triggers import Default, Trigger
from lowwater.windows import WindowFunction

if TYPE_CHECKING:
    from lowwater.pipeline.streams import Stream

_WHOLE = HIDDEN + "record"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyedStream:
    """Records grouped by key."""

    _stream: Stream
    _keys: tuple[str, ...]
    _names: tuple[str, ...]

    def __repr__(self) -> str:
        stream = self._stream
        shown = outline(stream._flows, self._names, deduplication=stream._deduplication)
        return f"KeyedStream({shown})"

    def window(
        self,
        windows: WindowFunction | Windowing,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation | None = None,
        allowed_lateness: DurationLike | None = None,
        closing: Closing = "if_new",
        on_time: OnTime = "always",
        timestamps: TimestampRule = "end",
        allow_data_loss: str | None = None,
    ) -> WindowedStream:
        """Group by windows of event time too, and say when and how they are shown.

        Args:
            windows: Where in event time records are grouped; or a whole :class:`Windowing`, then
                alone.
            trigger: When a window is shown; once it is complete, then with every late bundle,
                unless given.
            accumulation: How the panes of a window relate: ``"discarding"``, ``"accumulating"``
                or ``"retracting"``; to be named when the trigger may fire more than once.
            allowed_lateness: How long after its end a window still takes late records: none at
                all, or as long as panes of the stage before may come late (S-C7), unless given.
            closing: Whether an expiring window is shown again with nothing new.
            on_time: Whether the on-time pane comes even with nothing new.
            timestamps: The event time of a pane.
            allow_data_loss: Why it is fine that the trigger may finish too early (S-R3).
        """
        options: dict[str, Any] = {
            "trigger": trigger,
            "accumulation": accumulation,
            "allowed_lateness": allowed_lateness,
            "closing": closing,
            "on_time": on_time,
            "timestamps": timestamps,
            "allow_data_loss": allow_data_loss,
        }
        if isinstance(windows, Windowing):
            given = [name for name, value in options.items() if value != _DEFAULTS[name]]
            if given:
                raise InvalidArgument(
                    f"window takes either a Windowing or {given[0]}=, not both",
                    hint=f"Use windowing.with_({given[0]}=...)",
                )
            return self._windowed(windows)
        options["trigger"] = Default() if trigger is None else trigger
        if allowed_lateness is None:
            options["allowed_lateness"] = inherited_lateness(self._stream._flows)
        return self._windowed(Windowing(windows=windows, **options))

    def _windowed(self, windowing: Windowing) -> WindowedStream:
        check_lateness(windowing.lateness_us, self._stream._flows)
        check_taken_back_in_time(self._stream._flows)
        known = self._stream._known
        if known is not None:
            require_names(windowing.windows.columns, known, "window")
        return WindowedStream(self, windowing)

    def process(self, process: object) -> Processed:
        """Run a computation of the user's own on each key's records: see ``docs/process.md``.

        Args:
            process: An object with ``on_record`` or ``on_records``, and state cells and timers as
                attributes of its class.

        Raises:
            InvalidArgument: It is no process, or records were to be deduplicated before.
        """
        return _processed(self, process, None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = {
                "aggregate": 'Say where in event time first: .window(lw.FixedWindows("1m"))',
                "group": 'Say where in event time first: .window(lw.FixedWindows("1m"))',
            }
            steps = (*STEPS.values(), "deduplicate", "key_by")
            hints |= dict.fromkeys(steps, f"Call .{name}(...) before the records are keyed")
            raise no_step("a keyed stream", name, hints)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WindowedStream:
    """Records grouped by key and window."""

    _keyed: KeyedStream
    _windowing: Windowing

    def __repr__(self) -> str:
        keyed, stream = self._keyed, self._keyed._stream
        shown = outline(
            stream._flows, keyed._names, self._windowing, deduplication=stream._deduplication
        )
        return f"WindowedStream({shown})"

    def aggregate(self, *unnamed: AggregateSpec, **named: AggregateSpec) -> Pipeline:
        """Say what panes show: aggregates, by name or by the name of the function.

        ``aggregate(lw.sum("delay"))`` shows a ``sum``; ``aggregate(total=lw.sum("delay"),
        flights=lw.count())`` shows ``total`` and ``flights``.
        """
        aggregates: dict[str, AggregateSpec] = {}
        for spec in unnamed:
            name = checked_aggregate("an aggregate", spec).name
            if name in aggregates or name in named:
                raise InvalidArgument(
                    f"two aggregates are called {name!r}",
                    where="aggregate",
                    hint=f"Name them: aggregate(first_{name}=..., second_{name}=...)",
                )
            aggregates[name] = spec
        for name, spec in named.items():
            aggregates[name] = checked_aggregate(name, spec)
        if not aggregates:
            raise InvalidArgument(
                "aggregate needs at least one aggregate",
                hint="Write, say, aggregate(n=lw.count()), or use group()",
            )
        return self._built(aggregates, self._keyed._stream)

    def process(self, process: object) -> Processed:
        """Run a computation of the user's own, with state per key and window.

        State is released when the window expires. The trigger and the accumulation play no part.

        Args:
            process: As for :meth:`KeyedStream.process`.

        Raises:
            InvalidArgument: It is no process, or its cells cannot merge as these windows do.
        """
        return _processed(self._keyed, process, self._windowing)

    def group(self, column: str | None = None, *, name: str = "records") -> Pipeline:
        """Show lists, in order of arrival: of whole records, or of one column's values.

        Args:
            column: The column; left out, whole records (plain values where the source gives
                those).
            name: What panes call the list.
        """
        if column is not None:
            return self._built({name: collect(column)}, self._keyed._stream)
        stream = self._keyed._stream._with(AddWhole(_WHOLE))
        return self._built({name: collect(_WHOLE)}, stream)

    def _built(self, aggregates: Mapping[str, AggregateSpec], stream: Stream) -> Pipeline:
        keyed = self._keyed
        for name in aggregates:
            if name in RESERVED or name in keyed._names:
                why = "that is a key" if name in keyed._names else "panes have that already"
                raise InvalidArgument(
                    f"an aggregate cannot be called {name!r}: {why}",
                    where="aggregate",
                    hint=f"Name it, as in aggregate(my_{name}=...)",
                )
        check_adds_up(stream._flows)
        stage = Stage(
            inputs=stream._flows,
            keys=keyed._keys,
            key_names=keyed._names,
            work=Windowed(self._windowing, dict(aggregates)),
            deduplication=stream._deduplication,
        )
        if stage.signed:  # is there a difference where panes show one?
            signed_specs(aggregates, differences=self._windowing.shows_differences)
        if stream._known is not None:
            needed = (spec.column for spec in aggregates.values() if spec.column is not None)
            require_names(needed, stream._known, "aggregate")
        if stream._schema is None:
            return Pipeline(stage, stream._clock)
        admission = admission_of(stream._flows[0], stage, "dead_letter")
        admission.admit(no_records(stream._schema))
        types = {name: stream._schema.field(name).type for name in stream._schema.names}
        results = {name: result_type(spec, types) for name, spec in aggregates.items()}
        return Pipeline(stage, stream._clock, tuple(types[key] for key in keyed._keys), results)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = "Say what to show first: .aggregate(n=lw.count()) or .group()"
            ends = ("run", "run_batches", "collect", "to_arrow", "to_pandas")
            raise no_step(
                "a windowed stream",
                name,
                dict.fromkeys((*ends, "write_parquet", "write_jsonl"), hint),
            )


def _processed(keyed: KeyedStream, process: object, windowing: Windowing | None) -> Processed:
    stream = keyed._stream
    if stream._deduplication is not None:
        raise InvalidArgument(
            "a process does not drop duplicates yet",
            where="deduplicate(...).key_by(...).process",
            hint="Remember the ids in a cell of the process, or put deduplicate before a stage "
            "with windows that the process reads",
        )
    stage = process_stage(stream._flows, keyed._keys, keyed._names, process, windowing)
    if stage.signed and "kind" in (stream._known or ()):
        raise kind_taken()
    return Processed(stage, stream._clock)


_DEFAULTS: dict[str, object] = {
    "trigger": None,
    "accumulation": None,
    "allowed_lateness": None,
    "closing": "if_new",
    "on_time": "always",
    "timestamps": "end",
    "allow_data_loss": None,
}
