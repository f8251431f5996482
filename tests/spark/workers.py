"""What the Python workers of the tests need to know."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
