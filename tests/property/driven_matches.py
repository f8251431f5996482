"""Row patterns as operators that are given what the scalar oracle is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.graph import Stage
from lowwater.engine.match.operator import MatchOperator
from lowwater.engine.match.rules import END as MATCH_END
from lowwater.engine.match.rules import START as MATCH_START
from lowwater.engine.match.rules import VARIABLE
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.searched import Searched
from tests.oracles.pattern_runs import Given, PatternRun, Shown
from tests.oracles.row_patterns import (
    Absent,
    Condition,
    Match,
    MatchSoFar,
    Pattern,
    Row,
    Skip,
    is_true,
    parsed,
)
from tests.property.driven_joins import Row as OutRow


@final
@dataclass(frozen=True)
class Asked:
    """A condition or a measure, as the oracle and as the library are asked for it."""

    oracle: Callable[[MatchSoFar], Any]
    library: Any


def _nulls_first(values: Sequence[Any], pick: Callable[..., Any]) -> Any:
    return pick(values) if values else None


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def letters(some: str) -> Asked:
    return Asked(lambda match: match.row["v"] in some, lw.col("v").is_in(list(some)))


CONDITIONS: Mapping[str, Asked] = {
    "x": letters("x"),
    "xy": letters("xy"),
    "known": Asked(lambda m: m.row["n"] is not None, ~lw.col("n").is_null()),
    "up": Asked(lambda m: m.row["n"] > m.prev("n"), lw.col("n") > lw.prev("n")),
    "up2": Asked(lambda m: m.row["n"] > m.prev("n", 2), lw.col("n") > lw.prev("n", 2)),
    "after z": Asked(lambda m: m.prev("v") == "z", lw.prev("v") == "z"),
    "mean": Asked(
        lambda m: m.row["n"] >= _mean(m.present("a", "n")),
        lw.col("n") >= lw.matched("a").mean("n"),
    ),
    "last": Asked(
        lambda m: m.row["n"] > m.last("a", "n", 1), lw.col("n") > lw.matched("a").last("n", 1)
    ),
    "first": Asked(
        lambda m: None not in (m.row["n"], m.first(None, "n"))
        and m.row["n"] != m.first(None, "n"), lw.col("n") != lw.matched().first("n")
    ),
    "few": Asked(lambda m: m.count("a") <= 2, lw.matched("a").count() <= 2),
    "sum": Asked(
        lambda m: sum(m.present(None, "n")) <= 4, lw.matched().sum("n") <= 4
    ),
    "function": Asked(
        lambda m: m.row["n"] > m.prev("n") or m.count("b") > 1,
        lambda m: m.row["n"] > m.prev("n") or m.matched("b").count() > 1,
    ),
}  # fmt: skip
PLAIN = ("x", "xy", "known")
MEASURES: Mapping[str, Asked] = {
    "a": Asked(lambda m: m.count("a"), lw.count(of="a")),
    "rows": Asked(lambda m: m.count(), lw.count()),
    "low": Asked(lambda m: _nulls_first(m.present("b", "n"), min), lw.min("n", of="b")),
    "opened": Asked(
        lambda m: _nulls_first(m.present(None, "n"), lambda some: some[0]), lw.first("n")
    ),
    "closed": Asked(
        lambda m: _nulls_first(m.present("a", "n"), lambda some: some[-1]), lw.last("n", of="a")
    ),
    "total": Asked(lambda m: sum(m.present(None, "n")), lw.sum("n")),
    "letters": Asked(lambda m: tuple(m.values("b", "v")), lw.collect("v", of="b")),
    "last b": Asked(lambda m: m.last("b", "v"), lw.matched("b").last("v")),
    "before": Asked(lambda m: m.prev("v"), lw.prev("v")),
    "x": Asked(
        lambda m: sum(one == "x" for one in m.values(None, "v")),
        lw.count(where=lw.col("v") == "x"),
    ),
    "ax": Asked(
        lambda m: sum(one == "x" for one in m.values("a", "v")),
        lw.count(where=lw.col("v") == "x", of="a"),
    ),
}


@final
@dataclass(frozen=True)
class Case:
    """A pattern with its options.

    Args:
        text: The pattern.
        define: The name of the condition of each variable.
        measures: The names of the measures.
        within, lateness, absent: Microseconds; ``None`` for none.
    """

    text: str
    define: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[str, ...] = ("rows",)
    within: int | None = None
    skip: Skip = "past_last"
    rows: str = "one"
    emit: Any = "on_time"
    lateness: int = 0
    absent: int | None = None
    ordered: bool = False
    signed: bool = False

    def meets_one(self, row: Row) -> bool:
        """Whether a row meets one of the conditions, which depend on their own row alone."""
        alone = MatchSoFar([row], 0, ("",))
        if self.absent is not None and row.values["v"] == "z":
            return True
        return any(is_true(CONDITIONS[of].oracle, alone) for of in self.define.values())

    def run(self) -> PatternRun:
        """Return the oracle."""
        define: dict[str, Condition] = {
            name: CONDITIONS[of].oracle for name, of in self.define.items()
        }
        without = None
        if self.absent is not None:
            without = Absent(lambda values: values["v"] == "z", self.absent)
        pattern = Pattern(parsed(self.text), define, self.within, self.skip, without)
        measures = [MEASURES[name].oracle for name in self.measures]
        kind = PatternRun if self.rows == "one" else AllRows
        return kind(pattern, measures, lateness=self.lateness, emit=self.emit)

    def stage(self) -> Stage:
        """Return the stage of the library."""
        nothing: list[dict[str, Any]] = []
        stream = lw.from_iterable(nothing, time="at").key_by("k")
        without = None
        if self.absent is not None:
            without = lw.absent(lw.col("v") == "z", within=_us(self.absent))
        return stream.match(
            self.text,
            define={name: CONDITIONS[of].library for name, of in self.define.items()},
            measures={name: MEASURES[name].library for name in self.measures},
            within=None if self.within is None else _us(self.within),
            skip=self.skip,
            rows=self.rows,  # type: ignore[arg-type]  # one of the two
            emit=self.emit,
            allowed_lateness=_us(self.lateness),
            order="o" if self.ordered else None,
            without=without,
        )._stage


def _us(count: int) -> str:
    return f"{count}us"


class AllRows(PatternRun):
    """The oracle where each row of a match comes out, with running measures."""

    def _wanted(self, key: Any) -> list[Shown]:
        rows = sorted(self.rows[key], key=lambda row: row.place)
        return [shown for match in self._matches(rows) for shown in self._each(key, rows, match)]

    def _each(self, key: Any, rows: Sequence[Row], match: Match) -> list[Shown]:
        found = []
        for length in range(1, len(match.labels) + 1):
            so_far = MatchSoFar(rows, match.start, match.labels[:length])
            row = rows[match.start + length - 1]
            values = (
                match.labels[length - 1] or None,
                row.values["v"],
                row.values["n"],
                row.order,
                *(measure(so_far) for measure in self._measures),
            )
            found.append(Shown(key, rows[match.start].time, -1, row.time, values))
        return found


def bundle_of(stage: Stage, given: Sequence[Given], *, ordered: bool) -> Bundle:
    """Return rows as the stage's operator gets them."""
    columns = {
        "v": Column.from_arrow(pa.array([one.row.values["v"] for one in given], pa.string())),
        "n": Column.from_arrow(pa.array([one.row.values["n"] for one in given], pa.int64())),
    }
    if ordered:
        orders = [one.row.order for one in given]
        columns["o"] = Column.from_arrow(pa.array(orders, pa.int64()))
    records = Records(columns, len(given))
    for step in stage.inputs[0].steps:
        done = step.apply(records)
        assert done.rows is None
        records = done.records
    signs = np.array([one.sign for one in given], dtype=np.int8)
    return Bundle(
        np.array([one.row.time for one in given], dtype=np.int64),
        (Column.of_objects([one.key for one in given]),),
        dict(records.columns),
        None if (signs > 0).all() else signs,
    )


