"""Checkpoints that commit 07f6227b has written are resumed: see ``tests/goldens/README.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from lowwater.state.codec import decode
from tests.goldens.checkpoints import CHECKPOINTS, QUERIES, feed, unpack

REFUSED: Mapping[str, str] = {}
"""The one place for checkpoints that are refused on purpose: by name, the words of the refusal."""


@pytest.mark.long(reason="resumes each stored checkpoint")
@pytest.mark.parametrize("name", QUERIES)
def test_a_checkpoint_is_resumed(
    name: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = QUERIES[name]
    monkeypatch.chdir(tmp_path)
    expected = unpack(golden, tmp_path)
    feed(later=True)
    now, then = golden.described(), Path("stages").read_bytes()
    assert decode(now) == decode(then)
    assert now == then
    if name in REFUSED:
        with pytest.raises(StreamingQueryException, match=REFUSED[name]):
            golden.run(spark)
        return
    found = golden.run(spark)
    more, missing = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
    assert (more, missing) == (Counter(), Counter()), name


def test_every_archive_of_a_checkpoint_has_its_query() -> None:
    assert {path.name.partition(".")[0] for path in CHECKPOINTS.iterdir()} == {*QUERIES}
    assert {*REFUSED} <= {*QUERIES}
