"""Diagrams as PNG and GIF, by matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import lowwater as lw
from tests.unit.viz.viz_runs import RETRACTING, diagram_of

DIAGRAM = diagram_of(RETRACTING)


@pytest.mark.slow(reason="loads matplotlib")
def test_png_is_the_same_picture_each_time(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("one.png", "two.png"):
        DIAGRAM.save(tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    with Image.open(tmp_path / "one.png") as image:
        picture = DIAGRAM.picture
        assert image.size == (2 * picture.width, 2 * picture.height)
        colours = image.convert("RGB").getcolors(1_000_000)
    assert colours is not None
    found = {colour for _, colour in colours}
    assert (255, 255, 255) in found
    assert (0, 158, 115) in found  # the watermark


@pytest.mark.slow(reason="loads matplotlib")
def test_gif_moves_through_the_run(tmp_path: Path) -> None:
    from PIL import Image

    scenario = lw.Windowing(windows=lw.FixedWindows("2m"))
    diagram = diagram_of(scenario)
    diagram.with_theme("dark").save(tmp_path / "run.gif")
    with Image.open(tmp_path / "run.gif") as image:
        assert getattr(image, "n_frames", 1) == len(diagram.picture.frames)
        assert image.size == (diagram.picture.width, diagram.picture.height)


@pytest.mark.parametrize("kind", ["png", "gif"])
def test_without_matplotlib_the_extra_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(lw.InvalidArgument, match=r'pip install "lowwater\[viz\]"'):
        DIAGRAM.save(tmp_path / f"run.{kind}")
    assert not list(tmp_path.iterdir())
