"""One launcher for all campaigns of a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.launcher import Launcher


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    with Launcher(tmp_path_factory.mktemp("launcher") / "stderr") as running:
        yield running
