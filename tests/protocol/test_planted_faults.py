"""Rules of the protocol that are left out of the real code: the kit for sinks finds each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowwater.engine.local import durable
from lowwater.engine.local.delivery import Delivery
from lowwater.engine.local.durable import DurableRun
from lowwater.engine.local.run_record import read_outbox
from lowwater.engine.local.source_reader import SourceReader
from lowwater.errors import LowwaterError
from lowwater.io.sinks import JsonLinesFolder, owned_folder
from lowwater.testing import check_sink, sink_kit
from tests.protocol.test_model import RULES

Plant = Callable[[pytest.MonkeyPatch], None]


def _without_the_outbox(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(durable, "read_outbox", lambda _: iter(()))


def _under_another_name(plant: pytest.MonkeyPatch) -> None:
    read = read_outbox

    def renamed(store: Any) -> Iterator[Delivery]:
        for delivery in read(store):
            yield replace(delivery, piece=delivery.piece + 500_000)

    plant.setattr(durable, "read_outbox", renamed)


def _unannounced(plant: pytest.MonkeyPatch) -> None:
    def announce(self: Any, store: Any, record: Any) -> None:
        self._openings = [*self._openings, self._opening]
        durable._reach("after the announcement")

    plant.setattr(DurableRun, "_announce", announce)


def _forgetting_openings(plant: pytest.MonkeyPatch) -> None:
    announce = DurableRun._announce

    def forgets(self: Any, store: Any, record: Any) -> None:
        self._openings = []
        announce(self, store, record)

    plant.setattr(DurableRun, "_announce", forgets)


def _anybodys(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(owned_folder, "check_owner", lambda *_, **__: None)


def _from_the_beginning(plant: pytest.MonkeyPatch) -> None:
    remember = SourceReader.remember

    def remembers(self: Any) -> Any:
        return {**remember(self), "position": None, "bundles": 0}

    plant.setattr(SourceReader, "remember", remembers)


PLANTS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "the outbox is in the commit": (_without_the_outbox, ("after telling",)),
    "a delivery that came before has no effect": (_under_another_name, ("before the write",)),
    "an opening is stored before a place names it": (_unannounced, ("after opening",)),
    "openings are kept until the next commit": (
        _forgetting_openings,
        ("after the announcement", "after telling"),
    ),
    "a place belongs to the openings that the state names": (_anybodys, ()),
    "the position is in the commit": (_from_the_beginning, ()),
}
"""How a rule is left out, and the points of death that show it: the kit tries these alone."""


def _read(folder: Path) -> Any:
    files = sorted(folder.glob("part-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.mark.parametrize("rule", PLANTS)
def test_a_rule_that_is_left_out_is_missed(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rule in RULES
    plant, points = PLANTS[rule]
    plant(monkeypatch)
    monkeypatch.setattr(sink_kit, "POINTS", points)
    with pytest.raises((AssertionError, LowwaterError)) as caught:
        check_sink(
            lambda number: JsonLinesFolder(str(tmp_path / str(number))),
            lambda number: _read(tmp_path / str(number)),
        )
    print(f"without {rule!r}: {caught.value}")
