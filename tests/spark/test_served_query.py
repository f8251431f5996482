"""The page of a streaming query: it counts what the query's reports count, and ends with it."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.spark import progress, serve
from tests.spark.test_to_spark import table, write


def read(link: str, path: str) -> Any:
    host, port = link.split("/")[2].split(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=300)) as asked:
        asked.request("GET", path)
        return asked.getresponse().read().decode()


@pytest.mark.usefixtures("chains")
def test_the_page_counts_what_the_query_reports(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", table(400))
    pipeline = (
        lw.read_parquet(folder, time="at", watermark=lw.BoundedDisorder("5s"))
        .key_by("key")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count())
        .named("counts")
    )
    query = (
        pipeline.to_spark(spark, drain=True, files_per_batch=1)
        .writeStream.foreachBatch(lambda part, _: part.count())
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    page = serve(query, 0)
    events = read(page.link, "/events")  # to the end of the query
    assert query.awaitTermination(300)
    assert events.endswith("event: end\ndata: {}\n\n")
    shown = json.loads(events.rpartition("event: snapshot\ndata: ")[2].partition("\n")[0])
    metrics = progress(query)
    assert shown["state"] == "ended"
    assert shown["totals"]["events"] == metrics.events == 400
    assert shown["totals"]["panes"] == dict(metrics.panes)
    assert shown["totals"]["late"] == dict(metrics.late)
    assert shown["totals"]["bundles"] == metrics.bundles
    part = shown["parts"][-1]
    stage = metrics.stages["counts"]
    assert (part["name"], part["panes"]) == ("counts", dict(stage.panes))
    assert (part["records"], part["admitted"]) == (stage.arrived, stage.admitted)
    page.close()
    assert not [one for one in threading.enumerate() if one.name == "lowwater page"]
