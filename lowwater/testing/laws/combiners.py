"""Laws of combiners: merging is associative and commutative, with the empty one as identity."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lowwater.engine.aggregates import AggregateSpec, Combiner
from lowwater.errors import InvalidArgument, describe, user_code
from lowwater.testing._broken import Broken
from lowwater.testing._settled import same
from lowwater.testing.scenario import Scenario
from lowwater.windows import GlobalWindow, Sessions

Equal = Callable[[Any, Any], bool]

_LAW = "check_merge_associative"
_GAP_US = 10_000_000


def check_merge_associative(
    combiner: Combiner | AggregateSpec, values: Sequence[Any], *, equal: Equal | None = None
) -> None:
    """Check that values can be combined in any order and any grouping.

    The values are split into three parts in every possible way. Merging the accumulators of the
    parts from the left, from the right, in another order, all at once, or with empty accumulators
    between them must give the same result as adding all values to one accumulator. Extracting an
    output must not change the accumulator.

    A window needs this so that its elements may arrive in any order and sessions may merge (S-W7).
    For an aggregate (``lw.sum()``, ``lw.combine(...)``) the engine merges: sessions that merge in
    several orders are compared with one window that receives all values at once.

    Results that depend on the order of arrival, such as lists, break the law unless ``equal``
    ignores the order. Floats are compared approximately.

    Args:
        combiner: A combiner, or an aggregate that reads ``value``.
        values: Values to combine; a few suffice, because every pair of split points is tried.
        equal: Returns whether two results are equal; by default ``==``.

    Raises:
        AssertionError: The law is broken.
        InvalidArgument: ``combiner`` is neither.

    >>> import lowwater as lw
    >>> check_merge_associative(lw.sum(), [1, 2, 3])
    """
    equal = _equal if equal is None else equal
    values = list(values)
    if isinstance(combiner, Combiner) and not isinstance(combiner, type):
        lines = list(_by_parts(combiner, values, equal))
    elif callable(getattr(combiner, "bind", None)):
        lines = list(_by_sessions(combiner, values, equal))  # type: ignore[arg-type]  # it binds
    else:
        raise InvalidArgument(
            f"{describe('combiner', combiner)} is neither a combiner nor an aggregate",
            where=_LAW,
            hint="Give an object with create_accumulator, add_input, merge_accumulators and "
            "extract_output, or an aggregate such as lw.sum()",
        )
    if lines:
        head = f"{combiner!r} depends on how values are merged (S-W7)"
        raise Broken(head, [*lines, f"values={values!r}"], call="")


def _equal(one: Any, other: Any) -> bool:
    return same(one, other)


def _by_parts(combiner: Combiner, values: list[Any], equal: Equal) -> Iterator[str]:
    def added(part: list[Any]) -> Any:
        accumulator = combiner.create_accumulator()
        for value in part:
            accumulator = combiner.add_input(accumulator, copy.deepcopy(value))
        return accumulator

    merge, extract = combiner.merge_accumulators, combiner.extract_output
    with user_code(f"a method of {combiner!r}"):
        whole = extract(added(values))
        yield from _extracts(combiner, added, values, equal)
        for low in range(len(values) + 1):
            for high in range(low, len(values) + 1):
                parts = [values[:low], values[low:high], values[high:]]

                def accumulators(parts: list[list[Any]] = parts) -> list[Any]:
                    return list(map(added, parts))

                a, b, c = accumulators()
                ways = {"(a b) c": extract(merge([merge([a, b]), c]))}
                a, b, c = accumulators()
                ways["a (b c)"] = extract(merge([a, merge([b, c])]))
                a, b, c = accumulators()
                ways["(c a) b"] = extract(merge([merge([c, a]), b]))
                ways["a b c at once"] = extract(merge(iter(accumulators())))
                a, b, c = accumulators()
                empty = combiner.create_accumulator
                ways["a b c with empty accumulators"] = extract(
                    merge([empty(), a, empty(), b, c, empty()])
                )
                for name, result in ways.items():
                    if not equal(whole, result):
                        where = f"a={parts[0]!r}, b={parts[1]!r}, c={parts[2]!r}"
                        yield f"merged as {name}: {result!r} instead of {whole!r}, with {where}"


def _extracts(
    combiner: Combiner, added: Callable[[list[Any]], Any], values: list[Any], equal: Equal
) -> Iterator[str]:
    accumulator = added(values)
    first = copy.deepcopy(combiner.extract_output(accumulator))
    second = combiner.extract_output(accumulator)
    if not equal(first, second):
        yield f"extract_output changes the accumulator: {first!r}, then {second!r}"


def _by_sessions(spec: AggregateSpec, values: list[Any], equal: Equal) -> Iterator[str]:
    if not values:
        return
    start = Scenario().start
    # Sessions overlap their neighbours' alone: an order of arrival is an order of merging.
    elements = [(value, start + at * _GAP_US * 3 // 5, "all") for at, value in enumerate(values)]
    at_once = Scenario().add(*elements).end().run(GlobalWindow(), aggregate=spec)
    (whole,) = [pane.value for pane in at_once.panes]
    numbers = list(range(len(values)))
    orders = {
        "from the left": numbers,
        "from the right": numbers[::-1],
        "every other one first": numbers[::2] + numbers[1::2],
        "halves": numbers[: len(numbers) // 2][::-1] + numbers[len(numbers) // 2 :],
    }
    for name, order in orders.items():
        scenario = Scenario()
        for number in order:
            scenario = scenario.add(elements[number])
        run = scenario.end().run(Sessions(_GAP_US), aggregate=spec)
        results = [pane.value for pane in run.panes]
        if len(results) != 1 or not equal(whole, results[0]):
            yield f"merged {name}: {results!r} instead of {whole!r}"
