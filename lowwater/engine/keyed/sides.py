"""The inputs of an operator whose records it keeps: one, or a left and a right side."""

from __future__ import annotations

from typing import Literal, TypeAlias

Side: TypeAlias = Literal[0, 1]

LEFT: Side = 0
"""The only side of an operator with one input."""
RIGHT: Side = 1
