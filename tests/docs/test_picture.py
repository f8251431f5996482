"""The picture in the README is what the library draws today."""

from __future__ import annotations

from pathlib import Path

from examples.nine_events import picture

ROOT = Path(__file__).parents[2]


def test_the_picture_is_current() -> None:
    """If it is not: ``python -m examples.nine_events docs/images/nine-events.svg``."""
    drawn = picture().to_svg()
    assert (ROOT / "docs/images/nine-events.svg").read_text().strip() == drawn.strip()
