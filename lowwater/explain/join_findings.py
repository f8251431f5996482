"""Finds likely mistakes in joins and tables: mostly state that is never released."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lowwater.engine.graph.graph import Flow, Joined, Read, Stage, Upserted
from lowwater.engine.join.joining import LEFT, RIGHT, AsOf, Joining
from lowwater.explain.endless import is_endless
from lowwater.explain.finding import Finding
from lowwater.time import DAY_US, format_duration, saturating_add

_LONG_US = 30 * DAY_US
_SIDES = {LEFT: "left", RIGHT: "right"}

Upstream = Mapping[Stage, frozenset[Read]]
"""The sources that each stage depends on."""


def join_findings(stage: Stage, work: Joined, where: str, upstream: Upstream) -> Iterator[Finding]:
    """Yield findings about a join of streams; what a join of tables keeps is up to the tables.

    Args:
        stage: The stage.
        work: Its join.
        where: Its name.
        upstream: The sources of every stage.
    """
    sides = [
        _reads_of(stage.inputs[: work.left], upstream),
        _reads_of(stage.inputs[work.left :], upstream),
    ]
    if isinstance(work.joining, AsOf):
        yield from _of_history(where, *sides)
    elif work.joining.within is not None:
        yield from _of_interval(work.joining, where, *sides)


def table_findings(
    stage: Stage, work: Upserted, where: str, reads: Iterable[Read]
) -> Iterator[Finding]:
    """Yield findings about a table that is made from upserts.

    Args:
        stage: The stage.
        work: Its table.
        where: Its name.
        reads: The sources that it depends on.
    """
    known = list(reads)
    if not any(map(is_endless, known)):
        return
    rules = work.rules
    of_panes = any(isinstance(f.origin, Stage) and f.origin.work.emits_panes for f in stage.inputs)
    if rules.ttl_us is None and not work.deletes and not of_panes:
        yield Finding(
            "note",
            "nothing deletes a row: the table keeps one for each key that ever came",
            where,
            'Set ttl=, as in ttl="30d", or deleted=, if there is no bound on the number of keys',
        )
    if _blind(known) and (rules.ttl_us is not None or work.deletes):
        what = "ttl deletes rows" if rules.ttl_us is not None else "tombstones are dropped"
        yield Finding(
            "warning",
            f"{what} when the watermark passes, and a source has no watermark",
            where,
            "Give the source a watermark",
        )


def _of_interval(
    joining: Joining, where: str, left: frozenset[Read], right: frozenset[Read]
) -> Iterator[Finding]:
    if not any(map(is_endless, left | right)):
        return
    blind = [name for name, reads in (("left", left), ("right", right)) if _blind(reads)]
    if blind:
        which = "each side" if len(blind) > 1 else f"the {blind[0]} side"
        yield Finding(
            "warning",
            f"records are released when the watermark passes their horizon, and {which} has a "
            "source without a watermark: the records of both sides are kept forever",
            where,
            "Give the source a watermark",
        )
        return
    kept = {
        name: saturating_add(joining.horizon_us(side), joining.lateness_us)
        for side, name in _SIDES.items()
    }
    long = [name for name, horizon in kept.items() if horizon >= _LONG_US]
    if long:
        spans = ", ".join(f"{format_duration(kept[name])} of the {name} side" for name in long)
        yield Finding(
            "note",
            f"the horizon is long: it keeps {spans} in memory, in event time",
            where,
            "Narrow within= or allowed_lateness= if partners come sooner",
        )


def _of_history(where: str, facts: frozenset[Read], versions: frozenset[Read]) -> Iterator[Finding]:
    if _blind(versions):
        yield Finding(
            "error",
            "a fact waits until the watermark of the versions passes it, and their source has no "
            "watermark: no fact is ever emitted",
            where,
            "Give the source of the versions a watermark",
        )
    elif _blind(facts):
        yield Finding(
            "warning",
            "old versions are dropped when the watermark of both sides passes, and the source of "
            "the facts has no watermark: all versions are kept",
            where,
            "Give the source of the facts a watermark",
        )
    elif any(map(is_endless, versions)):
        yield Finding(
            "note",
            "the newest version of each key is kept for good, whatever keep= is",
            where,
            "Use keys of a bounded number",
        )


def _reads_of(flows: Sequence[Flow], upstream: Upstream) -> frozenset[Read]:
    """Return the sources that some inputs of a stage depend on."""
    return frozenset[Read]().union(
        *({f.origin} if isinstance(f.origin, Read) else upstream[f.origin] for f in flows)
    )


def _blind(reads: Iterable[Read]) -> bool:
    """Whether a source never ends and has no watermark, so that none advances."""
    return any(is_endless(read) and read.watermark is None for read in reads)
