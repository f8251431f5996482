"""J-8 to J-12: whole pipelines give what a loop over all records gives, and ``pandas.merge_asof``.

The loop takes any records: several of one time, in any order of arrival, late ones that correct.
pandas takes the first of several versions of one time that lie ahead, so there they have distinct
times; of two at one distance it takes the earlier, as the rules say.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.join.joining import DIRECTIONS
from tests.oracles.as_of import batch_join_as_of
from tests.oracles.joins import JoinElement

WAYS = list(product(DIRECTIONS, (True, False)))
NONE = -1
"""The value of a version that is not there."""


def answer(
    facts: pa.Table, versions: pa.Table, bundle_size: int, disorder: int, **options: Any
) -> Counter[tuple[Any, ...]]:
    """Return what stands of a join of two tables in their order of arrival."""
    read: dict[str, Any] = {"time": "t", "unit": "us"}
    mark = lw.BoundedDisorder(lw.duration(f"{disorder}us"))
    left, right = (lw.from_arrow(table, watermark=mark, **read) for table in (facts, versions))
    found: Counter[tuple[Any, ...]] = Counter()
    collected = left.join_as_of(right, on="k", **options).collect(bundle_size=bundle_size)
    assert not collected.late
    for one in collected.elements():
        version = one.value["version"]
        row = (one.key, int(one.timestamp), one.value["fact"], NONE if version is None else version)
        found[row] += 1 if one.kind == "insert" else -1
    return Counter({row: count for row, count in found.items() if count})


def shuffled(table: pa.Table, random: np.random.Generator, disorder: int) -> pa.Table:
    """Return a table by time but for some disorder."""
    times = table.column("t").to_numpy()
    return table.take(np.argsort(times + random.integers(0, disorder + 1, len(times))))


@pytest.mark.parametrize(("bundle_size", "count"), [(3_000, 3_000), (97, 1_000), (1, 100)])
@pytest.mark.parametrize(("direction", "allow_equal"), WAYS)
def test_distinct_times_equal_pandas(
    direction: Any, allow_equal: bool, bundle_size: int, count: int
) -> None:
    random = np.random.default_rng([1, DIRECTIONS.index(direction), bundle_size])
    keys, span = 2 if bundle_size == 1 else 7, 2 * count
    # Distinct (key, time) of versions, and facts that often come at the time of one.
    chosen = random.choice(keys * span, count // 4, replace=False)
    versions = pa.table(
        {"t": chosen % span - span // 2, "k": chosen // span, "version": np.arange(count // 4)}
    )
    facts = pa.table(
        {
            "t": random.integers(-span // 2, span // 2, count),
            "k": random.integers(0, keys + 1, count),  # one key has no versions
            "fact": np.arange(count),
        }
    )
    for tolerance in (1, 9, 60):
        wanted = pd.merge_asof(
            facts.sort_by("t").to_pandas(),
            versions.sort_by("t").to_pandas(),
            on="t",
            by="k",
            tolerance=tolerance,
            direction=direction,
            allow_exact_matches=allow_equal,
        ).fillna({"version": NONE})
        rows = Counter(
            zip(wanted["k"], wanted["t"], wanted["fact"], wanted["version"], strict=True)
        )
        found = answer(
            shuffled(facts, random, 40), shuffled(versions, random, 40), bundle_size, 40,
            direction=direction, allow_equal=allow_equal, tolerance=lw.duration(f"{tolerance}us"),
        )  # fmt: skip
        assert found == rows
        assert 0 < sum(row[3] == NONE for row in rows) < len(facts)


@pytest.mark.parametrize("late_versions", ["ignore", "correct"])
@pytest.mark.parametrize("bundle_size", [1_000, 13, 1])
@pytest.mark.parametrize(("direction", "allow_equal"), WAYS)
def test_any_times_equal_a_loop(
    direction: Any, allow_equal: bool, bundle_size: int, late_versions: Any
) -> None:
    """Several versions of one time, with an order that has nulls; late ones where they correct."""
    random = np.random.default_rng([2, DIRECTIONS.index(direction), bundle_size])
    count, span = (50, 20) if bundle_size == 1 else (160, 64)
    disorder = 8 if late_versions == "ignore" else 1
    facts = pa.table(
        {
            "t": random.integers(0, span, count),
            "k": random.integers(0, 3, count),
            "fact": np.arange(count),
        }
    )
    order = random.integers(0, 4, count)
    versions = pa.table(
        {
            "t": random.integers(0, span, count),
            "k": random.integers(0, 3, count),
            "version": np.arange(count),
            "order": pa.array(order, mask=order == 0),
        }
    )
    facts, versions = shuffled(facts, random, 8), shuffled(versions, random, 8)
    elements = [
        [
            JoinElement(row["k"], row["t"], row[value], order=row.get("order") or 0)
            for row in table.to_pylist()
        ]
        for table, value in ((facts, "fact"), (versions, "version"))
    ]
    wanted = batch_join_as_of(elements[0], elements[1], "left", 5, direction, allow_equal)
    found = answer(
        facts, versions, bundle_size, disorder, order="order", direction=direction,
        allow_equal=allow_equal, tolerance=lw.duration("5us"), keep=lw.duration("9us"),
        late_versions=late_versions,
    )  # fmt: skip
    none = {(*row[:3], NONE if row[3] is None else row[3]): n for row, n in wanted.items()}
    assert found == none
