"""Notices a process that keeps state in its own attributes, where no key and no commit knows it."""

from __future__ import annotations

from typing import Any, final

from lowwater.errors import PipelineWarning, warn

_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None))
_GROWS = (list, dict, set)
_HOLDS = (*_GROWS, tuple, frozenset)


@final
class OwnAttributes:
    """The plain values among the attributes of a user's object, as they were.

    Others, such as a client or a model that a hook opens when it needs it, are no state.

    Args:
        process: The object.
        name: Its name in messages.
    """

    def __init__(self, process: object, name: str) -> None:
        self._process = process
        self._name = name
        self._before: dict[str, tuple[Any, int]] | None = self._now()

    def check(self) -> None:
        """Warn if hooks have changed any; once, after the first records. O(attributes)."""
        if self._before is None:
            return
        before, self._before = self._before, None
        changed = [
            name
            for name, (value, size) in self._now().items()
            if _differs(before, name, value, size)
        ]
        if changed:
            names = " and ".join(f"self.{name}" for name in changed)
            warn(
                PipelineWarning,
                f"{self._name} keeps state in {names}: it is shared by all keys, and lost when the "
                "run is resumed, moved to Spark or divided among workers",
                where=self._name,
                hint="Declare a cell in the class, as in seen = lw.value_cell(0), and use ctx.seen",
            )

    def _now(self) -> dict[str, tuple[Any, int]]:
        attributes = getattr(self._process, "__dict__", {})
        return {
            name: (value, len(value) if isinstance(value, _GROWS) else 0)
            for name, value in attributes.items()
            if type(value) in _PLAIN
        }


def _differs(before: dict[str, tuple[Any, int]], name: str, value: Any, size: int) -> bool:
    if name not in before:
        return True
    was, had = before[name]
    if was is value or type(was) is not type(value) or type(value) in _HOLDS:
        return was is not value or size != had  # what they hold may not be comparable
    return bool(was != value)
