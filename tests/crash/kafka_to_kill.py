"""A pipeline from a topic to a topic and to files, to kill: see :mod:`tests.crash.killed_process`.

``topics.json`` in its folder holds the brokers, both topics, the group, and where the input ends.
"""

from __future__ import annotations

import json

import lowwater as lw
from tests.crash.killed_process import instructions


def main() -> None:
    """Run to the end or death."""
    work = instructions()
    given = json.loads((work.folder / "topics.json").read_text())
    stream = lw.read_kafka(
        given["servers"], given["from"], time="at", unit="us", group=given["group"],
        end={int(number): offset for number, offset in given["end"].items()},
        watermark=lw.PerPartition(lw.BoundedDisorder("8s")),
        config=_IMPATIENT,
    )  # fmt: skip
    panes = (
        stream.key_by("user")
        .window(lw.Sessions("2s"))
        .aggregate(n=lw.count(), amount=lw.sum("amount"))
    )
    out = work.folder / "out"
    work.run(
        panes.write_jsonl(out / "panes"),
        panes.write_kafka(given["servers"], given["to"], config=_IMPATIENT),
        bundle_size=25,
    )


_IMPATIENT = {"reconnect.backoff.max.ms": 100, "socket.timeout.ms": 5_000}
"""So that a client is back soon after its connections broke."""

if __name__ == "__main__":
    main()
