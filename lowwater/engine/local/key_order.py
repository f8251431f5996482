"""The order in which a stage's output reaches a stage with other keys: the same on every runner.

A stage emits what each of its keys has in an order of its own, but among keys the order depends on
which of them are computed together. Where it makes a difference downstream, such as in a list or
for a process, records are put in an order that does not: by event time, and at one time by the hash
of the key they come from. The records of one key stay in their order, even if their times do not.
"""

from __future__ import annotations

import numpy as np

from lowwater.engine.aggregates.specs import BuiltIn
from lowwater.engine.graph.graph import Flow, Read, Stage
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.pane_table import TIME as PANE_TIME
from lowwater.engine.records.stage_output import TIME as EMITTED_TIME
from lowwater.engine.records.stateless import Filter
from lowwater.time import Int64Array

AT, WHOSE = HIDDEN + "order_at", HIDDEN + "order_whose"
"""Hidden columns that records are sorted by, int64; records equal in both stay in their order."""


def minds_order(flow: Flow, stage: Stage) -> bool:
    """Whether the order of records that come from several keys of a stage makes a difference."""
    origin = flow.origin
    if isinstance(origin, Read):
        return False
    kept = origin.work.emits_panes and all(isinstance(step, Filter) for step in flow.steps)
    if kept and stage.deduplication is None and set(origin.key_names) <= set(stage.keys):
        return False  # one key never gets records of several
    if not stage.work.emits_panes or stage.windowing is None or stage.deduplication is not None:
        return True
    specs = stage.work.aggregates.values()
    return not all(isinstance(one, BuiltIn) and one.orderless for one in specs)


def with_order(records: Records, stage: Stage) -> Records:
    """Add the columns that a stage's output is sorted by. O(n log n)."""
    at, whose = _order(records, stage)
    return records.replaced({**records.columns, AT: Column(at), WHOSE: Column(whose)})


def in_order(records: Records, stage: Stage) -> Records:
    """Sort a stage's output. O(n log n)."""
    at, whose = _order(records, stage)
    sooner, equal = at[1:] < at[:-1], at[1:] == at[:-1]
    if not (sooner | (equal & (whose[1:] < whose[:-1]))).any():
        return records
    return records.take(np.lexsort((whose, at)).astype(np.int64))


def _order(records: Records, stage: Stage) -> tuple[Int64Array, Int64Array]:
    name = PANE_TIME if stage.work.emits_panes else EMITTED_TIME
    whose = hash_keys([records.columns[name] for name in stage.key_names]).view(np.int64)
    data: Int64Array = records.columns[name].data
    if (data[1:] >= data[:-1]).all():
        return data, whose
    by = np.argsort(whose, kind="stable")
    same = whose[by[1:]] == whose[by[:-1]]
    ordered = data[by]
    if not (same & (ordered[1:] < ordered[:-1])).any():
        return data, whose
    # The latest time so far of each key, so that its records stay in their order.
    key = np.zeros(len(by), dtype=np.int64)
    key[1:] = np.cumsum(~same)
    times, place = np.unique(ordered, return_inverse=True)
    latest = np.maximum.accumulate(key * len(times) + place) - key * len(times)
    at = np.empty(len(by), dtype=np.int64)
    at[by] = times[latest]
    return at, whose