def maker(case: Case, stage: Stage) -> Callable[[], MatchOperator]:
    """Return what makes the operator of a stage."""
    work = stage.work
    assert isinstance(work, Searched)
    return lambda: MatchOperator(work.rules, {}, signed=case.signed)


def shown(case: Case, rows: Sequence[OutRow]) -> Counter[Any]:
    """Return what comes out of the library as the oracle has it."""
    found: Counter[Any] = Counter()
    for key, time, row, sign in rows:
        start = _micros(row[MATCH_START])
        if case.rows == "one":
            end = _micros(row[MATCH_END])
            values = [row[name] for name in case.measures]
        else:
            end = -1
            own = (row[VARIABLE], row["v"], row["n"], row.get("o"))
            values = [*own, *(row[name] for name in case.measures)]
        values = [tuple(one) if isinstance(one, list) else one for one in values]
        found[_plain(Shown(key, start, end, time, tuple(values), sign))] += 1
    return found


def expected(changes: Sequence[Shown]) -> Counter[Any]:
    """Return what the oracle changes, so that it can be compared."""
    return Counter(map(_plain, changes))


def _plain(one: Shown) -> Any:
    return one.key, one.start, one.end, one.time, repr(one.values), one.sign


def _micros(value: Any) -> int:
    return int(lw.Instant(value))
