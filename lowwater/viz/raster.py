"""Renders pictures as PNG and GIF with matplotlib, and writes pictures to files."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from lowwater.display.palette import DARK, LIGHT, STYLES, Style, Theme
from lowwater.errors import InvalidArgument, load_extra
from lowwater.viz.shapes import Label, Path, Picture, Rect


def save_picture(
    target: pathlib.Path, picture: Picture, theme: Theme, texts: Mapping[str, Callable[[], str]]
) -> None:
    """Write a picture to a file; the suffix selects the format.

    Args:
        target: The file.
        picture: What to write as ``.png``, and as ``.gif`` if it has moments to move through.
        theme: For light or dark paper.
        texts: What to write for kinds of files that are text.

    Raises:
        InvalidArgument: The file's name ends otherwise, or it cannot be written.
        InvalidArgument: matplotlib is not installed.
    """
    kind = target.suffix.lower()
    pixels = (".png", ".gif") if picture.frames else (".png",)
    if kind not in texts and kind not in pixels:
        raise InvalidArgument(
            f"{str(target)!r} is no kind of picture known",
            where="save",
            hint=f"End it with one of {', '.join(sorted((*texts, *pixels)))}",
        )
    content = texts[kind]().encode() if kind in texts else _drawn(kind, picture, theme)
    try:
        target.write_bytes(content)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        raise InvalidArgument(
            f"{str(target)!r} cannot be written: {error.strerror or error}",
            where="save",
            hint=f"Make the folder {str(target.parent)!r} first"
            if is_missing
            else "Name another file",
        ) from None


def _drawn(kind: str, picture: Picture, theme: Theme) -> bytes:
    return (to_png if kind == ".png" else to_gif)(picture, theme=theme)


_DOTS_PER_INCH = 100
_SHARPER = 2
_MOST_FRAMES = 60
_POINTS = 72 / _DOTS_PER_INCH
_FRAME_MS, _LAST_FRAME_MS = 600, 3000


def to_png(picture: Picture, *, theme: Theme = "auto") -> bytes:
    """Return a picture as PNG, twice as many pixels each way; ``auto`` is light.

    Raises:
        InvalidArgument: matplotlib is not installed.
    """
    figure = _figure(picture)
    _draw(figure, picture, theme, len(picture.frames) - 1)
    file = io.BytesIO()
    # No metadata: the version of matplotlib in it would make equal pictures differ.
    figure.savefig(file, format="png", dpi=_DOTS_PER_INCH * _SHARPER, metadata={"Software": None})
    return file.getvalue()


def to_gif(picture: Picture, *, theme: Theme = "auto") -> bytes:
    """Return a picture as GIF that moves through the run, in 60 frames at most.

    Raises:
        InvalidArgument: matplotlib is not installed.
    """
    figure = _figure(picture)
    from PIL import Image  # matplotlib needs Pillow itself

    count = max(1, len(picture.frames))
    shown = sorted({round(at * (count - 1) / (_MOST_FRAMES - 1)) for at in range(_MOST_FRAMES)})
    images = []
    for frame in shown:
        figure.clear()
        _draw(figure, picture, theme, frame)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)
        with Image.open(file) as image:
            images.append(image.convert("P", palette=Image.Palette.ADAPTIVE))
    times = [_FRAME_MS] * (len(images) - 1) + [_LAST_FRAME_MS]
    out = io.BytesIO()
    images[0].save(
        out, format="GIF", save_all=True, append_images=images[1:], duration=times, loop=0
    )
    return out.getvalue()


def _figure(picture: Picture) -> Any:
    purpose = "saving as .png or .gif, unlike .svg and .html,"
    load_extra("matplotlib.backends.backend_agg", extra="viz", purpose=purpose)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (picture.width / _DOTS_PER_INCH, picture.height / _DOTS_PER_INCH)
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    return figure


def _draw(figure: Any, picture: Picture, theme: Theme, frame: int) -> None:
    """Draw the shapes that are visible at a frame."""
    colours = DARK if theme == "dark" else LIGHT
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    axes.axis("off")
    number = {known.moment: at for at, known in enumerate(picture.frames)}
    share = picture.frames[frame].share if 0 <= frame < len(picture.frames) - 1 else 1.0
    for order, shape in enumerate(picture.shapes):
        if shape.since is not None and number[shape.since] > frame:
            continue
        style = STYLES[shape.style]
        match shape:
            case Rect():
                _draw_rect(axes, shape, style, colours, order, share)
            case Path():
                _draw_path(axes, shape, style, colours, order)
            case Label():
                _draw_label(axes, shape, style, colours, order)
            case _:
                assert_never(shape)


def _draw_rect(
    axes: Any, rect: Rect, style: Style, colours: Mapping[str, str], order: int, share: float
) -> None:
    from matplotlib.patches import Ellipse, FancyBboxPatch, Rectangle

    area = rect.area
    wide, high = area.right - area.left, area.bottom - area.top
    if rect.covers:
        high = rect.covers * (1 - share)
        if high <= 0:
            return
    options = _patch_options(style, colours, order, rect.opacity)
    place = (area.left, area.top)
    if rect.round and min(wide, high) <= 2 * rect.round and abs(wide - high) < 0.01:
        middle = (area.left + wide / 2, area.top + high / 2)
        axes.add_patch(Ellipse(middle, wide, high, **options))
    elif rect.round:
        corner = min(rect.round, wide / 2, high / 2)
        box = f"round,pad=0,rounding_size={corner}"
        axes.add_patch(FancyBboxPatch(place, wide, high, boxstyle=box, **options))
    else:
        axes.add_patch(Rectangle(place, wide, high, **options))


def _draw_path(axes: Any, path: Path, style: Style, colours: Mapping[str, str], order: int) -> None:
    from matplotlib.patches import Polygon

    options = _patch_options(style, colours, order, 1.0)
    options["joinstyle"] = "miter"
    axes.add_patch(Polygon(path.points, closed=path.closed, **options))


def _draw_label(
    axes: Any, label: Label, style: Style, colours: Mapping[str, str], order: int
) -> None:
    axes.text(
        label.x,
        label.y,
        label.text,
        fontsize=label.size * _POINTS,
        color=colours[style.fill or "ink"],
        fontweight="bold" if style.bold else "normal",
        ha={"start": "left", "middle": "center", "end": "right"}[label.anchor],
        va="center" if label.turned else "baseline",
        rotation=90 if label.turned else 0,
        zorder=order,
        parse_math=False,
    )


def _patch_options(
    style: Style, colours: Mapping[str, str], order: int, opacity: float
) -> dict[str, Any]:
    from matplotlib.colors import to_rgba

    fill: Any = "none"
    if style.fill is not None:
        fill = to_rgba(colours[style.fill], style.fill_opacity * opacity)
    stroke: Any = "none" if style.stroke is None else to_rgba(colours[style.stroke], opacity)
    options: dict[str, Any] = {
        "facecolor": fill,
        "edgecolor": stroke,
        "linewidth": style.width * _POINTS,
        "zorder": order,
    }
    if style.dash and style.stroke is not None:
        # Lengths of dashes count in line widths.
        options["linestyle"] = (0, tuple(length / style.width for length in style.dash))
    return options
