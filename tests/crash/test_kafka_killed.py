"""A run from a topic to a topic, killed at any instant; the connections to the brokers break, too.

A producer works meanwhile: before each start there is more to read. The broker keeps the records of
aborted transactions visible (:mod:`tests.unit.io.kafka.broker`), so of the topic written to this
test asks that it holds each result, and nothing else; that it holds each once is proved with the
model of a broker (``tests/unit/io/kafka/test_writing.py``), and by the files of the same run.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import pytest

from lowwater.engine.local.run_record import read_run
from lowwater.errors import StateError
from lowwater.state.rocks import RocksStore
from tests.crash.killed_process import ANNOUNCED
from tests.crash.launcher import Launcher
from tests.protocol.traces import Announcements
from tests.unit.io.kafka.broker import Broker, Message, running_broker

KILLS = int(os.environ.get("LOWWATER_KAFKA_KILLS", "4"))
CUTS = int(os.environ.get("LOWWATER_KAFKA_CUTS", "1"))
_PARTITIONS, _EACH, _STRETCHES = 3, 600, 6
_CHILD = "tests.crash.kafka_to_kill"

pytestmark = pytest.mark.long(reason="kills programs")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker(relayed=True) as running:
        yield running


def test_each_result_is_there_once(broker: Broker, launcher: Launcher, tmp_path: Path) -> None:
    campaign = _Campaign(broker, launcher, tmp_path)
    wanted = campaign.run("whole", [])
    assert len(wanted) > 100
    chance = random.Random(17)
    number = 0
    cuts = 0 if broker.relay is None else CUTS  # a broker that is given has no relay
    while campaign.kills < KILLS or campaign.cuts < cuts:
        number += 1
        assert campaign.run(str(number), campaign.deaths(chance)) == wanted
    print(f"kafka: {campaign.kills} kills, {campaign.cuts} times all connections broke")


@final
@dataclass
class _Campaign:
    """Runs the pipeline in folders and over topics of its own, and kills it."""

    broker: Broker
    launcher: Launcher
    place: Path
    kills: int = field(default=0, init=False)
    cuts: int = field(default=0, init=False)
    seconds: float = field(default=1.0, init=False)

    def deaths(self, chance: random.Random) -> list[str]:
        """Draw how a run dies, again and again."""
        deaths = []
        cuts = 3 if CUTS and self.broker.relay is not None else 0
        for _ in range(4):
            match chance.choices(["alarm", "point", "cut"], [5, 3, cuts])[0]:
                case "alarm":
                    deaths.append(f"alarm:{int(chance.uniform(0.05, 0.9) * self.seconds * 1e6)}")
                case "point":
                    name = chance.choice(["before the write", "after the write", "between sinks"])
                    deaths.append(f"point:{name}:{chance.randint(1, 9)}")
                case _:
                    deaths.append(f"cut:{chance.uniform(0.05, 0.6) * self.seconds}")
        return deaths

    def run(self, name: str, deaths: list[str]) -> list[tuple[Any, ...]]:
        """Run until the input ends, through all deaths; return what came out."""
        folder = self.place / name
        folder.mkdir()
        topics: dict[str, Any] = {
            "servers": self.broker.servers,
            "from": self.broker.topic(_PARTITIONS),
            "to": self.broker.topic(2),
            "group": f"group-{name}-{self.place.name}",
            "end": dict.fromkeys(map(str, range(_PARTITIONS)), _EACH),
        }
        (folder / "topics.json").write_text(json.dumps(topics))
        left = _stretches()
        announced = Announcements(folder / ANNOUNCED)
        for how in deaths:
            # A run that waits for more passes no points: there is all to read then.
            for stretch in left if how.startswith("point:") else [next(left, {})]:
                self.broker.produce(topics["from"], stretch)
            announced.check(died=self._start(folder, how) != 0)
            self._check_offsets(folder, topics)
        for stretch in left:
            self.broker.produce(topics["from"], stretch)
        assert self._start(folder, "none") == 0
        announced.check(died=False)
        self._check_offsets(folder, topics)
        self.seconds = float((folder / "seconds").read_text())
        parts = [path.read_text().splitlines() for path in (folder / "out/panes").glob("part-*")]
        rows = [_result(json.loads(line)) for lines in parts for line in lines]
        written = [_result(json.loads(value or b"")) for _, value in self._read(topics["to"])]
        assert set(written) == set(rows)
        if not deaths:
            assert Counter(written) == Counter(rows)
        return sorted(rows)

    def _start(self, folder: Path, how: str) -> int:
        """Run the child until it ends or dies; return its exit code."""
        kind, _, rest = how.partition(":")
        if kind == "cut":
            assert self.broker.relay is not None
            cutter = threading.Timer(float(rest), self.broker.relay.cut, [0.2])
            cutter.start()
            # What is there is read to its end, which is not the end of the input.
            code, errors = self.launcher.run(
                _CHILD, [str(folder), f"alarm:{int(1.5 * self.seconds * 1e6) + 500_000}"]
            )
            cutter.cancel()
            cutter.join()
            self.cuts += 1
        else:
            code, errors = self.launcher.run(_CHILD, [str(folder), how])
        assert code <= 0, f"{how}: {code}\n{errors}"
        self.kills += code < 0
        return code

    def _read(self, topic: str) -> list[Message]:
        return self.broker.consume(topic)

    def _check_offsets(self, folder: Path, topics: dict[str, Any]) -> None:
        """The offsets of the group are never ahead of the state."""
        found = self.broker.offsets(topics["group"], topics["from"], _PARTITIONS)
        at = _position(folder / "state")
        for number, offset in found.items():
            assert offset <= at[number], (found, at)


def _stretches() -> Iterator[dict[int, list[Message]]]:
    """Yield the events in stretches: times are out of order, and rise within a stretch."""
    chance = random.Random(5)
    for start in range(0, _EACH, _EACH // _STRETCHES):
        yield {
            number: [
                (
                    None,
                    json.dumps(
                        {
                            "at": row * 100_000 + chance.randint(0, 7_000_000),
                            "user": f"u{chance.randint(0, 30)}",
                            "amount": row,
                        }
                    ).encode(),
                )
                for row in range(start, start + _EACH // _STRETCHES)
            ]
            for number in range(_PARTITIONS)
        }


def _result(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["user"], row["window_start"], row["window_end"], row["n"], row["amount"]


def _position(state: Path) -> dict[str, int]:
    try:
        store = RocksStore(state, read_only=True)
    except StateError as error:
        if error.what.startswith("there is no state"):
            return {}
        raise
    with store:
        record = read_run(store, str(state))
    if record is None or record["run"] is None:
        return {}
    (source,) = record["run"]["sources"].values()
    at: dict[str, int] = {} if source["position"] is None else source["position"]["at"]
    return at
