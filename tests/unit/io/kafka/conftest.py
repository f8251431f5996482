"""The brokers that the tests of this folder read from: a real one, and the model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.io.kafka.broker import Broker, running_broker
from tests.unit.io.kafka.model import ModelBroker


@pytest.fixture(scope="session")
def real() -> Iterator[Broker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def model() -> Iterator[ModelBroker]:
    with ModelBroker().patched() as broker:
        yield broker


@pytest.fixture(
    params=["model", pytest.param("real", marks=pytest.mark.long(reason="needs a server"))]
)
def broker(request: pytest.FixtureRequest) -> Broker | ModelBroker:
    """Return each of the two."""
    found: Broker | ModelBroker = request.getfixturevalue(request.param)
    return found
