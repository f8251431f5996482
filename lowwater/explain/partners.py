"""Describes what a join made of a record: its pairs, and when it came out by itself."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.display.text import counted
from lowwater.engine.graph.trace import NOT_KEPT, StageTrace, TracedElement, TracedPair
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.explain.text import Times, values_text

MOST_PAIRS = 10
"""The most pairs of a record to describe."""


def partner_lines(stage: StageTrace, element: TracedElement, times: Times) -> Iterator[str]:
    """Yield what a join made of a record, a line each. O(records + pairs).

    Args:
        stage: The trace of the join.
        element: The record, one of its elements.
        times: Formats times.
    """
    joining = stage.joining
    assert joining is not None
    side, other = _names(joining, element)
    yield f"  it came to the {side} side" if isinstance(joining, Joining) else f"  it is a {side}"
    if element.reason is not None or element.retract:
        return
    number = _number_of(stage, element)
    own = [
        pair
        for pair in stage.pairs
        if (pair.left if element.side == "left" else pair.right) == number
    ]
    for pair in own[:MOST_PAIRS]:
        yield f"  {times.clock(pair.clock)}  {_line(stage, pair, element, other, times)}"
    if (more := len(own) - MOST_PAIRS) > 0:
        yield f"  … and {counted(more, 'pair')} more"
    if not own:
        yield f"  {_nothing(joining, element, other)}"


def _names(joining: Joining | AsOf, element: TracedElement) -> tuple[str, str]:
    """Return what the record is called, and its partners."""
    if isinstance(joining, AsOf):
        return ("fact", "version") if element.side == "left" else ("version", "fact")
    is_left = element.side == "left"
    return ("left", "right record") if is_left else ("right", "left record")


def _nothing(joining: Joining | AsOf, element: TracedElement, other: str) -> str:
    """Explain why nothing came out for a record."""
    how = joining.how
    if how in ("semi", "anti") and element.side == "right":
        return f"nothing comes out for the right side of a join with how={how!r}"
    if how == "anti":
        return f"nothing came out for it: it met a {other}, or one could still come"
    waits = isinstance(joining, AsOf) and element.side == "left"
    return f"nothing came out for it: it met no {other}{', or still waits for one' * waits}"


def _line(
    stage: StageTrace, pair: TracedPair, element: TracedElement, other: str, times: Times
) -> str:
    partner = pair.right if element.side == "left" else pair.left
    what = "retracted" if pair.retract else "emitted"
    if partner is None:
        semi = isinstance(stage.joining, Joining) and stage.joining.how == "semi"
        return f"it was {what} {'once, for its first partner' if semi else f'without a {other}'}"
    if partner == NOT_KEPT:
        return f"the pair with a {other} that is not in the sample was {what}"
    met = stage.elements[partner]
    values = {name: one for name, one in met.values.items() if name not in stage.key_names}
    return f"the pair with {other} {values_text(values)} at {times.at(met.time)} was {what}"


def _number_of(stage: StageTrace, element: TracedElement) -> int:
    """Return the index of an element among those of its stage."""
    for at, one in enumerate(stage.elements):
        if one is element:
            return at
    return stage.elements.index(element)
