"""How the graph of a run differs from the one that its state directory belongs to.

A pipeline may gain sources, stages, outputs and inputs of stages at a restart. It loses what its
user names. What has one name before and after must be the same: then it resumes from its state.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from lowwater.engine.graph.graph import Graph, is_signed
from lowwater.engine.local.compatibility import (
    changes,
    other_tables,
    output_name,
    stored_stages,
    with_reloaded,
)
from lowwater.engine.local.delivery import OUTPUTS
from lowwater.engine.local.pieces import RunOutput
from lowwater.engine.local.run_record import StoredOutput, stored_outputs
from lowwater.engine.local.source_reader import Input
from lowwater.errors import InvalidArgument, StateError
from lowwater.state.formats import decoding

_AUTOMATIC = re.compile(r"(source|stage) \d+'*")
_MOVED = "if files were moved: python -m lowwater state relocate {} OLD NEW"


def is_automatic(name: str) -> bool:
    """Whether a name was made from the number of a source or stage, which may change.

    >>> is_automatic("stage 2"), is_automatic("counts")
    (True, False)
    """
    return _AUTOMATIC.fullmatch(name) is not None


@final
@dataclass(frozen=True, slots=True)
class GraphChange:
    """How a graph differs from the one that a state directory belongs to.

    Args:
        gained: The names of sources and stages that are new.
        lost: The names of those that are gone.
        outputs: The outputs of the run.
        outputs_given: How many numbers of outputs have been given.
        lost_outputs: The outputs that are gone.
        inputs: What each kept input of a kept stage is now, by what it was.
        gaining: The names of kept stages that have new inputs.
    """

    gained: tuple[str, ...]
    lost: tuple[str, ...]
    outputs: tuple[StoredOutput, ...]
    outputs_given: int
    lost_outputs: tuple[StoredOutput, ...]
    inputs: Mapping[Input, Input]
    gaining: tuple[str, ...]

    @property
    def is_any(self) -> bool:
        """Whether anything has changed but outputs that are new."""
        return bool(self.gained or self.lost or self.lost_outputs or self.gaining)

    def to_text(self) -> str:
        """Describe the change in a few words, for the log."""
        parts = [("gains", name) for name in self.gained]
        parts += [("gains an input of", name) for name in self.gaining]
        parts += [("loses", name) for name in self.lost]
        parts += [("loses the output of", output.name) for output in self.lost_outputs]
        return ", ".join(f"{what} {name!r}" for what, name in parts)


def find_change(
    graph: Graph,
    description: Mapping[str, Any],
    outputs: Sequence[RunOutput],
    record: Mapping[str, Any] | None,
    *,
    remove: Collection[str] = (),
    path: str = "",
) -> GraphChange:
    """Return how a run differs from the record of the last one.

    A longer lateness, further paths to read, another watermark estimator and other sinks are no
    change: nothing that is stored depends on them.

    Args:
        graph: The graph of the run.
        description: What :func:`describe_graph` says of it.
        outputs: Its outputs.
        record: The record of the last run; ``None`` for a new state directory.
        remove: What may be gone, by name.
        path: The state directory.

    Raises:
        StateError: The graph cannot resume from this state; the message names what differs.
        InvalidArgument: Something that may be gone is there.
    """
    now = [
        StoredOutput(
            -1,
            output_name(graph, graph.stages[output.stage], output.tag),
            text,
            tuple(output.places),
        )
        for output, text in zip(outputs, description["outputs"], strict=True)
    ]
    _refuse_kept(remove, graph, now)
    if record is None:
        numbered = tuple(_numbered(output, at) for at, output in enumerate(now))
        return GraphChange((), (), numbered, len(now), (), {}, ())
    with decoding("the description of the pipeline"):
        return _Comparison(graph, description, now, record, frozenset(remove), path).change()


@final
class _Comparison:
    """Compares a graph with the record of a run."""

    def __init__(
        self,
        graph: Graph,
        description: Mapping[str, Any],
        outputs: Sequence[StoredOutput],
        record: Mapping[str, Any],
        remove: frozenset[str],
        path: str,
    ) -> None:
        self._graph = graph
        self._now = description
        self._outputs = outputs
        self._record = record
        self._was = record["description"]
        self._remove = remove
        self._path = path
        self._gained = list(_only_in(description, self._was))
        self._lost = list(_only_in(self._was, description))
        self._inputs: dict[Input, Input] = {}
        self._gaining: list[str] = []

    def change(self) -> GraphChange:
        """Return the change.

        Raises:
            StateError: See :func:`find_change`.
        """
        before = stored_outputs(self._record)
        matched = _matched(before, self._outputs)
        lost_outputs = [one for at, one in enumerate(before) if at not in matched]
        differs = [
            *self._parts(),
            *self._orders(),
            *self._outputs_in_order(before, matched),
            *(
                f"{name} was {self._was[name]!r} and is {self._now[name]!r}"
                for name in ("clock", "bundle_size")
                if self._was[name] != self._now[name]
            ),
        ]
        untold = {
            name: f"the {self._kind(name)} {name!r}"
            for name in self._lost
            if name not in self._remove
        }
        untold |= {
            self._word_for(one): f"the output of {one.name!r}" + _to(one)
            for one in lost_outputs
            if self._stage_of(one) not in self._lost
            and self._word_for(one) not in self._remove
            and not self._remove.intersection(one.places)
        }
        differs += [f"{what} {self._gone(name, lost_outputs)}" for name, what in untold.items()]
        differs += [
            f"{name!r} is the name of a source and of a stage, before and after: name it otherwise"
            for name in self._lost
            if name in self._gained
        ]
        unnamed = [name for name in self._gained if is_automatic(name)]
        differs += [f"the {self._kind(name)} {name!r} is new and has no name" for name in unnamed]
        if differs:
            self._refuse(differs, list(untold), named=bool(unnamed))
        self._refuse_retractions()
        given = self._record["outputs_given"]
        numbers = {at: before[was].number for was, at in matched.items()}
        for at in range(len(self._outputs)):
            if at not in numbers:
                numbers[at] = given
                given += 1
        if given > OUTPUTS:
            raise StateError(
                f"the runs over this state have had {OUTPUTS:,} outputs, and there is no number "
                "left for a new one",
                where=self._path,
                hint="Run the new output with a state directory of its own",
            )
        numbered = [_numbered(output, numbers[at]) for at, output in enumerate(self._outputs)]
        return GraphChange(
            tuple(self._gained),
            tuple(self._lost),
            tuple(numbered),
            given,
            tuple(lost_outputs),
            self._inputs,
            tuple(self._gaining),
        )

    def _word_for(self, output: StoredOutput) -> str:
        """Return what ``remove=`` names an output by: its stage, or its place if others are left.

        The stage alone would also name those that are left.
        """
        if output.places and any(one.name == output.name for one in self._outputs):
            return output.places[0]
        return output.name

    def _gone(self, word: str, lost: Sequence[StoredOutput]) -> str:
        """Describe what is gone, or which other output to the same place replaces it."""
        for one in lost:
            if self._word_for(one) == word:
                for other in self._outputs:
                    if other.text != one.text and {*other.places} & {*one.places}:
                        return f"was {one.text} and is {other.text}"
        return "is gone"

    def _kind(self, name: str) -> str:
        is_source = name in self._was["sources"] or name in self._now["sources"]
        return "source" if is_source else "stage"

    def _stage_of(self, output: StoredOutput) -> str:
        """Return the name of the stage that an output of the last run left."""
        whole = output.name
        names = [n for n in self._was["stages"] if whole == n or whole.startswith(f"{n}[")]
        return max(names, key=len, default=whole)  # "a[b]" may be a stage beside "a"

    def _parts(self) -> Iterator[str]:
        """Yield how sources and stages that are there before and after differ."""
        many = len(self._graph.stages) > 1, len(self._graph.reads) > 1
        was, now = self._was, self._now
        for name in self._both("sources"):
            prefix = f"{name}: " * many[1]
            yield from changes(prefix, was["sources"][name], now["sources"][name])
        stages = stored_stages(self._graph)
        for name in self._both("stages"):
            prefix = f"{name}: " * many[0]
            free = {"reads", "left inputs"}
            before, after = (
                {part: one for part, one in of["stages"][name].items() if part not in free}
                for of in (was, now)
            )
            yield from changes(prefix, before, after)
            if self._record["stages"][name]["signed"] != stages[name]["signed"]:
                yield f"{prefix}whether its input has retractions has changed"
            yield from self._reads(prefix, name, self._record["stages"][name], stages[name])

    def _both(self, what: str) -> list[str]:
        return [name for name in self._was[what] if name in self._now[what]]

    def _reads(
        self, prefix: str, name: str, was: Mapping[str, Any], now: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield how the inputs of a stage differ, but for those of what is new or gone."""
        texts = self._was["stages"][name]["reads"], self._now["stages"][name]["reads"]
        for side in (
            (slice(None, was["left"]), slice(None, now["left"])),
            (slice(was["left"], None), slice(now["left"], None)),
        ):
            places = [range(len(texts[at]))[side[at]] for at in (0, 1)]
            old = [at for at in places[0] if was["origins"][at] not in self._lost]
            kept = [at for at in places[1] if now["origins"][at] not in self._gained]
            before, after = [texts[0][at] for at in old], [texts[1][at] for at in kept]
            if before != after and with_reloaded(before, after) != after:
                if other_tables(before, after):
                    yield (
                        f"{prefix}a table of lookup has other content than before (say reload=True "
                        "there to take it)"
                    )
                    return
                yield f"{prefix}reads was {texts[0]!r} and is {texts[1]!r}"
                return
            if kept != list(places[1][: len(kept)]):
                yield f"{prefix}reads {texts[1]!r}: new inputs come last"
            in_order = self._now["stages"][name].get("order") == "event_time"
            if in_order and old != list(places[0][: len(old)]):
                # Records that wait are stored with the number of their input.
                yield (
                    f"{prefix}reads was {texts[0]!r}: of a process in event-time order only the "
                    "last inputs can go"
                )
            self._inputs.update({(name, a): (name, b) for a, b in zip(old, kept, strict=True)})
            if len(kept) < len(places[1]):
                self._gaining.append(name)

    def _orders(self) -> Iterator[str]:
        """Yield whether the same parts come in another order.

        Parts without a name of their own would resume from one another's state. Where the sets
        differ, the order may do so too: parts are found from the outputs.
        """
        if self._gained or self._lost:
            return
        for what in ("source", "stage"):
            before, after = list(self._was[f"{what}s"]), list(self._now[f"{what}s"])
            if before != after and any(map(is_automatic, before)):
                was, is_ = ", ".join(before), ", ".join(after)
                yield f"its {what}s came in the order {was} and come in the order {is_}"

    def _outputs_in_order(
        self, before: Sequence[StoredOutput], matched: Mapping[int, int]
    ) -> Iterator[str]:
        """Yield whether outputs come in another order: dead letters go to the first one."""
        if list(matched.values()) != list(range(len(matched))):
            was, is_ = (
                ", ".join(one.text + _to(one) for one in some) for some in (before, self._outputs)
            )
            yield f"its outputs were {was} and are {is_}: new ones come last"

    def _refuse(self, differs: Sequence[str], untold: Sequence[str], *, named: bool) -> None:
        hint = "Run the pipeline as it was, use another state directory, or reset this one"
        if untold:
            hint += f"; to go on without what is gone, and release its state: remove={untold!r}"
        if named:
            hint += "; name what is new, so that the state knows it later: .named(...)"
        if any("no longer reads" in one for one in differs):
            hint += f"; {_MOVED.format(self._path)}"
        raise StateError(
            f"the state belongs to another pipeline: {'; '.join(differs)}",
            where=self._path,
            hint=hint,
        )

    def _refuse_retractions(self) -> None:
        """Raise if a new stage would get retractions of what it never got."""
        for stage in self._graph.stages:
            name = self._graph.name_of(stage)
            for flow in stage.inputs if name in self._gained else ():
                origin = self._graph.name_of(flow.origin)
                if is_signed(flow) and origin not in self._gained:
                    raise StateError(
                        f"the new stage {name!r} reads {origin!r}, which retracts: it would get "
                        "retractions of what came before it was there",
                        where=self._path,
                        hint="Run the new stage with a state directory of its own, from the start",
                    )


