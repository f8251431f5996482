"""Writing pictures to files: the end of the file's name says what kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lowwater.errors import InvalidArgument
from lowwater.viz.palette import Theme
from lowwater.viz.shapes import Picture


def save_picture(
    target: Path, picture: Picture, theme: Theme, texts: Mapping[str, Callable[[], str]]
) -> None:
    """Write a picture.

    Args:
        target: The file.
        picture: What to write as ``.png``, and as ``.gif`` if it has moments to move through.
        theme: For light or dark paper.
        texts: What to write for kinds of files that are text.

    Raises:
        InvalidArgument: The file's name ends otherwise, or it cannot be written.
        UnsupportedByRunner: matplotlib is not there.
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
        raise InvalidArgument(
            f"{str(target)!r} cannot be written: {error.strerror or error}",
            where="save",
            hint="Name another file",
        ) from None


def _drawn(kind: str, picture: Picture, theme: Theme) -> bytes:
    from lowwater.viz.raster import to_gif, to_png

    return (to_png if kind == ".png" else to_gif)(picture, theme=theme)
