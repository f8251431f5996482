"""What is another outcome on Spark than embedded, although both run the same operators."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.engine.graph.finding import Finding
from lowwater.engine.graph.graph import Graph


def spark_findings(graph: Graph) -> Iterator[Finding]:
    """Yield a note for each source whose values may mean something else on Spark.

    Args:
        graph: The pipeline.
    """
    from lowwater.io.csv import CsvSource
    from lowwater.io.jsonl import JsonLinesSource
    from lowwater.io.parquet import ParquetSource

    for read in graph.reads:
        source, where = read.source, graph.name_of(read)
        if isinstance(source, (CsvSource, JsonLinesSource)):
            yield Finding(
                "note",
                "on Spark a type that the first values show is strict: a fraction in a column of "
                "integers is a dead letter there, and counts embedded",
                where,
                'Name the types of numbers, as in types={"price": "double"}',
            )
        elif isinstance(source, ParquetSource):
            yield Finding(
                "note",
                "on Spark a file in which a column has another type than in the first ones stops "
                "the query, but for wider integers; embedded it is read",
                where,
                "Write all files with one schema",
            )
