"""A test that repeats what a run emitted, as a value: :class:`Incident`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from lowwater.display import html
from lowwater.errors import InvalidArgument
from lowwater.io.paths import PathLike


@final
@dataclass(frozen=True, slots=True, repr=False)
class Incident:
    """What a run emitted of a window, as a test in Python that repeats it.

    ``print(incident)`` prints the test; ``save`` writes it.

    Args:
        scenario: What must arrive, a :class:`lowwater.testing.Scenario` with the fewest elements
            and bundles.
        code: The test.
        outputs: The panes or elements that it expects, as the shrunk scenario gives them.
        late: The late records that it expects.
        elements_before: How many records the run read.
    """

    scenario: Any  # the room of scenarios stands above this one
    code: str
    outputs: tuple[Any, ...]
    late: tuple[Any, ...]
    elements_before: int

    def save(self, path: PathLike) -> Path:
        """Write the test to a new file, and return its path.

        Raises:
            InvalidArgument: The file exists, or cannot be written.
        """
        file = Path(path)
        try:
            with file.open("x", encoding="utf-8") as out:
                out.write(self.code)
        except FileExistsError:
            raise InvalidArgument(
                f"{str(path)!r} exists", where="Incident.save", hint="Name a new file"
            ) from None
        except OSError as error:
            raise InvalidArgument(
                f"{str(path)!r} cannot be written: {error.strerror or error}",
                where="Incident.save",
                hint="Name a file in a folder that exists",
            ) from None
        return file

    def __str__(self) -> str:
        return self.code.rstrip()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html.display(html.code(self.code))
