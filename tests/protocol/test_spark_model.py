"""Models of what runs on Spark: every state is as it has to be, and each rule is needed."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.protocol import spark_model, watermark_model
from tests.protocol.checker import visit
from tests.protocol.spark_model import Kind, SparkBounds, SparkProtocol
from tests.protocol.watermark_model import InBand, WatermarkBounds

KINDS: tuple[Kind, ...] = ("cell", "own")
BOUNDS = {
    **{f"{kind}, kills": SparkBounds(kind) for kind in KINDS},
    **{
        f"{kind}, copies": SparkBounds(kind, batches=3, kills=1, runs=2, copies=1) for kind in KINDS
    },
    **{
        f"{kind}, three micro-batches": SparkBounds(kind, batches=3, kills=1, runs=2)
        for kind in KINDS
    },
}
RULES = {
    "each attempt writes under a name of its own": "cell, copies",
    "the files of the latest run count": "own, copies",
    "a worker's memory counts only with the right stamp": "cell, copies",
    "a task of another run does not count": "cell, copies",
    "versions are kept that may be run again": "cell, kills",
}


@pytest.mark.parametrize("name", BOUNDS)
def test_every_state_is_as_it_has_to_be(name: str) -> None:
    found = visit(SparkProtocol(BOUNDS[name]))
    print(f"{name}: {found}")
    assert found.broken is None, str(found)
    assert found.states > 100


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    found = visit(SparkProtocol(BOUNDS[RULES[rule]], without=rule))
    print(f"without {rule!r}, {found}")
    assert found.broken is not None


def test_all_rules_are_listed() -> None:
    for module, rules in ((spark_model, set(RULES)), (watermark_model, set(WATERMARK_RULES))):
        assert set(re.findall(r'holds\(\s*"([^"]+)"', inspect.getsource(module))) == rules


WATERMARK_RULES = (
    "a group tells what it holds",
    "every group is called in every micro-batch",
    "rows of a micro-batch come before its watermark",
    "the next level goes by the lowest of all groups",
)


def test_no_row_comes_behind_the_watermark_in_band() -> None:
    found = visit(InBand(WatermarkBounds()))
    print(f"the watermark in band: {found}")
    assert found.broken is None, str(found)
    assert found.states > 1_000


@pytest.mark.parametrize("rule", WATERMARK_RULES)
def test_each_rule_of_the_watermark_in_band_is_needed(rule: str) -> None:
    found = visit(InBand(WatermarkBounds(), without=rule))
    print(f"without {rule!r}, {found}")
    assert found.broken is not None
