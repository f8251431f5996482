"""The latency of peers: percentiles of panes after warming up; an error if some are missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import latency


def panes(late_ms: float, *, every_ms: int = latency.WINDOW_MS) -> latency.Latencies:
    """Panes of 25 seconds: those of the first ten, which do not count, are a second late."""
    for end in range(0, 25_000, every_ms):
        late = 1_000.0 if end < 1_000 * latency.WARM_S else late_ms + end % 1_000 / 100
        for _ in range(latency.KEYS):
            yield 50_000 + end / 1e3, 50_000 + (end + late) / 1e3


def test_warming_up_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def peer(path: Path, seconds: float) -> Iterator[tuple[float, float]]:
        assert seconds == 15 + latency.WARM_S
        return panes(3.0)

    monkeypatch.setitem(latency.PEERS, "lowwater", peer)
    found = latency.measured("lowwater", 15.0)
    assert found["panes"] == 150 * latency.KEYS
    assert found["p50"] == pytest.approx(7.5, abs=0.6)
    assert found["p99"] == pytest.approx(12.0, abs=0.1)
    assert found["longest"] == pytest.approx(12.0, abs=0.1)


def test_missing_panes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(latency.PEERS, "lowwater", lambda path, seconds: panes(3.0, every_ms=500))
    with pytest.raises(ValueError, match="emitted 300 panes of 1400 at least"):
        latency.measured("lowwater", 15.0)
