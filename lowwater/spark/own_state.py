"""The options of ``operator="mapInArrow"``: where its state is kept, and what it cannot do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lowwater.errors import UnsupportedByRunner
from lowwater.spark.cell_files import CellPlace, partitions_of
from lowwater.spark.options import SparkOptions, Timers
from lowwater.spark.state_backends import GrowingBackend, StateBackend
from lowwater.spark.versioned import RocksBackend, backend_of, is_path, location_of, retained

_ASKED = 'operator="mapInArrow"'
_PARTITIONS = "spark.sql.shuffle.partitions"
_CARRIED = "or let the records carry time, up to the end: CarriedTime"


def require_time(options: SparkOptions, timers: Timers) -> None:
    """Raise if the query needs micro-batches in which nothing is read: Spark runs none.

    Args:
        options: The options.
        timers: What may wake a key group.

    Raises:
        UnsupportedByRunner: It does.
    """
    if options.drain:
        raise UnsupportedByRunner(
            "drain=True ends the input in a micro-batch without records, which Spark runs for its "
            f"own stateful operators only, not for {_ASKED}",
            where="to_spark(drain=)",
            hint=f"Leave out the operator, {_CARRIED}",
        )
    if timers == "clock":
        raise UnsupportedByRunner(
            "a trigger or timer waits for the clock, but nothing wakes Spark when records do not: "
            f"not with {_ASKED}",
            where="to_spark(timers=)",
            hint='Say timers="batches" to have them fire in the next micro-batch that reads '
            "something, or leave out the operator",
        )


def own_backend(spark: SparkSession, options: SparkOptions) -> StateBackend:
    """Return the state backend; ``state_location`` is for any of them.

    Raises:
        InvalidArgument: There is no such backend; or no location is given, and none is to be taken.
        UnsupportedByRunner: None is given, and over Spark Connect none can be taken.
    """
    given = options.state
    at = options.state_location if given in (None, "rocksdb", "auto") else None
    return _spared(backend_of(spark, given, at, streaming=True))


def _spared(backend: StateBackend) -> StateBackend:
    """Keep versions: any attempt's may be opened again, not only that of one Spark chose."""
    if isinstance(backend, GrowingBackend):
        return replace(backend, large=_spared(backend.large))
    return replace(backend, spare=backend.retain) if isinstance(backend, RocksBackend) else backend


def place_of(
    spark: SparkSession, options: SparkOptions, plan: str, backend: StateBackend
) -> CellPlace:
    """Return where cells are kept: beside the versions of a ``RocksBackend``, if any.

    Args:
        spark: The session.
        options: The options.
        plan: The name of the DataFrame.
        backend: The state backend.

    Raises:
        InvalidArgument: No location is given, and none is to be taken.
        UnsupportedByRunner: None is given, and over Spark Connect none can be taken.
    """
    retain, filesystem = retained(spark), None
    location: str | Path | None = options.state_location
    apart = backend.large if isinstance(backend, GrowingBackend) else backend
    if isinstance(apart, RocksBackend) and location is None:
        location, filesystem, retain = apart.location, apart.filesystem, apart.retain
    place: str = location_of(spark, location, _ASKED)
    if filesystem is None and is_path(place):
        place = str(Path(place).absolute())  # tasks run in folders of their own
    most: Any = spark.conf.get(_PARTITIONS)
    return CellPlace(
        place,
        plan,
        options.key_groups,
        partitions_of(options.key_groups, int(most)),
        backend.name,
        retain=retain,
        filesystem=filesystem,
    )
