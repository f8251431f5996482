"""Shows a streaming query in a browser: ``lowwater.spark.serve``."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, Self


class QueryPage(Protocol):
    """The page of a query; as a context manager it is closed at the end of the block."""

    @property
    def link(self) -> str:
        """The link to the page."""
        ...

    def close(self) -> None:
        """Stop showing the query, which goes on."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


def serve(query: Any, at: bool | int | str = True) -> QueryPage:
    """Show a streaming query in a browser until it ends.

    The page, ``/metrics`` and ``/health`` are those of an embedded run with ``serve=``, as far as
    the progress reports of Spark go: counts, watermarks and what holds them. A thread reads the
    reports each second. Counts begin with the first report that Spark still has, of the last 100.
    There are no traces, graphs or dead letters.

    Args:
        query: What ``writeStream...start()`` returned, of a DataFrame that ``to_spark`` made.
        at: ``True`` for 127.0.0.1 and port 4410, or another one if that is taken; a port there; or
            an address, as in ``"0.0.0.0:8000"``, whose link has a token.

    Raises:
        InvalidArgument: It is no streaming query, or there is no such address.
    """
    # The page stands above this room.
    page: QueryPage = import_module("lowwater.live.spark_query").ServedQuery(query, at)
    return page
