"""Sinks: what a pipeline's outputs are written to, with and without a state directory.

==========================  =========================================================
:class:`ParquetFolder`     a folder of Parquet files, named by delivery
:class:`JsonLinesFolder`   a folder of files of JSON lines, named by delivery
:class:`JsonLinesFile`     one file of JSON lines
:class:`SqliteTable`       a table of the latest pane of each key and window
:class:`PostgresTable`     the same in PostgreSQL
:class:`KafkaTopic`        a topic of Kafka, each delivery in a transaction
:class:`Callback`          a function that is called with each delivery
:class:`Compaction`        when deliveries to a folder become a file
==========================  =========================================================

A sink of your own implements :class:`Sink`: it takes each :class:`Delivery`, knows the
:class:`Writer` that opened it, and names each :class:`Place` that it writes to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowwater._on_use import on_use

if TYPE_CHECKING:
    from lowwater.engine.local.delivery import Delivery as Delivery
    from lowwater.engine.local.delivery import Place as Place
    from lowwater.engine.local.delivery import Sink as Sink
    from lowwater.engine.local.delivery import Writer as Writer
    from lowwater.engine.records.json_lines import json_lines as json_lines
    from lowwater.engine.records.json_rows import errors_to_table as errors_to_table
    from lowwater.engine.records.json_rows import late_to_table as late_to_table
    from lowwater.io.sinks.callback import Callback as Callback
    from lowwater.io.sinks.compaction import Compaction as Compaction
    from lowwater.io.sinks.folders import JsonLinesFolder as JsonLinesFolder
    from lowwater.io.sinks.folders import ParquetFolder as ParquetFolder
    from lowwater.io.sinks.json_lines_file import JsonLinesFile as JsonLinesFile
    from lowwater.io.sinks.kafka import KafkaTopic as KafkaTopic
    from lowwater.io.sinks.postgres import PostgresTable as PostgresTable
    from lowwater.io.sinks.sqlite import SqliteTable as SqliteTable

_PLACES = {
    "lowwater.engine.local.delivery": "Delivery Place Sink Writer",
    "lowwater.engine.records.json_lines": "json_lines",
    "lowwater.engine.records.json_rows": "errors_to_table late_to_table",
    "lowwater.io.sinks.callback": "Callback",
    "lowwater.io.sinks.compaction": "Compaction",
    "lowwater.io.sinks.folders": "JsonLinesFolder ParquetFolder",
    "lowwater.io.sinks.json_lines_file": "JsonLinesFile",
    "lowwater.io.sinks.kafka": "KafkaTopic",
    "lowwater.io.sinks.postgres": "PostgresTable",
    "lowwater.io.sinks.sqlite": "SqliteTable",
}


if not TYPE_CHECKING:  # or a type checker would take every name to be there
    __getattr__, __dir__ = on_use(__name__, _PLACES)
