"""Read a queue that gives messages again until they are acknowledged, and count each one once.

python examples/work_queue.py

Such a queue has no positions. A message that was received is hidden for a while, and comes again
unless it is acknowledged by then. Three rules make a durable run over it count each message once:

- What was received is stored with the state before it is processed: the position *is* the batch.
- Messages are acknowledged when the state that has counted them is durable (``committed``).
- One that comes again all the same, because that took too long, is met by ``deduplicate``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import lowwater as lw


class SmallQueue:
    """A queue in memory, in the place of a server; its clock is told the time."""

    def __init__(self, bodies: list[str], hidden_for: int = 30) -> None:
        self.now = 0
        self.left = {str(number): body for number, body in enumerate(bodies)}
        self._hidden_until = dict.fromkeys(self.left, 0)
        self._hidden_for = hidden_for

    def receive(self, most: int) -> list[tuple[str, str]]:
        """Return messages that are not hidden, as (id, body), and hide them for a while."""
        found = [each for each in self.left.items() if self._hidden_until[each[0]] <= self.now]
        self._hidden_until |= {name: self.now + self._hidden_for for name, _ in found[:most]}
        return found[:most]

    def acknowledge(self, names: list[str]) -> None:
        """Remove messages; those that are gone already do not matter."""
        for name in names:
            self.left.pop(name, None)


class QueueSource:
    """A source that is told of commits (``lw.CommitListener``)."""

    schema = None

    def __init__(self, queue: SmallQueue) -> None:
        self._queue = queue
        self._taken: list[str] = []  # read, and not yet acknowledged

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[lw.Records]:
        for records, _ in self.batches_from(None, size, keys):
            yield records

    def batches_from(
        self, position: dict[str, Any] | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[lw.Records, dict[str, Any]]]:
        position = position or {"next": [], "taken": []}
        self._taken, batch = list(position["taken"]), position["next"]
        while True:
            if not batch:
                batch = [list(message) for message in self._queue.receive(size)]
                if not batch:
                    return  # a real queue would be polled again: yield lw.Records({}, 0, ...)
                yield lw.Records({}, 0), {"next": batch, "taken": list(self._taken)}
            self._taken += [name for name, _ in batch]
            records, batch = parsed(batch), []
            yield records, {"next": [], "taken": list(self._taken)}

    def committed(self, position: dict[str, Any]) -> None:
        """Acknowledge what the state has: called after each commit, and when a run resumes."""
        self._queue.acknowledge(position["taken"])
        self._taken = [name for name in self._taken if name not in set(position["taken"])]


def parsed(batch: list[list[str]]) -> lw.Records:
    """Return the records of messages; one that is no JSON object is a dead letter."""
    rows: list[dict[str, Any]] = []
    poison: list[lw.ErrorRecord] = []
    for name, body in batch:
        try:
            rows.append({"id": name, **json.loads(body)})
        except (ValueError, TypeError) as error:
            poison.append(lw.ErrorRecord(body, "malformed_json", str(error), f"message {name}"))
    if not rows:
        return lw.Records({}, 0, unreadable=tuple(poison))
    table = pa.RecordBatch.from_pylist(rows)
    found = lw.Records.from_arrow(table, "the queue")
    return lw.Records(found.columns, found.length, found.origin, unreadable=tuple(poison))


def work_by_minute(queue: SmallQueue) -> lw.Pipeline:
    """Return how much work each minute brought, each message counted once."""
    stream = lw.from_source(QueueSource(queue), time="at", watermark=lw.BoundedDisorder("10s"))
    return (
        stream.deduplicate(id="id", within="1h")
        .key_by("task")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count(), work=lw.sum("work"))
    )


def main() -> None:
    bodies = [
        json.dumps({"at": f"2000-01-01T12:00:{second:02d}Z", "task": "parcel", "work": second})
        for second in range(50)
    ]
    queue = SmallQueue([*bodies[:25], "not a message", *bodies[25:]])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.jsonl")
        metrics = (
            work_by_minute(queue)
            .write_jsonl(out)
            .run(
                state=Path(folder, "state"),
                commit_every="bundle",
                bundle_size=10,
                on_error="dead_letter",  # one in fifty is expected, so nobody is warned
                progress=False,
            )
        )
        for line in out.read_text().splitlines():
            row = json.loads(line)
            print(row["window_start"], row["task"], row["n"], "messages, work", row["work"])
    print("dead letters:", dict(metrics.errors), "left in the queue:", len(queue.left))


if __name__ == "__main__":
    main()
