"""A broken law is shown with the fewest elements that break it, however many there were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.testing import Scenario, check_bundle_insensitive, check_order_insensitive
from lowwater.testing._fewest import _numbers


class LastCame:
    """A combiner that depends on the order of arrival."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, value: Any) -> Any:
        return value

    def merge_accumulators(self, accumulators: Any) -> Any:
        came = None
        for accumulator in accumulators:
            came = came if accumulator is None else accumulator
        return came

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def _last(stream: Any) -> Any:
    windows = stream.key_by("key").window(lw.FixedWindows("2m"))
    return windows.aggregate(last=lw.combine(LastCame(), "value"))


def _kind_of_last(stream: Any) -> Any:
    return _last(stream.map(lambda record: {**record, "value": str(record["value"])}))


def _first_of_batch(stream: Any) -> Any:
    def numbered(batch: Any) -> Any:
        at = batch.schema.get_field_index("value")
        return batch.set_column(at, "value", pa.array(range(len(batch))))

    windows = stream.map_batches(numbered).key_by("key").window(lw.FixedWindows("2m"))
    return windows.aggregate(total=lw.sum("value"))


def _scenario(count: int) -> Scenario:
    scenario = Scenario()
    for at in range(count):
        elements = [(10 * at + n, f"12:0{at % 10}:0{n}", "ABC"[at % 3]) for n in range(3)]
        scenario = scenario.add(*elements)
    return scenario.watermark("12:20").end()


@pytest.mark.parametrize("count", [2, 40])
def test_an_order_that_matters_is_shown_with_two_elements(count: int) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order_insensitive(_last, _scenario(count))
    text = str(caught.value)
    code = text.partition("To reproduce it:")[2].partition("\n\n12")[0]
    scenario, other = code.split("other = ")
    assert scenario.count(", '12:") == other.count(", '12:") == 2
    namespace: dict[str, Any] = {"pipeline": _last}
    with pytest.raises(AssertionError, match="S-W7"):  # what is shown does reproduce it
        exec(code, namespace)


def test_bundles_that_matter_are_shown_with_two_elements() -> None:
    with pytest.raises(AssertionError) as caught:
        check_bundle_insensitive(_first_of_batch, _scenario(12))
    scenario = str(caught.value).partition("scenario = ")[2].partition("other = ")[0]
    assert scenario.count(", '12:") == 2


def test_values_that_do_not_equal_themselves_are_told_apart() -> None:
    """A NaN made anew, and an array, are elements like others."""

    def scenario(order: int) -> Scenario:
        values = [float("nan"), np.arange(3), 7, 9][::order]
        return Scenario().add(*((value, "12:00", "A") for value in values)).end()

    with pytest.raises(AssertionError, match="S-W7") as caught:
        check_order_insensitive(_kind_of_last, scenario(1), scenario(-1))
    assert str(caught.value).partition("other = ")[0].count(", '12:00:00'") == 2


def test_scenarios_of_other_elements_are_compared_as_they_are() -> None:
    one = Scenario().add((1, "12:00", "A"), (2, "12:00", "A")).end()
    other = Scenario().add((1, "12:00", "A"), (3, "12:00", "A")).end()
    with pytest.raises(AssertionError, match="last=2 in the first order, but 3"):
        check_order_insensitive(_last, one, other)


def test_twenty_thousand_elements_are_matched_in_one_pass() -> None:
    elements = [(n, "12:00", "A") for n in range(20_000)]
    one, other = Scenario().add(*elements).end(), Scenario().add(*reversed(elements)).end()
    places = _numbers(one, other)
    assert places == list(range(20_000))[::-1]
