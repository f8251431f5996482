"""Events per second of one pipeline in eight variants: few and many keys, their type, aggregates.

``python -m benchmarks --only variants``. Each variant has three neighbours, which differ from it in
one property only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, final

import lowwater as lw
from benchmarks.events import DISORDER_US, events_file
from benchmarks.machine import load
from lowwater.kernels import is_installed, kernels, use

FEW_KEYS, MANY_KEYS = 100, 1_000_000
_AGGREGATES: Mapping[int, Mapping[str, Any]] = {
    2: {"n": lw.count(), "total": lw.sum("value")},
    5: {
        "n": lw.count(), "total": lw.sum("value"), "mean": lw.mean("value"),
        "least": lw.min("value"), "most": lw.max("value"),
    },
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of the pipeline, which sums by key and minute.

    Args:
        many: Whether the events have many keys instead of few.
        integers: Whether keys are integers instead of strings.
        aggregates: How many aggregates a pane has.
    """

    many: bool
    integers: bool
    aggregates: int

    @property
    def keys(self) -> int:
        """How many keys the events have."""
        return MANY_KEYS if self.many else FEW_KEYS

    def neighbours(self) -> tuple[Variant, Variant, Variant]:
        """Return those that differ in the number of keys, their type, the aggregates."""
        return (
            replace(self, many=not self.many),
            replace(self, integers=not self.integers),
            replace(self, aggregates=2 if self.aggregates == 5 else 5),
        )

    def run(self, path: Path) -> int:
        """Run it over the events of a file, and return how many panes there were."""
        pipeline = (
            lw.read_parquet(path, time="at", watermark=lw.BoundedDisorder(f"{2 * DISORDER_US}us"))
            .key_by("key")
            .window(lw.FixedWindows("1m"))
            .aggregate(**_AGGREGATES[self.aggregates])
        )
        return sum(map(len, pipeline.run_batches(progress=False)))


VARIANTS = tuple(
    Variant(many, integers, aggregates)
    for many, integers, aggregates in itertools.product((False, True), (False, True), (2, 5))
)


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """What a variant came to with some kernels.

    Args:
        variant: The variant.
        kernels: The name of the kernels.
        per_second: Events per second, the median of the rounds.
        ratios: The same against each of its neighbours, taken round by round.
        panes: How many panes came out.
    """

    variant: Variant
    kernels: str
    per_second: float
    ratios: tuple[float, ...]
    panes: int


def measure(count: int, rounds: int, folder: Path) -> list[Timing]:
    """Time all variants in turn, with both kernels, after one round that does not count.

    Seconds are those of the CPU, as neighbours on a machine change these least.
    """
    before = kernels().NAME
    names = ("numpy", "numba") if is_installed() else ("numpy",)
    paths = {
        one: events_file(count, folder, keys=one.keys, integer_keys=one.integers)
        for one in VARIANTS
    }
    speeds: dict[tuple[Variant, str], list[float]] = {
        (variant, name): [] for variant in VARIANTS for name in names
    }
    panes = {}
    try:
        for turn in range(rounds + 1):
            for (variant, name), found in speeds.items():
                use(name)
                began = time.process_time()
                panes[variant] = variant.run(paths[variant])
                if turn:
                    found.append(count / (time.process_time() - began))
    finally:
        use(before)
    return [
        Timing(
            variant,
            name,
            median(each),
            tuple(
                median(a / b for a, b in zip(each, speeds[other, name], strict=True))
                for other in variant.neighbours()
            ),
            panes[variant],
        )
        for (variant, name), each in speeds.items()
    ]


def show(count: int, rounds: int, folder: Path) -> None:
    """Print the table of variants."""
    before = load()
    found = measure(count, rounds, folder)
    print(
        f"| {count:,} events, 1 min, load {before:.1f} to {load():.1f} | kernels "
        "| events per CPU second | to the other number of keys | to the other type "
        "| to the other aggregates | panes |"
    )
    print("|---|---|---|---|---|---|---|")
    for one in found:
        of_type = "integers" if one.variant.integers else "strings"
        print(
            f"| {one.variant.keys:,} {of_type}, {one.variant.aggregates} aggregates "
            f"| {one.kernels} | {one.per_second / 1e6:.2f} M | "
            + " | ".join(f"{ratio:.2f}" for ratio in one.ratios)
            + f" | {one.panes:,} |"
        )
