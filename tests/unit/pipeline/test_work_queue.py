"""A queue with acknowledgement as a source: each message is counted once, whatever happens."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from examples.work_queue import QueueSource, SmallQueue, main, work_by_minute
from lowwater import CommitListener
from tests.unit.engine.local.durable_runs import Stopped, output, run, stopping

POINTS = ("before the write", "after the write", "before publishing", "before forgetting")


def _queue() -> SmallQueue:
    bodies = [
        json.dumps({"at": f"2000-01-01T12:00:{row % 60:02d}Z", "task": f"k{row % 3}", "work": row})
        for row in range(60)
    ]
    return SmallQueue([*bodies[:17], "poison", *bodies[17:], "[1]"])


def _counted(folder: Path) -> tuple[int, int]:
    rows = output(folder)["part"]
    return sum(row["n"] for row in rows), sum(row["work"] for row in rows)


def test_the_source_is_told_of_commits() -> None:
    assert isinstance(QueueSource(_queue()), CommitListener)


@pytest.mark.parametrize("seed", range(6))
def test_each_message_is_counted_once(seed: int, tmp_path: Path) -> None:
    """The run stops at any point of any commit; meanwhile hidden messages come again."""
    chance, queue = random.Random(seed), _queue()
    for _ in range(8):
        try:
            with stopping(chance.choice(POINTS), chance.randint(1, 6)):
                run(work_by_minute(queue), tmp_path)
        except Stopped:
            queue.now += chance.choice([0, 5, 40])  # the hidden ones come again after 30
            continue
        break
    else:
        run(work_by_minute(queue), tmp_path)
    assert _counted(tmp_path) == (60, sum(range(60)))
    # A dead letter that comes again is one again: it has no id that deduplicate could know.
    assert {row["where"] for row in output(tmp_path)["errors"]} == {"message 17", "message 61"}
    assert not queue.left


def test_nothing_is_acknowledged_before_it_is_durable(tmp_path: Path) -> None:
    queue = _queue()
    with pytest.raises(Stopped), stopping("before the write", 1):
        run(work_by_minute(queue), tmp_path, commit_every=1_000)
    assert len(queue.left) == 62


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out.splitlines()[-1] == (
        "dead letters: {'malformed_json': 1} left in the queue: 0"
    )
