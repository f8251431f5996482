"""Part of the campaign of hostile inputs (``make fuzz`` runs all), and what it notices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hostile.campaign import Worker, report, try_inputs
from tests.hostile.hostile_input import TIME_US, HostileInput
from tests.hostile.inputs import hostile_input
from tests.hostile.trial import try_input

SEED, COUNT = 12, 50


@pytest.mark.long(reason="a campaign of hostile inputs")
def test_every_record_is_accounted_for(tmp_path: Path) -> None:
    inputs = [hostile_input(SEED, number) for number in range(COUNT)]
    verdicts = try_inputs(SEED, COUNT, tmp_path)
    assert all(verdict.good for verdict in verdicts), report(inputs, verdicts)


@pytest.mark.parametrize("number", [0, 150, 400, 999])
def test_inputs_are_the_same_for_a_seed(number: int) -> None:
    one, other = hostile_input(1, number), hostile_input(1, number)
    assert (one.title, one.files, one.rows) == (other.title, other.files, other.rows)


def lines(*rows: str, count: int | None = None) -> HostileInput:
    data = "".join(row + "\n" for row in rows).encode()
    counted = len(rows) if count is None else count
    return HostileInput("jsonl", "", {"1.jsonl": data}, rows=counted, refusable=False)


class Broken:
    """Data whose errors come from inside, not from a reader."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise ZeroDivisionError


def test_a_trial_tells_outcomes_apart(tmp_path: Path) -> None:
    sound = f'{{"at": {TIME_US}, "k": "a", "v": 1, "x": 1}}'
    cases = {
        "counted": lines(sound, "null"),
        "uncounted": lines(sound, "null", count=3),
        "refused": HostileInput("jsonl", "", {"1.jsonl.gz": b"x"}),
        "raised": HostileInput("arrow", "", data=Broken()),
    }
    for outcome, given in cases.items():
        (tmp_path / outcome).mkdir()
        assert try_input(given, tmp_path / outcome).outcome == outcome


def test_a_process_that_dies_is_noticed() -> None:
    worker = Worker([sys.executable, "-c", "import os; input(); os.abort()"])
    assert worker.ask(1).outcome == "died"
    assert worker.ask(2).outcome == "died"
    worker.close()