def _only_in(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of sources and stages that one description has and another has not."""
    for what in ("sources", "stages"):
        yield from (name for name in one[what] if name not in other[what])


def _matched(before: Sequence[StoredOutput], now: Sequence[StoredOutput]) -> dict[int, int]:
    """Return the place of each output that is still there, by its former place.

    Of several outputs of one stage, those with a place in common are the same; the others are the
    same in their order, if none of them is gone.

    Raises:
        StateError: It cannot be told which output is gone.
    """
    found: dict[int, int] = {}
    for text in dict.fromkeys(one.text for one in before):
        old = [at for at, one in enumerate(before) if one.text == text]
        new = [at for at, one in enumerate(now) if one.text == text]
        for was in list(old):
            places = set(before[was].places)
            same = next((at for at in new if places.intersection(now[at].places)), None)
            if same is not None:
                found[was] = same
                old.remove(was)
                new.remove(same)
        if len(old) > len(new) > 0:
            raise StateError(
                f"there were {len(old)} outputs of {text!r} whose places are not those of any now, "
                f"and there are {len(new)}: it cannot be told which one is gone",
                hint="Give the sinks the places that they had, at least for one restart",
            )
        found.update(zip(old, new, strict=False))
    return {was: found[was] for was in sorted(found)}


def _numbered(output: StoredOutput, number: int) -> StoredOutput:
    return StoredOutput(number, output.name, output.text, output.places)


def _to(output: StoredOutput) -> str:
    return f" to {', '.join(map(repr, output.places))}" if output.places else ""


def _refuse_kept(remove: Collection[str], graph: Graph, outputs: Sequence[StoredOutput]) -> None:
    """Raise if something that may be gone is there.

    A stage may be there whose output is gone.
    """
    there = {graph.name_of(read) for read in graph.reads}
    for one in outputs:
        there.update((one.name, *one.places))
    for name in remove:
        if name in there:
            raise InvalidArgument(
                f"remove= names {name!r}, and the pipeline still has it",
                where="run(remove=)",
                hint="Leave the name out, or leave the part out of the pipeline",
            )
