"""The painter for text: a timeline for terminals and test failures."""

from __future__ import annotations

from lowwater.viz.scene import Scene


def to_text(scene: Scene, *, width: int, rows: int) -> str:
    """Return a scene as lines of text."""
    return scene.title
