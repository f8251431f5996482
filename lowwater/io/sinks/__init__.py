"""Sinks to which delivering the same output twice does no harm: exactly once from end to end.

==========================  =========================================================
:class:`ParquetFolder`     a folder of Parquet files, named by delivery
:class:`JsonLinesFolder`   a folder of files of JSON lines, named by delivery
:class:`SqliteTable`       a table of the latest pane of each key and window
:class:`PostgresTable`     the same in PostgreSQL
:class:`Callback`          a function that is told the id of each delivery
==========================  =========================================================
"""

from lowwater.engine.records.json_rows import errors_to_table as errors_to_table
from lowwater.engine.records.json_rows import late_to_table as late_to_table
from lowwater.io.sinks.callback import Callback as Callback
from lowwater.io.sinks.folders import JsonLinesFolder as JsonLinesFolder
from lowwater.io.sinks.folders import ParquetFolder as ParquetFolder
from lowwater.io.sinks.postgres import PostgresTable as PostgresTable
from lowwater.io.sinks.sqlite import SqliteTable as SqliteTable
