"""Key groups are spread evenly over the tasks of a query."""

from __future__ import annotations

from typing import Any

import pytest

from lowwater.spark.group_numbers import numbers_of_groups, spark_hash


def test_numbers_hash_as_spark_hashes_them(spark: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    rows = spark.range(-50, 200).select(F.hash(F.col("id").cast("int")).alias("hash"), "id")
    assert all(row["hash"] == spark_hash(row["id"]) for row in rows.collect())


@pytest.mark.parametrize(("groups", "tasks"), [(8, 2), (8, 4), (8, 8), (6, 3), (1, 1)])
def test_every_task_has_as_many_groups(groups: int, tasks: int) -> None:
    numbers = numbers_of_groups(groups)
    assert len(set(numbers)) == groups
    placed = [spark_hash(number) % tasks for number in numbers]
    assert {placed.count(task) for task in range(tasks)} == {groups // tasks}
