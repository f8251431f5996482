"""Builds the stages of searches of stored queries, and checks them (J-15 to J-17)."""

from __future__ import annotations

import pyarrow as pa

from lowwater.engine.graph.graph import Stage, is_signed
from lowwater.engine.join.joining import LATE_VERSIONS
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.searching import MATCHES, Searching
from lowwater.engine.records.batch import HIDDEN, WHOLE
from lowwater.engine.records.column_expressions import lit
from lowwater.engine.records.columns import Types
from lowwater.engine.records.explode import is_list
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.stateless import WithColumns
from lowwater.engine.stages.queried import Queried
from lowwater.errors import InvalidArgument, describe
from lowwater.pipeline.checks import (
    check_adds_up,
    check_no_table,
    check_retracted_in_time,
    inherited_lateness,
)
from lowwater.pipeline.joins import (
    JoinInputs,
    check_choice,
    checked_suffixes,
    known_columns,
    require_columns,
    require_known,
    without_duplicates,
)
from lowwater.pipeline.stages import StreamParts
from lowwater.time import DurationLike, duration

_KEEP = "1h"
_WHERE = "search"
_MATCHES_ELSEWHERE = {
    **dict.fromkeys(("and", "every", "both", "contains"), "all"),
    **dict.fromkeys(("or", "some", "one"), "any"),
}


def search_inputs(documents: StreamParts, queries: StreamParts, suffixes: object) -> JoinInputs:
    """Return both streams of a search, which have a hidden key in common."""
    left, right = (without_duplicates(side) for side in (documents, queries))
    known = known_columns(left), known_columns(right)
    require_known(known[0], "left", _WHERE)
    require_known(known[1], "right", _WHERE)
    all_of_them = WithColumns(Expressions((), {WHOLE: lit(0)}), _WHERE)
    return JoinInputs(
        left._with(all_of_them), right._with(all_of_them), (WHOLE,), (WHOLE,),
        checked_suffixes(suffixes, _WHERE), _WHERE, *known,
    )  # fmt: skip


def search_stage(
    inputs: JoinInputs,
    *,
    on: object,
    key: object,
    match: str,
    late_versions: str,
    keep: DurationLike | None,
) -> Stage:
    """Return the stage of a search, checked as far as can be without running.

    Raises:
        InvalidArgument: An argument is wrong, a column is missing or no list, or retractions come
            in that cannot be applied.
    """
    check_no_table(inputs.flows, _WHERE)
    check_adds_up(inputs.flows)
    check_retracted_in_time(inputs.flows)
    check_choice("match", match, MATCHES, _WHERE, _MATCHES_ELSEWHERE)
    check_choice("late_versions", late_versions, LATE_VERSIONS, _WHERE)
    words, query = _column(on, "on", "words"), _column(key, "key", "query")
    left, right = inputs.left_known or {}, inputs.right_known or {}
    for side in (left, right):
        require_columns([words], side, f"{_WHERE}(on=)")
        _check_lists(words, side)
    require_columns([query], right, f"{_WHERE}(key=)")
    if query == words:
        raise InvalidArgument(
            f"{describe('key', query)} is the column with the words",
            where=f"{_WHERE}(key=)",
            hint="Name the column that says of which query a record is a version",
        )
    if query in left:
        raise InvalidArgument(
            f"the output has a column {query!r} with the id of the query, and the documents have "
            "one of that name",
            where=f"{_WHERE}(key=)",
            hint="Rename it with with_columns in front of the search, and leave it out with select",
        )
    if late_versions == "ignore" and any(is_signed(flow) for flow in inputs.flows):
        raise InvalidArgument(
            'an input retracts records, but late_versions="ignore" corrects nothing it has emitted',
            where=_WHERE,
            hint='Use late_versions="correct"',
        )
    least = inherited_lateness(inputs.flows)
    lateness = inputs.lateness(max(least, duration(_KEEP)) if keep is None else keep, "keep")
    columns = JoinedColumns(_public(left), _public(right, query), (query,), inputs.suffixes)
    rules = Searching(words, query, match, late_versions, lateness)  # type: ignore[arg-type]  # checked above
    work = Queried(rules, len(inputs.left._flows), inputs.right_keys, columns)
    return inputs.checked_stage(work, (query,))


def _public(known: Types, *others: str) -> Types:
    return {
        name: kind
        for name, kind in known.items()
        if not name.startswith(HIDDEN) and name not in others
    }


def _column(given: object, argument: str, example: str) -> str:
    if not isinstance(given, str):
        raise InvalidArgument(
            f"{describe(argument, given)} is not the name of a column",
            where=f"{_WHERE}({argument}=)",
            hint=f'Write, say, {argument}="{example}"',
        )
    return given


def _check_lists(name: str, known: Types) -> None:
    """Raise if a column is known to hold no lists."""
    kind = known.get(name)
    if kind is None or pa.types.is_null(kind) or is_list(kind):
        return
    raise InvalidArgument(
        f"the column {name!r} holds values of type {kind}, and search needs lists of words",
        where=f"{_WHERE}(on=)",
        hint=f'Make a list of a text before: with_columns({name}=lw.col("text").str.split(" "))',
    )
