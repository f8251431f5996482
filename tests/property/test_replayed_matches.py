"""What a trace finds again of the searches of a key is what the scalar oracle finds, each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from lowwater.engine.match.attempts import Attempts
from lowwater.engine.match.replay import Change, Replay
from lowwater.engine.records.followed import Event
from lowwater.engine.stages.searched import Searched
from lowwater.explain.traced_rows import joined_rows
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.oracles.pattern_runs import Given, PatternRun
from tests.oracles.row_patterns import END, Row
from tests.property.driven_matches import Case, bundle_of
from tests.property.match_runs import cases, stage_of, steps_of, without_unknown

KEYS = (0, 1, 2)


class Followed:
    """The replays of all keys beside the oracle."""

    def __init__(self, case: Case) -> None:
        self.case, self.stage, self.oracle = case, stage_of(case), case.run()
        work = self.stage.work
        assert isinstance(work, Searched)
        self.rules = work.rules
        self.steps: list[tuple[list[Given], int]] = []
        self.numbers: dict[Any, list[int | None]] = {key: [] for key in KEYS}

    def oracle_steps(self, steps: Sequence[Any]) -> list[Mapping[Any, list[Any]]]:
        """Give the oracle all steps; return what matches after each, by key."""
        found: list[Mapping[Any, list[Any]]] = []
        arrived = 0
        for step in [*(one for one in steps if one != "restart"), END]:
            if isinstance(step, list):
                rows = without_unknown(step, self.oracle)
                lowest = self.oracle.watermark - self.case.lateness
                some = [one for one in rows if one.row.time >= lowest]
                self.oracle.add(rows)
                for one in some:
                    self.numbers[one.key].append(arrived if one.sign > 0 else None)
                    arrived += one.sign > 0
                self.steps.append((some, -1))
            else:
                self.oracle.advance(step)
                self.steps.append(([], END_OF_TIME if step == END else step))
            found.append({key: matches_of(self.oracle, key) for key in KEYS})
        return found

    def replay(self, key: Any) -> list[tuple[Replay, list[Any]]]:
        """Return what stands after each step of one key."""
        mine = [[one for one in rows if one.key == key] for rows, _ in self.steps]
        bundles = [bundle_of(self.stage, rows, ordered=self.case.ordered) for rows in mine if rows]
        if not bundles:
            return []
        replay = Replay(self.rules, joined_rows(bundles))
        found = []
        count, watermark = 0, -(2**62)
        for order, (rows, (_, to)) in enumerate(zip(mine, self.steps, strict=True)):
            watermark = max(watermark, to) if to >= 0 else watermark
            numbers = tuple(range(count, count + len(rows)))
            count += len(rows)
            replay.follow(Event(order, 0, watermark, numbers))
            own = self.numbers[key]
            found.append(
                (replay, [
                    (tuple(own[row] for row in one.rows), tuple(v or "" for v in one.variables))
                    for one in replay.standing
                ])
            )  # fmt: skip
        return found


def matches_of(oracle: PatternRun, key: Any) -> list[Any]:
    """Return the arrivals and the labels of the rows of each match that is decided."""
    rows: list[Row] = sorted(oracle.rows.get(key, []), key=lambda row: row.place)
    return [
        (tuple(row.arrival for row in rows[match.start : match.stop]), match.labels)
        for match in oracle._matches(rows)
    ]


@given(st.data())
@examples(10, is_core=True)
def test_each_replay_says_what_the_oracle_finds(data: st.DataObject) -> None:
    case = data.draw(cases())
    followed = Followed(case)
    wanted = followed.oracle_steps(data.draw(steps_of(case)))
    for key in KEYS:
        replays = followed.replay(key)
        for (_, found), matches in zip(replays, wanted, strict=False):
            assert sorted(found) == sorted(matches[key])
        for replay, _ in replays[-1:]:
            check_changes_lead_to_what_stands(replay)
            check_each_row_matched_or_failed_for_a_reason(replay)


def check_changes_lead_to_what_stands(replay: Replay) -> None:
    net: Counter[Any] = Counter()
    for change in replay.changes:
        for sign, some in signed(change):
            for one in some:
                net[one.rows, one.variables, repr(one.measures)] += sign
    assert +net == Counter((one.rows, one.variables, repr(one.measures)) for one in replay.standing)
    assert not -net


def signed(change: Change) -> list[tuple[int, Any]]:
    before = tuple(one for one, _ in change.regrouped)
    now = tuple(one for _, one in change.regrouped)
    return [(-1, (*change.retracted, *before)), (1, (*change.emitted, *now))]


def check_each_row_matched_or_failed_for_a_reason(replay: Replay) -> None:
    attempts = replay.attempts()
    starts = {one.rows[0]: one for one in replay.standing}
    assert sorted(attempts.numbers) == sorted(one.row for one in attempts)
    for attempt in attempts:
        assert (attempt.fate == "matched") == (attempt.row in starts)
        assert attempt.fate not in ("undecided", "behind")  # the input has ended
        progress = attempts.progress(attempt.row)
        if attempt.fate == "matched":
            assert progress.variables == starts[attempt.row].variables
            assert (progress.why, progress.row) == ("end", None)
        elif attempt.fate == "failed":
            check_reason(attempts, attempt.row, progress)


def check_reason(attempts: Attempts, start: int, progress: Any) -> None:
    """Assert that a reason names a row where the attempt stopped, and what it waited for."""
    first = attempts.numbers.index(start)
    taken = len(progress.variables)
    if progress.why in ("condition", "within"):
        assert progress.row == attempts.numbers[first + taken]
    if progress.why == "absent":
        assert attempts.numbers.index(progress.row) >= first + taken
    if progress.why == "end":
        assert first + taken == len(attempts.numbers)
