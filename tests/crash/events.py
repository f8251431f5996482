"""What the pipelines that are killed read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_START = 1_700_000_000_000_000


def some_events(
    count: int, *, seed: int, every_us: int, disorder_us: int, keys: int, first_id: int = 0
) -> pa.Table:
    """Return events in order of arrival: out of order, some late, without a time or id, or twice.

    Args:
        count: How many.
        seed: Of chance.
        every_us: Microseconds from one arrival to the next.
        disorder_us: Microseconds from an event to its arrival, at most.
        keys: How many keys there are.
        first_id: Where ids begin.
    """
    random_ = np.random.default_rng(seed)
    arrived = np.arange(count, dtype=np.int64) * every_us + _START
    at = arrived - random_.integers(0, disorder_us, count)
    table = pa.table(
        {
            "at": pa.array(at, mask=random_.random(count) < 0.02),
            "key": pa.array([f"k{n}" for n in random_.integers(0, keys, count)]),
            "value": random_.integers(-50, 50, count),
            "name": pa.array([f"n{n}" for n in random_.integers(0, 99, count)]),
            "id": pa.array(
                [f"id{n}" for n in range(first_id, first_id + count)],
                mask=random_.random(count) < 0.01,
            ),
        }
    )
    # One event in six comes again, mostly in another bundle or file.
    most = count // 4
    again = (random_.random(count) < 0.17) & (np.arange(count) >= most)
    back = np.where(again, random_.integers(1, most, count), 0)
    table = table.take(pa.array(np.arange(count) - back))
    return table.append_column("arrived", [arrived])
