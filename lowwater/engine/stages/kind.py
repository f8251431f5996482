"""What most kinds of stage have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import Stage, Work
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.records.admission import Check
from lowwater.engine.records.admit_bounds import PartnerBounds
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.time import END_OF_TIME, Int64Array

if TYPE_CHECKING:
    from lowwater.engine.match.rules import Matching
    from lowwater.engine.over.rules import Over
    from lowwater.windows import CountWindows

NO_AGGREGATES: Mapping[str, AggregateSpec] = MappingProxyType({})


class StageKind:
    """The facts of a kind of stage that are the same for most; each kind states what differs.

    ``stored_as`` is what state directories call the form of its rows, and ``noun`` what users call
    it. ``emits_panes`` says that panes come out, not records; ``passes_signs`` that retractions
    come out if any come in; ``fires`` that it has a trigger; ``spills`` that its state obeys a
    limit of memory; ``keeps_rows`` that it keeps records as they came; ``makes_table`` that its
    output is the changes of a table, which may be of any time (T-2); ``takes_null_keys`` that a key
    may be null (T-3); ``takes_whole_records`` that all columns are read; ``keys_are_ids`` that its
    keys are the ids by which duplicates are dropped; ``reads_right`` that the watermark of a join's
    right side matters by itself (J-8); ``lateness_option`` is the argument that says how late its
    records may be; and ``join_rules``, ``match_rules`` and ``over_rules`` are
    the rules of a join of streams, of a search for row patterns, and of values over rows, and
    ``count_windows`` windows of a number of records.
    """

    __slots__ = ()

    stored_as: ClassVar[str]
    noun: ClassVar[str]
    emits_panes: ClassVar[bool] = False
    passes_signs: ClassVar[bool] = False
    fires: ClassVar[bool] = False
    spills: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = False
    takes_whole_records: ClassVar[bool] = True
    keys_are_ids: ClassVar[bool] = False
    reads_right: ClassVar[bool] = False
    lateness_option: ClassVar[str] = "allowed_lateness"

    @property
    def makes_table(self) -> bool:
        return False

    @property
    def takes_null_keys(self) -> bool:
        return self.makes_table

    @property
    def join_rules(self) -> Joining | AsOf | None:
        return None

    @property
    def match_rules(self) -> Matching | None:
        return None

    @property
    def over_rules(self) -> Over | None:
        return None

    @property
    def count_windows(self) -> CountWindows | None:
        return None

    def inputs_on_left(self, count: int) -> int:
        return count

    def side_name(self, nth: int) -> str:
        return ""

    def keys_of(self, nth: int, keys: tuple[str, ...]) -> tuple[str, ...]:
        return keys

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return upstream_us()

    def needs(self) -> dict[str, Needs]:
        return {}

    def readers(self) -> Mapping[str, str]:
        return {}

    def orders(self, nth: int) -> Mapping[str, str]:
        return {}

    def checks(self, nth: int) -> Mapping[str, Check]:
        return {}

    def partners(self, nth: int) -> PartnerBounds | None:
        return None

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        """Return the bundle with the columns of its records; they are the operator's step."""
        columns = incoming.columns(without=stage.keys_of(incoming.nth))
        bundle = incoming.with_values({**columns, **incoming.bundle.values}, kept)
        return bundle, bundle

    def advance(self, to: int, right: int) -> Any:
        return EndOfInput() if to == END_OF_TIME else WatermarkAdvance(to)

    def lines(self: Work, stage: Stage) -> Iterator[str]:
        yield from self.summary(stage)

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        yield from ()
