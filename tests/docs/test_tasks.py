"""What people look for by its plain name is found: the first page of a search solves it."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TASKS = {
    "erase person": "howto/erase.md",
    "hourly cron": "howto/schedule.md",
    "silent device": "howto/silence.md",
    "funnel timeout": "howto/funnel.md",
    "moving average": "howto/moving-averages.md",
    "p95 percentile": "howto/percentiles.md",
    "median": "howto/percentiles.md",
    "count distinct": "howto/percentiles.md",
    "top n": "howto/top-n.md",
    "ties": "howto/top-n.md",
    "device clock": "howto/device-clocks.md",
    "wrong clocks": "howto/device-clocks.md",
    "side input": "howto/side-inputs.md",
    "enrich": "howto/side-inputs.md",
    "last week": "howto/last-week.md",
    "daylight saving": "howto/last-week.md",
    "call a service": "howto/call-a-service.md",
    "airflow": "howto/schedule.md",
}
_ENDINGS = re.compile(r"(ies|ing|ly|es|s|e)$")
_COMMON = {"a", "the", "of", "it"}


def _words(text: str) -> list[str]:
    """Return the words of a text without their endings; ``time-out`` is one."""
    joined = re.sub(r"(?<=\w)-(?=\w)", "", text.lower())
    return [_ENDINGS.sub("", word) for word in re.findall(r"[a-z0-9]+", joined)]


@cache
def _counted() -> dict[str, tuple[Counter[str], set[str]]]:
    """Return how often each page has each word, and the words of its headings."""
    counted = {}
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text()
        heads = _words(" ".join(re.findall(r"^#+ (.*)$", text, re.MULTILINE)))
        counted[str(path.relative_to(ROOT / "docs"))] = Counter(_words(text)), {*heads}
    return counted


def _found(query: str) -> list[str]:
    """Return the pages that have all words, those first that have them in headings and often."""
    wanted = [word for word in _words(query) if word not in _COMMON]
    ranked: list[tuple[float, str]] = []
    for page, (counts, heads) in _counted().items():
        if all(counts[word] for word in wanted):
            length = sum(counts.values())
            score = sum(10 * (word in heads) + 1_000 * counts[word] / length for word in wanted)
            ranked.append((score, page))
    return [page for _, page in sorted(ranked, reverse=True)]


@pytest.mark.parametrize(("query", "page"), TASKS.items())
def test_the_first_page_found_is_the_one(query: str, page: str) -> None:
    assert _found(query)[0] == page


@pytest.mark.parametrize("page", sorted({*TASKS.values()}))
def test_each_of_these_pages_is_in_the_navigation(page: str) -> None:
    assert page in (ROOT / "mkdocs.yml").read_text()
