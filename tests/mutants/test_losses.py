"""A run that loses records says so, whatever loses them (S-B2)."""

from __future__ import annotations

import warnings

import pytest

import lowwater as lw
from lowwater.errors import InternalError, InternalWarning
from tests.mutants.losses import LOSSES, Loss
from tests.property.bundled import arrivals, run


def meet(loss: Loss) -> None:
    """Run the case that meets a loss."""
    case, options = loss.case, {"batch": 60, **loss.options}
    run(case.build, arrivals(400, case.inputs, case.written), 20, content=case.content, **options)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_planted_loss_stops_the_run(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    loss.plant(monkeypatch)
    with pytest.raises(InternalError, match=loss.said) as raised:
        meet(loss)
    assert "please report" in str(raised.value)


@pytest.mark.parametrize("loss", LOSSES[:4], ids=str)
def test_users_are_warned_once_a_place(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOWWATER_CHECK")
    loss.plant(monkeypatch)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        meet(loss)
    said = [str(each.message) for each in warned if each.category is InternalWarning]
    assert said
    places = [text.partition("(at ")[2].partition(")")[0] for text in said]
    assert len(places) == len(set(places))
    assert all("please report" in text for text in said)


def test_there_are_many_of_them() -> None:
    assert len({loss.name for loss in LOSSES}) == len(LOSSES) > 20
    assert lw.InternalWarning is InternalWarning
